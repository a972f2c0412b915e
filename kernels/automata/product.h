// Several automata walked in step, and the UTF-8 checker that every text walks along with.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "dfa.h"

namespace sapwood {

// A state is a number; `parts(state)` are the states of the component automata. Part 0 checks UTF-8.
class Product {
public:
    Product(std::vector<Dfa*> dfas, Budget& budget);

    int start() const { return 0; }
    // kNone when the bytes can't become UTF-8.
    static constexpr int kNone = -1;
    int step(int state, std::uint8_t byte) {
        int next = table_[state * num_classes_ + classes_[byte]];
        return next != kUnknown ? next : compute(state, byte);
    }
    // Between two characters.
    bool whole(int state) { return dfas_[0]->accepts(parts_[state][0]); }
    const std::vector<int>& parts(int state) const { return parts_[state]; }
    Dfa& dfa(int part) { return *dfas_[part]; }
    int num_parts() const { return static_cast<int>(dfas_.size()); }
    int num_classes() const { return num_classes_; }
    std::uint8_t representative(int cls) const { return representatives_[cls]; }
    const std::array<std::uint8_t, 256>& classes() const { return classes_; }

private:
    static constexpr int kUnknown = -2;
    int compute(int state, std::uint8_t byte);
    int intern(std::vector<int> parts);

    std::vector<Dfa*> dfas_;
    Budget& budget_;
    std::vector<std::vector<int>> parts_;
    std::vector<int> table_;
    std::unordered_map<std::vector<int>, int, WordsHash> ids_;
    std::array<std::uint8_t, 256> classes_;
    std::vector<std::uint8_t> representatives_;
    int num_classes_ = 0;
};

}  // namespace sapwood
