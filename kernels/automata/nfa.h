// Regular expressions as trees over code points, and as non-deterministic automata over UTF-8 bytes.
#pragma once

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

enum class Op : std::uint8_t { Byte, Split, Begin, End, Look, Match };

struct Inst {
    Op op;
    std::uint8_t lo = 0, hi = 0;  // Byte
    int next = -1, other = -1;    // other: Split's second way, Look's index
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
    std::vector<Inst> insts;
    int start = -1;
    bool sticky = false;  // once matched, whatever follows: Search, Prefix
    std::vector<LookAround> looks;
};

std::shared_ptr<Nfa> build_nfa(const RegexTree& tree, int root, Span span, Budget& budget);

}  // namespace sapwood
