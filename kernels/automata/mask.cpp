#include "mask.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bitset>
#include <optional>

namespace sapwood {

// Whether a text may go on; remembers what it asked.
struct Masks::ExactLive {
    Json& json;
    const Cursor& cursor;
    ByState<std::int8_t> known;

    bool operator()(int state, int chars) {
        std::int8_t& live = known.at(state, chars);
        if (live < 0) live = json.text_live(cursor, later(cursor, state, chars));
        return live != 0;
    }
};

Masks::Visited& Masks::visited() {
    thread_local Visited visited;
    return visited;
}

std::uint64_t Masks::next_number() {
    static std::atomic<std::uint64_t> count;
    return ++count;
}

template <class Found>
bool Masks::walk(const Trie& trie, int root, const Cursor& cursor, Found found) {
    std::vector<Cursor> stack;
    stack.reserve(16);
    stack.push_back(cursor);
    int base = trie.depths[root];
    for (int node = root + 1; node < trie.end[root];) {
        std::size_t depth = trie.depths[node] - base;
        stack.resize(std::min(stack.size(), depth));
        const Cursor& before = stack.back();
        bool fits = plausible(before.mode)[trie.bytes[node]];
        if (fits) {
            json_.schema.budget.tick();
            Cursor next = before;
            fits = json_.step(next, trie.bytes[node]);
            if (fits) {
                for (const int* token = trie.tokens_begin(node); token != trie.tokens_end(node); ++token)
                    if (found(*token)) return true;
                if (trie.end[node] > node + 1) stack.push_back(std::move(next));
            }
        }
        node = fits ? node + 1 : trie.end[node];
    }
    return false;
}

void Masks::add(const Trie& trie, int root, const Cursor& cursor, std::uint32_t* words) {
    walk(trie, root, cursor, [words](int token) { return set_bit(words, token), false; });
}

// The tokens of a subtree, whose first byte has not been read yet, anew.
void Masks::redo(int node, const Cursor& cursor, std::uint32_t* words) {
    const Trie& trie = vocabulary_.trie;
    for (const int* token = trie.tokens_begin(node); token != trie.subtree_end(node); ++token) clear_bit(words, *token);
    Cursor next = cursor;
    if (!json_.step(next, trie.bytes[node])) return;
    for (const int* token = trie.tokens_begin(node); token != trie.tokens_end(node); ++token) set_bit(words, *token);
    add(trie, node, next, words);
}

const std::vector<std::uint32_t>& Masks::at(const Cursor& cursor) {
    std::uint64_t key = json_.hash(cursor);
    auto found = cache_.find(key);
    if (found != cache_.end()) return found->second;
    if (cache_.size() * vocabulary_.num_words() * 4 >= kMaxCachedBytes) cache_.clear();
    std::vector<std::uint32_t> words(vocabulary_.num_words(), 0);
    compute(cursor, words.data());
    return cache_[key] = std::move(words);
}

void Masks::compute(const Cursor& cursor, std::uint32_t* words) {
    if (cursor.at_character() && compute_text(cursor, words)) return;
    add(vocabulary_.trie, 0, cursor, words);
}

// A text may be one of the list that applies here, or another one, or either.
bool Masks::compute_text(const Cursor& cursor, std::uint32_t* words) {
    Cursor other = cursor;
    other.at.lo = other.at.hi = 0;
    bool listed = cursor.at.lo < cursor.at.hi;
    if (!json_.text_live(other, other.at)) {
        if (listed) follow_list(cursor, true, words);
        return listed;
    }
    if (!compute_free(other, words)) compute_inside(other, words);
    if (listed) follow_list(cursor, false, words);
    return true;
}

// Texts under no pattern: everything inside is known beforehand, but for the end.
bool Masks::compute_free(const Cursor& cursor, std::uint32_t* words) {
    TextSpec& text = cursor.text();
    const std::vector<int>& parts = text.product.parts(cursor.at.state);
    if (cursor.mode == Mode::Raw || !text.product.whole(cursor.at.state)) return false;
    if (cursor.mode == Mode::Key ? !cursor.frame->plan->object->plain
                                 : text.counted > 0 && !(text.plan.simple && text.plan.roots->must))
        return false;
    if (std::any_of(parts.begin() + 1, parts.end(), [](int part) { return part != Dfa::kAll; })) return false;
    const FreeText& free = vocabulary_.free;
    int room = text.max_length < 0 ? 1 << 20 : text.shortest_max - cursor.at.chars;
    copy_within(free.inside, free.by_chars, room, words);
    add_free_exits(cursor, room, words);
    return true;
}

// The tokens of at most `room` characters.
void Masks::copy_within(const std::vector<std::uint32_t>& all, const std::vector<std::pair<int, int>>& by_chars,
                        int room, std::uint32_t* words) {
    constexpr int kMostAreShorter = 6;
    if (room > kMostAreShorter) {
        std::copy(all.begin(), all.end(), words);
        for (auto token = by_chars.rbegin(); token != by_chars.rend() && token->first > room; ++token)
            clear_bit(words, token->second);
    } else {
        for (auto token = by_chars.begin(); token != by_chars.end() && token->first <= room; ++token)
            set_bit(words, token->second);
    }
}

void Masks::add_free_exits(const Cursor& cursor, int room, std::uint32_t* words) {
    const FreeText& free = vocabulary_.free;
    if (json_.wants_digest(cursor)) {
        for (const FreeText::Exit& exit : free.exits) {
            Cursor here = cursor;
            bool fits = exit.chars <= room;
            for (char c : exit.interior) fits = fits && json_.step(here, static_cast<std::uint8_t>(c));
            if (fits) redo(exit.node, here, words);
        }
    } else if (cursor.text().counted == 0) {
        add(free.all_suffixes, 0, cursor, words);
    } else {
        Cursor at = cursor;
        for (int chars = 0; chars < static_cast<int>(free.suffixes.size()) && chars <= room; ++chars) {
            if (!free.suffixes[chars]) continue;
            at.at.chars = std::min(cursor.at.chars + chars, cursor.text().counted);
            add(*free.suffixes[chars], 0, at, words);
        }
    }
}

// Texts of a list: all there is, or a correction where other texts are allowed too, since a token that ends a listed
// text, or escapes on the way to one, is not like the others.
void Masks::follow_list(const Cursor& cursor, bool only_list, std::uint32_t* words) {
    const Trie& trie = vocabulary_.trie;
    const TextList& list = cursor.text().list;
    std::bitset<256> first = list.next_bytes(cursor.at);
    std::vector<Cursor> stack{cursor};
    for (int node = 1; node < trie.size();) {
        stack.resize(std::min<std::size_t>(stack.size(), trie.depths[node]));
        const Cursor& before = stack.back();
        std::uint8_t byte = trie.bytes[node];
        bool goes_on = false;
        if (cursor.mode != Mode::Raw && (byte == '"' || byte == '\\')) {
            if (byte == '\\' || only_list || list.complete(before.at) >= 0) redo(node, before, words);
        } else if (stack.size() > 1 || first[byte]) {
            TextState next = before.at;
            list.narrow(next, byte);
            if (next.lo < next.hi) {
                Cursor on = before;
                goes_on = json_.step(on, byte);
                if (goes_on) stack.push_back(std::move(on));
            }
        }
        if (goes_on)
            for (const int* token = trie.tokens_begin(node); token != trie.tokens_end(node); ++token)
                set_bit(words, *token);
        node = goes_on ? node + 1 : trie.end[node];
    }
}

// Texts under patterns. What lies inside depends on the text alone, and is kept.
void Masks::compute_inside(const Cursor& cursor, std::uint32_t* words) {
    TextSpec& text = cursor.text();
    if (compute_counted(cursor, words)) return;
    std::uint64_t place = mix(reinterpret_cast<std::uintptr_t>(&text), cursor.at.state);
    bool near = text.max_length >= 0 && text.max_length - cursor.at.chars <= vocabulary_.longest_chars;
    if (near) place = mix(place, cursor.at.chars);
    bool alone = cursor.mode == Mode::Key ? cursor.frame->plan->simple : cursor.plan->roots->must;
    if (!alone) place = json_.hash(cursor);
    auto found = inside_.find(place);
    if (found == inside_.end()) {
        Inside inside;
        Visited* seen = json_.schema.layout.compact ? &visited() : nullptr;  // `committed` will ask
        scan(cursor, exact_live(cursor), seen, inside);
        if (seen) seen->exits = inside.exits, seen->place = place_of(cursor);
        found = inside_.emplace(place, std::move(inside)).first;
    }
    std::copy(found->second.words.begin(), found->second.words.end(), words);
    add_exits(cursor, found->second, words);
}

Masks::ExactLive Masks::exact_live(const Cursor& cursor) { return {json_, cursor, by_state<std::int8_t>(cursor)}; }

void Masks::visit_exactly(const Cursor& cursor) {
    Visited& seen = visited();
    visit(cursor, exact_live(cursor), &seen, seen.exits, [](int, int) {});
    seen.place = place_of(cursor);
}

// A pattern that may end after each character, and a length: the pattern's tokens are kept, whatever room is left.
bool Masks::compute_counted(const Cursor& cursor, std::uint32_t* words) {
    if (cursor.mode != Mode::Text) return false;
    TextSpec& text = cursor.text();
    bool one_pattern = text.product.num_parts() == 2 && text.plan.simple && text.list.texts.empty();
    if (!one_pattern || text.max_length < 0 || text.min_length > cursor.at.chars + 1) return false;
    std::uint64_t place = mix(mix(reinterpret_cast<std::uintptr_t>(&text), cursor.at.state), 1);
    auto found = inside_.find(place);
    if (found == inside_.end()) {
        Inside inside;
        Dfa& dfa = text.product.dfa(1);
        auto live = [&](int state, int) {
            int part = text.product.parts(state)[1];
            if (!dfa.live(part)) return false;
            inside.ends_anywhere &= !text.product.whole(state) || dfa.accepts(part);
            return true;
        };
        scan(cursor, live, nullptr, inside);
        found = inside_.emplace(place, std::move(inside)).first;
    }
    const Inside& inside = found->second;
    if (!inside.ends_anywhere) return false;
    copy_within(inside.words, inside.by_chars, text.shortest_max - cursor.at.chars, words);
    add_exits(cursor, inside, words);
    return true;
}

// Most exits from one state are alike, and what follows a quote is found out once.
void Masks::add_exits(const Cursor& cursor, const Inside& inside, std::uint32_t* words) {
    const Trie& trie = vocabulary_.trie;
    bool digest = json_.wants_digest(cursor), counted = cursor.text().counted > 0;
    std::unordered_map<std::uint64_t, std::optional<Cursor>> after;
    for (const auto& [node, state, chars] : inside.exits) {
        if (digest) {
            Cursor here = cursor;
            const std::string& token = vocabulary_.tokens[*trie.tokens_begin(node)];
            bool fits = true;
            for (int i = 0; i + 1 < trie.depths[node] && fits; ++i)
                fits = json_.step(here, static_cast<std::uint8_t>(token[i]));
            if (fits) redo(node, here, words);
            continue;
        }
        std::uint64_t place = static_cast<std::uint64_t>(state) << 32 | (counted ? chars << 8 : 0) | trie.bytes[node];
        auto [found, fresh] = after.try_emplace(place);
        if (fresh) {
            Cursor next = cursor;
            next.at = later(cursor, state, chars);
            if (json_.step(next, trie.bytes[node])) found->second = std::move(next);
        }
        if (!found->second) continue;
        for (const int* token = trie.tokens_begin(node); token != trie.tokens_end(node); ++token)
            set_bit(words, *token);
        add(trie, node, *found->second, words);
    }
}

template <class Live>
void Masks::scan(const Cursor& cursor, Live live, Visited* seen, Inside& out) {
    const Trie& trie = vocabulary_.trie;
    json_.schema.budget.charge_bytes(vocabulary_.num_words() * 4 + 256);
    out.words.assign(vocabulary_.num_words(), 0);
    bool counted = cursor.text().max_length >= 0;
    visit(cursor, std::move(live), seen, out.exits, [&](int node, int chars) {
        for (const int* token = trie.tokens_begin(node); token != trie.tokens_end(node); ++token) {
            set_bit(out.words.data(), *token);
            if (counted) out.by_chars.emplace_back(chars, *token);
        }
    });
    std::sort(out.by_chars.begin(), out.by_chars.end());
}

// Goes through the nodes that lie inside the text. `seen` (may be null) is to remember where they lead.
template <class Live, class Found>
void Masks::visit(const Cursor& cursor, Live live, Visited* seen, std::vector<Inside::Exit>& exits, Found found) {
    const Trie& trie = vocabulary_.trie;
    TextSpec& text = cursor.text();
    json_.schema.budget.tick(trie.size() / 16);
    bool raw = cursor.mode == Mode::Raw;
    exits.clear();
    int* seen_states = nullptr;
    std::uint8_t* seen_chars = nullptr;
    if (seen) {
        seen->place = 0;
        seen->states.assign(trie.size(), -1);
        seen->chars.resize(trie.size());
        seen_states = seen->states.data(), seen_chars = seen->chars.data();
    }
    std::array<int, 256> states, chars;
    states[0] = cursor.at.state, chars[0] = 0;
    for (int node = 1; node < trie.size();) {
        int depth = trie.depths[node], before = states[depth - 1];
        std::uint8_t byte = trie.bytes[node];
        bool fits = raw || (byte >= 0x20 && byte != '"' && byte != '\\');
        if (fits) {
            int state = text.product.step(before, byte);
            states[depth] = state;
            chars[depth] = chars[depth - 1] + ((byte & 0xC0) != 0x80);
            fits = state >= 0 && live(state, chars[depth]);
        } else if (byte >= 0x20 && text.product.whole(before)) {
            exits.push_back({node, before, chars[depth - 1]});
        }
        if (!fits) {
            node = trie.end[node];
            continue;
        }
        found(node, chars[depth]);
        if (seen_states) seen_states[node] = states[depth], seen_chars[node] = static_cast<std::uint8_t>(chars[depth]);
        ++node;
    }
}

bool Masks::extends(const Cursor& cursor, const std::string& tail) {
    const Trie& trie = vocabulary_.trie;
    Cursor at = cursor;
    int node = 0;
    for (char c : tail) {
        node = trie.child(node, static_cast<std::uint8_t>(c));
        if (node < 0 || !json_.step(at, static_cast<std::uint8_t>(c))) return false;
    }
    return walk(trie, node, at, [](int) { return true; });
}

}  // namespace sapwood
