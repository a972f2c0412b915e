// Which tokens leave only few ways for what follows them.

#include <bitset>
#include <cctype>
#include <set>
#include <utility>

#include "mask.h"

namespace sapwood {
namespace {

bool letter(int byte) { return byte >= 0x80 || std::isalnum(byte); }

}  // namespace

int Masks::forced_byte(const Cursor& cursor) {
    std::vector<int> found = few_bytes(cursor, 1);
    return found.empty() ? -1 : found[0];
}

// Whether nothing but the texts of a list can come of what is being written.
bool Masks::in_list(const Cursor& cursor) {
    if (!cursor.at_character() || cursor.at.lo >= cursor.at.hi) return false;
    Cursor other = cursor;
    other.at.lo = other.at.hi = 0;
    return !json_.text_live(other, other.at);
}

// What may come next of a list's texts: of themselves, a quote behind a complete one, or the begin of an escape.
std::bitset<256> Masks::list_bytes(const Cursor& cursor) {
    const TextList& list = cursor.text().list;
    std::bitset<256> out = list.next_bytes(cursor.at);
    if (cursor.mode == Mode::Raw) return out;
    for (int byte = 0; byte < 256; ++byte) out[byte] = out[byte] && byte >= 0x20 && byte != '"';
    bool escaped = out != list.next_bytes(cursor.at) || !json_.schema.layout.compact;
    out['\\'] = out['\\'] || escaped;
    out['"'] = list.complete(cursor.at) >= 0;
    return out;
}

// The bytes that may come; none if the text may end, if there are more than `most`, or several that aren't all letters.
std::vector<int> Masks::few_bytes(const Cursor& cursor, std::size_t most) {
    std::vector<int> found;
    if (json_.may_end(cursor)) return found;
    std::bitset<256> possible = plausible(cursor.mode);
    if (in_list(cursor)) possible &= list_bytes(cursor);
    bool inside = cursor.at_character() && cursor.at.lo >= cursor.at.hi;
    std::set<std::pair<int, bool>> dead;  // states, and whether within a character, that some byte led to in vain
    for (int byte = 0; byte < 256; ++byte) {
        if (!possible[byte]) continue;
        bool plain = inside && (cursor.mode == Mode::Raw || (byte >= 0x20 && byte != '"' && byte != '\\'));
        std::pair<int, bool> state{-1, (byte & 0xC0) == 0x80};
        if (plain) state.first = cursor.text().product.step(cursor.at.state, static_cast<std::uint8_t>(byte));
        if (plain && (state.first < 0 || dead.count(state))) continue;
        Cursor next = cursor;
        if (!json_.step(next, static_cast<std::uint8_t>(byte))) {
            if (plain) dead.insert(state);
            continue;
        }
        if (found.size() == most || (!found.empty() && !(letter(found[0]) && letter(byte)))) return {};
        found.push_back(byte);
    }
    return found;
}

std::vector<Committed> Masks::committed(const Cursor& cursor) {
    std::vector<Committed> out;
    Cursor other = cursor;
    other.at.lo = other.at.hi = 0;
    if (!cursor.at_character() || !json_.text_live(other, other.at)) {
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
    if (visited().place != place_of(cursor)) visit_exactly(cursor);
    Visited seen = std::exchange(visited(), {});  // what is found out below may look at other texts
    auto at = [&](int state, int chars) {
        Cursor there = cursor;
        there.at = later(cursor, state, chars);
        return there;
    };
    for (const auto& [node, state, chars] : seen.exits)
        if (trie.bytes[node] == '"') find_committed(trie, node, trie.end[node], at(state, chars), out);
    constexpr int kMany = -2;
    ByState<int> firsts = by_state<int>(cursor);  // the first of the few bytes that may follow
    for (int node = 1; node < trie.size(); ++node) {
        int state = seen.states[node], chars = seen.chars[node];
        if (state < 0 || trie.end[node] == node + 1) continue;
        int& first = firsts.at(state, chars);
        if (first == -1) {
            bool whole = cursor.text().product.whole(state);  // tokens that end inside a character are left alone
            std::vector<int> ways = whole ? few_bytes(at(state, chars), kMostWays) : std::vector<int>{};
            first = ways.empty() ? kMany : ways[0];
        }
        bool longer = first >= 0 && trie.child(node, static_cast<std::uint8_t>(first)) >= 0;
        if (longer) add_committed(trie, node, at(state, chars), out);
    }
    visited() = std::move(seen);
}

void Masks::add_committed(const Trie& trie, int node, const Cursor& cursor, std::vector<Committed>& out) {
    if (trie.tokens_begin(node) == trie.tokens_end(node)) return;
    std::vector<std::string> ways;
    for (int byte : few_bytes(cursor, kMostWays)) {
        if (trie.child(node, static_cast<std::uint8_t>(byte)) < 0) return;
        if (!add_way(cursor, byte, ways)) return;
    }
    if (!ways.empty()) out.push_back({{trie.tokens_begin(node), trie.tokens_end(node)}, std::move(ways)});
}

// What may begin with a byte. Behind a closing bracket another one may come, which a tokenizer would cut with it: false
// if that is open.
bool Masks::add_way(Cursor cursor, int byte, std::vector<std::string>& out) {
    std::string way = forced_after(cursor, byte);
    bool closes = way.size() < 3 && (way.back() == '}' || way.back() == ']');
    if (closes && !json_.may_end(cursor)) return false;
    out.push_back(std::move(way));
    return true;
}

// A byte and what must come after it, as far as it tells how a tokenizer would cut: a word and the byte behind it, or
// some punctuation. Moves the cursor there.
std::string Masks::forced_after(Cursor& cursor, int byte) {
    constexpr std::size_t kLongWord = 24, kPunctuation = 4;
    bool word = letter(byte);
    std::string out;
    for (; byte >= 0 && out.size() < (word ? kLongWord : kPunctuation); byte = forced_byte(cursor)) {
        json_.step(cursor, static_cast<std::uint8_t>(byte));
        out.push_back(static_cast<char>(byte));
        if (word && !letter(byte)) break;
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
