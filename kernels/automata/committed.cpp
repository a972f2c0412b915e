// Which tokens leave only one way for what follows them.

#include <array>
#include <bitset>
#include <unordered_map>

#include "mask.h"

namespace sapwood {

int Masks::forced_byte(const Cursor& cursor) {
    if (json_.may_end(cursor)) return -1;
    const std::bitset<256>& possible = plausible(cursor.mode);
    int found = -1;
    for (int byte = 0; byte < 256; ++byte) {
        if (!possible[byte]) continue;
        Cursor next = cursor;
        if (!json_.step(next, static_cast<std::uint8_t>(byte))) continue;
        if (found >= 0) return -1;
        found = byte;
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
    std::unordered_map<std::uint64_t, std::pair<bool, int>> known;  // whether live, and the byte that is forced
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
        if (fresh || found->second.second >= 0) at.at = later(cursor, state, chars[depth]);
        if (fresh) {
            bool live = json_.text_live(at, at.at);
            found->second = {live, live ? forced_byte(at) : -1};
        }
        auto [live, forced] = found->second;
        bool longer = forced >= 0 && trie.child(node, static_cast<std::uint8_t>(forced)) >= 0;
        if (longer) add_committed(trie, node, at, out);
        node = live ? node + 1 : trie.end[node];
    }
}

void Masks::add_committed(const Trie& trie, int node, const Cursor& cursor, std::vector<Committed>& out) {
    constexpr std::size_t kEnough = 8;  // forced bytes that tell how a tokenizer would cut
    if (trie.tokens_begin(node) == trie.tokens_end(node)) return;
    std::string forced;
    Cursor at = cursor;
    for (int byte; forced.size() < kEnough && (byte = forced_byte(at)) >= 0;
         forced.push_back(static_cast<char>(byte))) {
        if (forced.empty() && trie.child(node, static_cast<std::uint8_t>(byte)) < 0) return;
        json_.step(at, static_cast<std::uint8_t>(byte));
    }
    if (!forced.empty()) out.push_back({{trie.tokens_begin(node), trie.tokens_end(node)}, forced});
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
