#include "mask.h"

#include <algorithm>
#include <array>
#include <bitset>

namespace sapwood {
namespace {

std::bitset<256> bytes_of(const char* bytes) {
    std::bitset<256> out;
    for (; *bytes; ++bytes) out.set(static_cast<std::uint8_t>(*bytes));
    return out;
}

// A quick look before a cursor is copied for a byte that can't come anyway.
const std::bitset<256>& plausible(Mode mode) {
    static const std::array<std::bitset<256>, 12> table = [] {
        std::array<std::bitset<256>, 12> out;
        for (auto& bytes : out) bytes.set();
        std::bitset<256> blanks = bytes_of(" \n\r\t");
        auto at = [&](Mode m) -> std::bitset<256>& { return out[static_cast<int>(m)]; };
        at(Mode::Value) = blanks | bytes_of("{[\"tfn-0123456789");
        at(Mode::FirstItem) = at(Mode::Value) | bytes_of("]");
        at(Mode::FirstKey) = blanks | bytes_of("\"}");
        at(Mode::NextKey) = blanks | bytes_of("\"");
        at(Mode::Colon) = bytes_of(":");
        at(Mode::After) = blanks | bytes_of(",]}");
        at(Mode::Number) = at(Mode::After) | bytes_of("0123456789.eE+-");
        at(Mode::Literal) = bytes_of("rueals");
        at(Mode::End).reset();
        return out;
    }();
    return table[static_cast<int>(mode)];
}

}  // namespace

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
    if (cache_.size() >= kMaxCached) cache_.clear();
    std::vector<std::uint32_t> words(vocabulary_.num_words(), 0);
    compute(cursor, words.data());
    return cache_[key] = std::move(words);
}

void Masks::compute(const Cursor& cursor, std::uint32_t* words) {
    bool text = (cursor.mode == Mode::Text || cursor.mode == Mode::Key) && cursor.escape == escape::None;
    if ((text || cursor.mode == Mode::Raw) && compute_text(cursor, words)) return;
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
    if (room > 6) {
        std::copy(free.inside.begin(), free.inside.end(), words);
        for (auto token = free.by_chars.rbegin(); token != free.by_chars.rend() && token->first > room; ++token)
            clear_bit(words, token->second);
    } else {
        for (auto token = free.by_chars.begin(); token != free.by_chars.end() && token->first <= room; ++token)
            set_bit(words, token->second);
    }
    add_free_exits(cursor, room, words);
    return true;
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
            for (const int* token = trie.tokens_begin(node); token != trie.tokens_end(node); ++token) set_bit(words, *token);
        node = goes_on ? node + 1 : trie.end[node];
    }
}

// Texts under patterns. What lies inside depends on the text alone, and is kept.
void Masks::compute_inside(const Cursor& cursor, std::uint32_t* words) {
    TextSpec& text = cursor.text();
    std::uint64_t place = mix(reinterpret_cast<std::uintptr_t>(&text), cursor.at.state);
    bool near = text.max_length >= 0 && text.max_length - cursor.at.chars <= vocabulary_.longest_chars;
    if (near) place = mix(place, cursor.at.chars);
    bool alone = cursor.mode == Mode::Key ? cursor.frame->plan->simple : cursor.plan->roots->must;
    if (!alone) place = json_.hash(cursor);
    auto [found, fresh] = inside_.try_emplace(place);
    Inside& inside = found->second;
    if (fresh) {
        json_.schema.budget.charge_bytes(vocabulary_.num_words() * 4 + 256);
        inside.words.assign(vocabulary_.num_words(), 0);
        scan(cursor, inside);
    }
    std::copy(inside.words.begin(), inside.words.end(), words);
    const Trie& trie = vocabulary_.trie;
    bool digest = json_.wants_digest(cursor);
    for (const auto& [node, state] : inside.exits) {
        Cursor here = cursor;
        bool fits = true;
        if (digest) {
            const std::string& token = vocabulary_.tokens[*trie.tokens_begin(node)];
            for (int i = 0; i + 1 < trie.depths[node] && fits; ++i) fits = json_.step(here, static_cast<std::uint8_t>(token[i]));
        } else {
            here.at = state;
            here.at.chars = std::min(cursor.at.chars + state.depth, text.counted);
        }
        if (fits) redo(node, here, words);
    }
}

void Masks::scan(const Cursor& cursor, Inside& out) {
    const Trie& trie = vocabulary_.trie;
    TextSpec& text = cursor.text();
    bool raw = cursor.mode == Mode::Raw;
    std::vector<TextState> stack(256);
    std::vector<std::int8_t> known;  // [state, characters] whether live
    int width = text.counted > 0 ? vocabulary_.longest_chars + 2 : 1;
    auto live = [&](const TextState& at, int chars) {
        std::size_t place = static_cast<std::size_t>(at.state) * width + (width > 1 ? chars : 0);
        if (place >= known.size()) known.resize(place + 64 * width, -1);
        if (known[place] < 0) {
            bool result = json_.text_live(cursor, at);
            known[place] = result;
        }
        return known[place] != 0;
    };
    std::vector<int> chars(256, 0);
    stack[0] = cursor.at;
    for (int node = 1; node < trie.size();) {
        int depth = trie.depths[node];
        std::uint8_t byte = trie.bytes[node];
        const TextState& before = stack[depth - 1];
        bool fits = raw || (byte >= 0x20 && byte != '"' && byte != '\\');
        if (!fits && byte >= 0x20 && text.product.whole(before.state)) {
            out.exits.emplace_back(node, before);
            out.exits.back().second.depth = chars[depth - 1];  // characters since the cursor
        }
        if (fits) {
            TextState& next = stack[depth];
            next = before;
            chars[depth] = chars[depth - 1] + ((byte & 0xC0) != 0x80);
            fits = text.step(next, byte) && live(next, chars[depth]);
        }
        if (fits)
            for (const int* token = trie.tokens_begin(node); token != trie.tokens_end(node); ++token)
                set_bit(out.words.data(), *token);
        node = fits ? node + 1 : trie.end[node];
    }
    json_.schema.budget.tick(trie.size() / 16);
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
