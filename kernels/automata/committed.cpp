// Which tokens leave only few ways for what follows them.

#include <array>
#include <bitset>
#include <unordered_map>

#include "mask.h"

namespace sapwood {

int Masks::forced_byte(const Cursor& cursor) {
    std::vector<int> found = few_bytes(cursor, 1);
    return found.empty() ? -1 : found[0];
}

// The bytes that may come; none if the text may end, or if there are more than `most`.
std::vector<int> Masks::few_bytes(const Cursor& cursor, std::size_t most) {
    std::vector<int> found;
    if (json_.may_end(cursor)) return found;
    const std::bitset<256>& possible = plausible(cursor.mode);
    for (int byte = 0; byte < 256; ++byte) {
        if (!possible[byte]) continue;
        Cursor next = cursor;
        if (!json_.step(next, static_cast<std::uint8_t>(byte))) continue;
        if (found.size() == most) return {};
        found.push_back(byte);
    }
    return found;
}

std::vector<Committed> Masks::committed(const Cursor& cursor) {
    std::vector<Committed> out;
    Cursor other = cursor;
    other.at.lo = other.at.hi = 0;
    bool text = (cursor.mode == Mode::Text || cursor.mode == Mode::Key) && cursor.escape == escape::None;
    if (!(text || cursor.mode == Mode::Raw) || !json_.text_live(other, other.at)) {
        find_committed(vocabulary_.trie, 1, vocabulary_.trie.size(), cursor, out);
    } else if (cursor.mode != Mode::Raw && cursor.text().product.num_parts() == 1) {
        const Trie& suffixes = vocabulary_.free.all_suffixes;
        if (cursor.text().product.whole(cursor.at.state)) find_committed(suffixes, 1, suffixes.size(), other, out);
    } else {
        find_committed_inside(other, out);
    }
    return out;
}

// Inside a text under patterns what is forced depends on the state alone.
void Masks::find_committed_inside(const Cursor& cursor, std::vector<Committed>& out) {
    const Trie& trie = vocabulary_.trie;
    TextSpec& text = cursor.text();
    bool raw = cursor.mode == Mode::Raw;
    std::unordered_map<std::uint64_t, std::pair<bool, std::vector<int>>> known;  // whether live, and the few ways on
    std::array<int, 256> states, chars;
    states[0] = cursor.at.state, chars[0] = 0;
    for (int node = 1; node < trie.size();) {
        int depth = trie.depths[node], before = states[depth - 1];
        std::uint8_t byte = trie.bytes[node];
        int state = text.product.step(before, byte);
        chars[depth] = chars[depth - 1] + ((byte & 0xC0) != 0x80);
        states[depth] = state;
        if (!raw && (byte < 0x20 || byte == '"' || byte == '\\')) {
            Cursor at = cursor;
            at.at = later(cursor, before, chars[depth - 1]);
            if (byte == '"') find_committed(trie, node, trie.end[node], at, out);
            state = -1;
        }
        if (state < 0) {
            node = trie.end[node];
            continue;
        }
        auto [found, fresh] =
            known.try_emplace(static_cast<std::uint64_t>(state) << 32 | (text.counted ? chars[depth] : 0));
        Cursor at = cursor;
        if (fresh || !found->second.second.empty()) at.at = later(cursor, state, chars[depth]);
        if (fresh) {
            bool live = json_.text_live(at, at.at);
            found->second = {live, live ? few_bytes(at, kMostWays) : std::vector<int>{}};
        }
        const auto& [live, ways] = found->second;
        bool longer = !ways.empty() && trie.child(node, static_cast<std::uint8_t>(ways[0])) >= 0;
        if (longer) add_committed(trie, node, at, out);
        node = live ? node + 1 : trie.end[node];
    }
}

void Masks::add_committed(const Trie& trie, int node, const Cursor& cursor, std::vector<Committed>& out) {
    if (trie.tokens_begin(node) == trie.tokens_end(node)) return;
    std::vector<std::string> ways;
    for (int byte : few_bytes(cursor, kMostWays)) {
        if (trie.child(node, static_cast<std::uint8_t>(byte)) < 0) return;
        add_ways(cursor, byte, "", ways);
    }
    if (!ways.empty()) out.push_back({{trie.tokens_begin(node), trie.tokens_end(node)}, std::move(ways)});
}

// What may begin with a byte. Behind a closing bracket another one may come, which a tokenizer would cut with it.
void Masks::add_ways(Cursor cursor, int byte, std::string way, std::vector<std::string>& out) {
    way += forced_after(cursor, byte);
    bool closes = way.size() < 3 && (way.back() == '}' || way.back() == ']');
    std::vector<int> next = closes ? few_bytes(cursor, kMostWays) : std::vector<int>{};
    for (int after : next) add_ways(cursor, after, way, out);
    if (next.empty()) out.push_back(std::move(way));
}

// A byte and what must come after it; moves the cursor there.
std::string Masks::forced_after(Cursor& cursor, int byte) {
    constexpr std::size_t kEnough = 24;  // forced bytes that tell how a tokenizer would cut
    std::string out;
    for (; out.size() < kEnough && byte >= 0; byte = forced_byte(cursor)) {
        json_.step(cursor, static_cast<std::uint8_t>(byte));
        out.push_back(static_cast<char>(byte));
    }
    return out;
}

void Masks::find_committed(const Trie& trie, int first, int last, const Cursor& cursor, std::vector<Committed>& out) {
    std::vector<Cursor> stack{cursor};
    int base = first < last ? trie.depths[first] - 1 : 0;
    for (int node = first; node < last;) {
        stack.resize(std::min<std::size_t>(stack.size(), trie.depths[node] - base));
        Cursor next = stack.back();
        bool fits = plausible(next.mode)[trie.bytes[node]] && json_.step(next, trie.bytes[node]);
        // Nothing is forced inside a text that is not of a list.
        bool free = fits && (next.mode == Mode::Text || next.mode == Mode::Key) && next.at.lo >= next.at.hi;
        if (!fits || free) {
            node = trie.end[node];
            continue;
        }
        if (trie.end[node] > node + 1) {
            add_committed(trie, node, next, out);
            stack.push_back(std::move(next));
        }
        ++node;
    }
}

}  // namespace sapwood
