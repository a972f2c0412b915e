// Texts under a plan: patterns, lengths and lists, followed byte by byte of the decoded text.
#pragma once

#include <bitset>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "schema.h"

namespace sapwood {

struct TextState {
    int lo = 0, hi = 0;  // the texts of the list that begin so; empty: the text is not of the list
    int depth = 0;       // bytes in common with them
    int state = 0;       // of the product
    int chars = 0;       // characters so far, counted up to what matters
};

// A sorted list of texts of which a prefix is known.
struct TextList {
    std::vector<std::string> texts;

    void narrow(TextState& at, std::uint8_t byte) const;
    std::bitset<256> next_bytes(const TextState& at) const;
    // The index of the text that is complete, -1 if none is.
    int complete(const TextState& at) const {
        return at.lo < at.hi && static_cast<int>(texts[at.lo].size()) == at.depth ? at.lo : -1;
    }
};

struct TextSpec {
    TextSpec(Schema& schema, const Plan& plan);

    TextState start() const;
    // False if the bytes can't become UTF-8.
    bool step(TextState& at, std::uint8_t byte) {
        at.state = product.step(at.state, byte);
        if (at.state < 0) return false;
        if (at.lo < at.hi) list.narrow(at, byte);
        if (at.chars < counted && (byte & 0xC0) != 0x80) ++at.chars;
        return true;
    }
    // What is known of each atom; `closed`: the text ends here.
    void atoms(const TextState& at, bool closed, std::vector<Tri>& out) const;

    // Below: for `must` roots.
    bool may_close(const TextState& at) const;
    bool may_go_on(const TextState& at);
    bool live(int state, int chars);  // some text that is not of the list may follow
    bool listed_ok(int index) const { return ok_before_[index + 1] > ok_before_[index]; }
    bool satisfiable() { return may_go_on(start()); }
    long num_values();

    std::vector<Tri> verdicts_on(const std::string& text);

    Schema& schema;
    const Plan& plan;
    Product& product;
    TextList list;
    int counted = 0;         // lengths beyond this don't matter
    int min_length = 0;      // the longest that some atom asks for
    int max_length = -1;     // the longest limit of any atom; -1: none
    int shortest_max = -1;   // the shortest; -1: none
    bool only_list = false;  // no text outside of the list can satisfy

private:
    static std::vector<int> patterns_of(const Schema& schema, const Plan& plan);
    bool search_live(int state, int chars);

    std::vector<int> part_;                  // by atom: its part of the product
    std::vector<std::vector<bool>> member_;  // by atom: which texts are in its list
    std::vector<int> ok_before_;             // prefix counts of texts that satisfy
    std::unordered_map<std::uint64_t, bool> live_;
    std::vector<std::int8_t> live_by_state_;  // where lengths don't matter
};

}  // namespace sapwood
