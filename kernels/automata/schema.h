// A JSON Schema as a graph of assertions, and what is left of it for a value of a known kind.
//
//     node   one assertion or a combination of nodes; the graph may have cycles through the children of values
//     roots  the nodes that apply to one value: all of them must hold, or each one's verdict is wanted
//     plan   roots for one kind of value: combinations over the few assertions that can still fail
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "decimal.h"
#include "product.h"

namespace sapwood {

enum class Kind : std::uint8_t { Object, Array, Text, Number, True, False, Null };
constexpr int kNumKinds = 7;

// Three-valued: what is known while a value is being written.
enum class Tri : std::int8_t { No, Maybe, Yes };
inline Tri operator!(Tri t) { return static_cast<Tri>(2 - static_cast<int>(t)); }
inline Tri definite(bool b) { return b ? Tri::Yes : Tri::No; }

enum class Assert : std::uint8_t {
    Yes,
    No,
    All,
    Any,
    Not,
    One,
    Ref,   // combinations
    Type,  // any kind
    Pattern,
    MinLength,
    MaxLength,
    InTexts,  // texts
    Integer,
    Minimum,
    AboveMinimum,
    Maximum,
    BelowMaximum,
    MultipleOf,
    InNumbers,  // numbers
    Has,
    MinProperties,
    MaxProperties,
    Properties,
    Names,
    UnevaluatedProperties,  // objects
    MinItems,
    MaxItems,
    Items,
    Contains,
    Unique,
    UnevaluatedItems,  // arrays
};

// A part of an object or array that counts as evaluated where `condition` (a node; -1: always) holds.
struct Evaluator {
    int condition = -1;
    std::vector<std::string> keys;
    std::vector<int> patterns;
    long items = 0;     // the first items
    bool all = false;   // every key or item
    int contains = -1;  // items that this node accepts
};

struct Node {
    explicit Node(Assert what) : what(what) {}

    Assert what;
    std::vector<int> children;       // of combinations; key_nodes, pattern_nodes; prefix items; Names, Contains: one
    int other = -1;                  // Properties, Items, Unevaluated*: the node for the rest
    std::uint8_t kinds = 0;          // Type: bit per Kind
    bool otherwise = true;           // the verdict on kinds that the assertion is not about
    long count = 0, limit = -1;      // lengths and counts; Contains: at least, at most (-1: any)
    std::vector<std::string> texts;  // InTexts, Has (one), Properties
    std::vector<int> patterns;       // Pattern (one), Properties
    std::vector<Decimal> numbers;    // one, or InNumbers
    std::vector<std::string> spellings;  // InNumbers: how they may be written
    std::vector<Evaluator> evaluators;
};

enum class Combine : std::uint8_t { Yes, No, All, Any, Not, One, Atom };

struct PlanNode {
    Combine how;
    std::vector<int> children;
    int atom = -1;
};

struct Plan;

struct Roots {
    std::vector<int> nodes;
    bool must;  // all have to hold; a plan then has one verdict, else one for each node
    std::array<std::unique_ptr<Plan>, kNumKinds> plans;
    int satisfiable = -1;  // -1: not known
    bool visiting = false;
    std::array<std::int8_t, kNumKinds> kinds{-1, -1, -1, -1,
                                             -1, -1, -1};  // satisfiable by a value of the kind; -1: not known
    long num_values = -1;  // how many values satisfy the roots, if counted; kMany otherwise
    static constexpr long kMany = 1l << 40;
};

struct TextSpec;
struct NumberSpec;
struct ObjectSpec;
struct ArraySpec;

struct Plan {
    Plan();
    ~Plan();
    Kind kind;
    const Roots* roots;
    std::vector<PlanNode> nodes;    // children come first
    std::vector<int> verdicts;      // nodes
    std::vector<int> atoms;         // Nodes of the schema
    std::vector<bool> hard;         // by atom: fails alone => the verdict of `must` roots fails
    bool simple = false;            // must, and nothing but hard atoms
    std::map<int, int> conditions;  // schema nodes that evaluators ask for, as plan nodes
    std::unique_ptr<TextSpec> text;
    std::unique_ptr<NumberSpec> number;
    std::unique_ptr<ObjectSpec> object;
    std::unique_ptr<ArraySpec> array;

    bool impossible() const { return roots->must && nodes[verdicts[0]].how == Combine::No; }
    // Fills `verdict` (one for each of `verdicts`) from one value an atom.
    void evaluate(const std::vector<Tri>& atom_values, std::vector<Tri>& verdict) const;
    // All nodes, for conditions inside the plan.
    void evaluate_nodes(const std::vector<Tri>& atom_values, std::vector<Tri>& values) const;
};

struct Layout {
    bool compact = true;     // no blanks, one spelling of each text and number
    bool any_order = false;  // keys in any order, else in that of the schema
};

struct PatternSource {
    RegexTree tree;
    int root;
    Span span;
};

class Schema {
public:
    Schema(Layout layout, std::size_t max_bytes);
    ~Schema();

    int add(Node node) {
        budget.charge_bytes(sizeof(Node) + 32 * node.texts.size());
        nodes_.push_back(std::move(node));
        return static_cast<int>(nodes_.size()) - 1;
    }
    void bind(int ref, int target) { nodes_[ref].children = {target}; }
    int add_pattern(PatternSource source) {
        patterns_.push_back({std::move(source), nullptr});
        return static_cast<int>(patterns_.size()) - 1;
    }
    // Throws std::invalid_argument when a node refers to itself without a value in between; returns that node.
    int find_cycle() const;

    const Node& node(int id) const { return nodes_[id]; }
    int target(int id) const;  // follows Ref
    Dfa& dfa(int pattern);
    Product& product(const std::vector<int>& patterns);
    const Roots* roots(std::vector<int> nodes, bool must);
    const Plan& plan(const Roots* roots, Kind kind);
    bool satisfiable(const Roots* roots);
    bool satisfiable(const Roots* roots, Kind kind);  // of `must` roots
    long num_values(const Roots* roots);
    bool verdict_on_text(int node, const std::string& text);

    const Layout layout;
    Budget budget;

private:
    struct Pattern {
        PatternSource source;
        std::unique_ptr<Dfa> dfa;
    };
    friend class Lowering;
    bool kind_satisfiable(const Roots* roots, Kind kind);

    std::deque<Node> nodes_;  // references to nodes stay valid
    std::vector<Pattern> patterns_;
    std::unique_ptr<Dfa> utf8_;
    std::map<std::vector<int>, std::unique_ptr<Product>> products_;
    std::map<std::pair<std::vector<int>, bool>, std::unique_ptr<Roots>> roots_;
    bool guessed_ = false;  // a search for satisfiability met itself
    int depth_ = 0;
};

}  // namespace sapwood
