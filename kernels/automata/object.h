// What the plans of objects and arrays know before any value is read: keys, which nodes apply to the value of a key or
// to an item, and whether such a value can exist.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "schema.h"
#include "text.h"

namespace sapwood {

// An assertion of the plan asks its `node` of a child value. `clause`: or else one of these conditions has to hold.
struct Ask {
    int atom;
    int node;
    std::vector<int> clause;                // plan nodes; only of Unevaluated*
    std::vector<std::pair<int, int>> ways;  // or else this node accepts the item, under this plan node (-1: always)
};

struct Outcome {
    std::vector<Ask> asks;
    std::vector<int> failed;      // Names atoms that refuse the key
    const Roots* firm = nullptr;  // what the child must satisfy, where each asked node has to hold
    bool possible = true;         // under the hard assertions alone, judged lazily:
    bool judged = false;
};

using KnownLive = std::unordered_map<std::uint64_t, bool>;  // by state and length of a text

struct ObjectSpec {
    ObjectSpec(Schema& schema, const Plan& plan);

    int num_keys() const { return static_cast<int>(keys.size()); }
    Outcome& of_key(int key);                                            // a known key
    Outcome& of_text(const TextState& at);                               // a complete key that is not known
    int known(const TextState& at) const;                                // the known key that is complete, -1: none
    int listed_key(int listed) const { return key_of_listed_[listed]; }  // by index in the list of `text`
    bool possible(Outcome& outcome);
    // Whether some unknown key begins so and is `allowed`. What was found is kept in `known`.
    bool other_key_live(const TextState& at, const std::function<bool(Outcome&)>& allowed, KnownLive& known);
    bool other_key_live(const TextState& at) {
        return other_key_live(at, [this](Outcome& outcome) { return possible(outcome); }, live_);
    }
    bool other_keys() { return other_key_live(text->start()); }

    Schema& schema;
    const Plan& plan;
    std::vector<std::string> keys;  // in the schema's order
    TextSpec* text;                 // patterns, names and known keys, each with its verdict
    std::vector<int> key_of_atom;   // by atom: the key that Has asks for
    bool plain = true;              // no pattern and no name assertion: all unknown keys are alike

private:
    using Matches = std::function<bool(int)>;  // whether a pattern is found in the key
    void ask_properties(int atom, int key, const Matches& matches, Outcome& outcome);
    void ask_unevaluated(int atom, int key, const Matches& matches, Outcome& outcome);
    Outcome& of_verdicts(int key, const std::vector<Tri>& verdicts);
    void collect_keys();
    int verdict_index(int node) const;

    std::vector<int> key_of_listed_;  // by index in text->list
    std::vector<Outcome*> key_outcomes_;
    std::map<std::vector<int>, Outcome> outcomes_;
    std::map<int, int> pattern_verdict_, names_verdict_;  // pattern, atom -> index of the verdict
    KnownLive live_;
};

struct ArraySpec {
    ArraySpec(Schema& schema, const Plan& plan);
    Outcome& of_item(long index);
    bool possible(Outcome& outcome);
    long most_items();  // under the hard assertions; Roots::kMany: any number

    Schema& schema;
    const Plan& plan;
    long alike_from = 0;  // items from here on are treated alike
    bool unique = false;

private:
    std::map<long, Outcome> outcomes_;
    long most_ = -1;
};

bool object_satisfiable(Schema& schema, const Plan& plan);
bool array_satisfiable(Schema& schema, const Plan& plan);

}  // namespace sapwood
