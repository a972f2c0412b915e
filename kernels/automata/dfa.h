// Deterministic automata over bytes, built as they are walked.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "nfa.h"

namespace sapwood {

struct WordsHash {
    std::size_t operator()(const std::vector<int>& words) const {
        std::uint64_t h = 0x9E3779B97F4A7C15ull;
        for (int w : words) h = (h ^ static_cast<std::uint32_t>(w)) * 0xFF51AFD7ED558CCDull, h ^= h >> 32;
        return h;
    }
};

// The subset construction of one Nfa. A state is a set of threads; a thread carries the look-aheads that it still owes,
// each followed by an automaton of its own. Look-behinds are followed beside the threads.
class Dfa {
public:
    static constexpr int kDead = 0;  // no match can follow
    static constexpr int kAll = 1;   // matched, whatever follows

    Dfa(std::shared_ptr<Nfa> nfa, Budget& budget);

    int start();
    int step(int state, std::uint8_t byte) {
        int next = table_[state * num_classes_ + classes_[byte]];
        return next >= 0 ? next : compute(state, byte);
    }
    bool matched(int state) const { return flags_[state] & kMatched; }     // if the text goes on
    bool accepts(int state) const { return flags_[state] & kAcceptsEnd; }  // if the text ends here
    bool live(int state);                                                  // some text from here is accepted
    const std::array<std::uint8_t, 256>& classes() const { return classes_; }
    int num_classes() const { return num_classes_; }
    const std::vector<std::uint8_t>& representatives() const { return representatives_; }

private:
    enum : std::uint8_t { kMatched = 1, kAcceptsEnd = 2, kLive = 4, kKnown = 8 };
    struct Thread {
        int pc;
        std::vector<int> owed;  // pairs (look, its state)
        bool operator<(const Thread& o) const { return pc != o.pc ? pc < o.pc : owed < o.owed; }
        bool operator==(const Thread& o) const { return pc == o.pc && owed == o.owed; }
    };
    struct State {
        std::vector<Thread> threads;  // at Byte, Match or End
        std::vector<int> behind;      // a state for each look-behind
    };

    int compute(int state, std::uint8_t byte);
    int intern(std::vector<Thread> threads, std::vector<int> behind, bool at_start);
    bool search_live(int state);
    void close(std::vector<Thread>& threads, const std::vector<int>& behind, bool at_start, bool at_end);
    bool owe(Thread& thread, int look);
    bool owes_nothing_at_end(const Thread& thread);
    bool advance_owed(Thread& thread, std::uint8_t byte);
    void find_classes();

    std::shared_ptr<Nfa> nfa_;
    Budget& budget_;
    std::vector<std::unique_ptr<Dfa>> looks_;  // for each look-around
    std::vector<State> states_;
    std::vector<std::uint8_t> flags_;
    std::vector<int> table_;  // [state][class]; -1: not computed
    std::unordered_map<std::vector<int>, int, WordsHash> ids_;
    std::array<std::uint8_t, 256> classes_;
    std::vector<std::uint8_t> representatives_;
    int num_classes_ = 1;
    int start_ = -1;
    std::vector<int> mark_;  // scratch of close(): the round in which a pc was seen without debts
    int round_ = 0;
};

}  // namespace sapwood
