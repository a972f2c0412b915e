// Regular expressions as trees over code points, and as non-deterministic automata over UTF-8 bytes.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "budget.h"

namespace sapwood {

using CodePoints = std::vector<std::pair<std::uint32_t, std::uint32_t>>;  // inclusive ranges, ascending

enum class Regex : std::uint8_t { Set, Cat, Alt, Repeat, Begin, End, Look };

struct RegexNode {
    Regex kind = Regex::Cat;
    CodePoints set{};                       // Set
    std::vector<int> children{};            // Cat, Alt; Repeat and Look have one
    int min = 0, max = 0;                   // Repeat; max -1: unbounded
    bool behind = false, negative = false;  // Look
};

using RegexTree = std::vector<RegexNode>;  // children come before their parents

enum class Op : std::uint8_t { Byte, Set, Split, Begin, End, Look, Match };

struct Inst {
    Op op;
    std::uint8_t lo = 0, hi = 0;  // Byte
    int next = -1, other = -1;    // other: Split's second way, Look's index, Set's row
};

// One state of the automaton of a class of characters: where each byte leads.
struct SetRow {
    static constexpr int kNone = -1, kWhole = -2;  // no such character; the character is whole
    std::array<std::int16_t, 256> to;              // else another row
    bool operator<(const SetRow& o) const { return to < o.to; }
};

struct Nfa;

struct LookAround {
    std::shared_ptr<Nfa> body;
    bool behind, negative;
};

// Where a match may lie in the text.
enum class Span : std::uint8_t {
    Whole,   // from the first byte to the last
    Search,  // anywhere
    Prefix,  // from the first byte
    Suffix,  // ends at the byte last read
};

struct Nfa {
    // Where a byte leads from a Byte or a Set; -1: nowhere. The rows of a class have instructions side by side.
    int after(int pc, std::uint8_t byte) const {
        const Inst& inst = insts[pc];
        if (inst.op == Op::Byte) return inst.lo <= byte && byte <= inst.hi ? inst.next : -1;
        if (inst.op != Op::Set) return -1;
        int row = rows[inst.other].to[byte];
        return row >= 0 ? pc + row - inst.other : row == SetRow::kWhole ? inst.next : -1;
    }

    std::vector<Inst> insts;
    std::vector<SetRow> rows;
    int start = -1;
    bool sticky = false;  // once matched, whatever follows: Search, Prefix
    std::vector<LookAround> looks;
};

std::shared_ptr<Nfa> build_nfa(const RegexTree& tree, int root, Span span, Budget& budget);

}  // namespace sapwood
