#include "schema.h"

#include <algorithm>
#include <functional>

#include "number.h"
#include "object.h"
#include "text.h"

namespace sapwood {

Plan::Plan() = default;
Plan::~Plan() = default;

void Plan::evaluate_nodes(const std::vector<Tri>& atom_values, std::vector<Tri>& values) const {
    values.resize(nodes.size());
    for (std::size_t i = 0; i < nodes.size(); ++i) {
        const PlanNode& node = nodes[i];
        Tri value = Tri::Yes;
        int yes = 0, maybe = 0;
        switch (node.how) {
            case Combine::Yes: break;
            case Combine::No: value = Tri::No; break;
            case Combine::Atom: value = atom_values[node.atom]; break;
            case Combine::Not: value = !values[node.children[0]]; break;
            case Combine::All:
                for (int child : node.children) value = std::min(value, values[child]);
                break;
            case Combine::Any:
                value = Tri::No;
                for (int child : node.children) value = std::max(value, values[child]);
                break;
            case Combine::One:
                for (int child : node.children) yes += values[child] == Tri::Yes, maybe += values[child] == Tri::Maybe;
                value = yes > 1 || yes + maybe == 0 ? Tri::No : maybe == 0 ? Tri::Yes : Tri::Maybe;
        }
        values[i] = value;
    }
}

void Plan::evaluate(const std::vector<Tri>& atom_values, std::vector<Tri>& verdict) const {
    if (simple) {
        Tri all = Tri::Yes;
        for (Tri value : atom_values) all = std::min(all, value);
        verdict.assign(1, all);
        return;
    }
    std::vector<Tri> values;
    evaluate_nodes(atom_values, values);
    verdict.clear();
    for (int node : verdicts) verdict.push_back(values[node]);
}

Schema::Schema(Layout layout, std::size_t max_bytes) : layout(layout), budget(max_bytes) {
    RegexTree tree(2);
    tree[0].kind = Regex::Set;
    tree[0].set = {{0, 0x10FFFF}};
    tree[1].kind = Regex::Repeat;
    tree[1].children = {0};
    tree[1].max = -1;
    utf8_ = std::make_unique<Dfa>(build_nfa(tree, 1, Span::Whole, budget), budget);
}

Schema::~Schema() = default;

int Schema::target(int id) const {
    while (nodes_[id].what == Assert::Ref) id = nodes_[id].children[0];
    return id;
}

int Schema::find_cycle() const {
    std::vector<std::uint8_t> color(nodes_.size(), 0);  // 1: on the path, 2: done
    for (std::size_t first = 0; first < nodes_.size(); ++first) {
        if (color[first]) continue;
        std::vector<std::pair<int, std::size_t>> path{{static_cast<int>(first), 0}};
        color[first] = 1;
        while (!path.empty()) {
            auto& [id, next] = path.back();
            const Node& node = nodes_[id];
            bool combination = node.what <= Assert::Ref;
            if (!combination || next == node.children.size()) {
                color[id] = 2;
                path.pop_back();
                continue;
            }
            int child = node.children[next++];
            if (color[child] == 1) return child;
            if (color[child] == 0) color[child] = 1, path.emplace_back(child, 0);
        }
    }
    return -1;
}

Dfa& Schema::dfa(int pattern) {
    Pattern& p = patterns_[pattern];
    if (!p.dfa) p.dfa = std::make_unique<Dfa>(build_nfa(p.source.tree, p.source.root, p.source.span, budget), budget);
    return *p.dfa;
}

Product& Schema::product(const std::vector<int>& patterns) {
    auto& found = products_[patterns];
    if (!found) {
        std::vector<Dfa*> dfas{utf8_.get()};
        for (int pattern : patterns) dfas.push_back(&dfa(pattern));
        found = std::make_unique<Product>(std::move(dfas), budget);
    }
    return *found;
}

// Must roots are flattened, so that the same obligations are found to be the same.
const Roots* Schema::roots(std::vector<int> nodes, bool must) {
    std::vector<int> flat;
    std::vector<int> todo(nodes.rbegin(), nodes.rend());
    while (!todo.empty()) {
        int id = target(todo.back());
        todo.pop_back();
        budget.tick();
        const Node& node = nodes_[id];
        if (must && node.what == Assert::All) {
            todo.insert(todo.end(), node.children.rbegin(), node.children.rend());
        } else if (!(must && node.what == Assert::Yes)) {
            flat.push_back(id);
        }
    }
    std::sort(flat.begin(), flat.end());
    flat.erase(std::unique(flat.begin(), flat.end()), flat.end());
    auto& found = roots_[{flat, must}];
    if (!found) {
        budget.charge_bytes(sizeof(Roots) + 8 * flat.size());
        found = std::make_unique<Roots>();
        found->nodes = std::move(flat);
        found->must = must;
    }
    return found.get();
}

// Builds a plan: the combinations over one kind's assertions, simplified.
class Lowering {
public:
    Lowering(Schema& schema, Plan& plan) : schema_(schema), plan_(plan) {}

    void run() {
        std::vector<int> tops;
        for (int root : plan_.roots->nodes) tops.push_back(lower(root));
        if (plan_.roots->must) tops = {combine(Combine::All, std::move(tops))};
        plan_.verdicts = std::move(tops);
        find_hard();
    }

    int lower(int id) {
        id = schema_.target(id);
        if (auto found = done_.find(id); found != done_.end()) return found->second;
        schema_.budget.tick();
        int result = lower_fresh(schema_.node(id), id);
        done_[id] = result;
        return result;
    }

private:
    int lower_fresh(const Node& node, int id) {
        switch (node.what) {
            case Assert::Yes: return constant(true);
            case Assert::No: return constant(false);
            case Assert::All: return combine(Combine::All, lower_all(node));
            case Assert::Any: return combine(Combine::Any, lower_all(node));
            case Assert::One: return combine(Combine::One, lower_all(node));
            case Assert::Not: return combine(Combine::Not, lower_all(node));
            case Assert::Type: return constant(node.kinds >> static_cast<int>(plan_.kind) & 1);
            default: break;
        }
        if (kind_of(node.what) != plan_.kind) return constant(node.otherwise);
        for (const Evaluator& evaluator : node.evaluators)
            if (evaluator.condition >= 0) plan_.conditions[evaluator.condition] = lower(evaluator.condition);
        plan_.atoms.push_back(id);
        return push({Combine::Atom, {}, static_cast<int>(plan_.atoms.size()) - 1});
    }

    static Kind kind_of(Assert what) {
        return what >= Assert::MinItems  ? Kind::Array
               : what >= Assert::Has     ? Kind::Object
               : what >= Assert::Integer ? Kind::Number
                                         : Kind::Text;
    }

    std::vector<int> lower_all(const Node& node) {
        std::vector<int> out;
        for (int child : node.children) out.push_back(lower(child));
        return out;
    }

    int push(PlanNode node) {
        schema_.budget.charge_bytes(sizeof(PlanNode) + 4 * node.children.size());
        plan_.nodes.push_back(std::move(node));
        return static_cast<int>(plan_.nodes.size()) - 1;
    }

    int constant(bool value) {
        int& at = constants_[value];
        if (at < 0) at = push({value ? Combine::Yes : Combine::No, {}});
        return at;
    }

    int combine(Combine how, std::vector<int> children) {
        auto is = [&](int id, Combine what) { return plan_.nodes[id].how == what; };
        if (how == Combine::Not) {
            if (is(children[0], Combine::Yes)) return constant(false);
            if (is(children[0], Combine::No)) return constant(true);
            if (is(children[0], Combine::Not)) return plan_.nodes[children[0]].children[0];
            return push({how, std::move(children)});
        }
        Combine neutral = how == Combine::All ? Combine::Yes : Combine::No;
        std::erase_if(children, [&](int id) { return is(id, neutral); });
        if (how == Combine::One) {
            auto yes = std::count_if(children.begin(), children.end(), [&](int id) { return is(id, Combine::Yes); });
            if (yes > 1) return constant(false);
            if (yes == 1) {  // all others have to fail
                std::erase_if(children, [&](int id) { return is(id, Combine::Yes); });
                return combine(Combine::Not, {combine(Combine::Any, std::move(children))});
            }
        } else {
            Combine decisive = how == Combine::All ? Combine::No : Combine::Yes;
            if (std::any_of(children.begin(), children.end(), [&](int id) { return is(id, decisive); }))
                return constant(how == Combine::Any);
            std::sort(children.begin(), children.end());
            children.erase(std::unique(children.begin(), children.end()), children.end());
        }
        if (children.empty()) return constant(how == Combine::All);
        if (children.size() == 1) return children[0];
        return push({how, std::move(children)});
    }

    void find_hard() {
        plan_.hard.assign(plan_.atoms.size(), false);
        if (!plan_.roots->must) return;
        std::size_t combinations = 0;
        std::vector<int> todo{plan_.verdicts[0]};
        while (!todo.empty()) {
            const PlanNode& node = plan_.nodes[todo.back()];
            todo.pop_back();
            if (node.how == Combine::All) todo.insert(todo.end(), node.children.begin(), node.children.end());
            else if (node.how == Combine::Atom) plan_.hard[node.atom] = true;
            else if (node.how != Combine::Yes) ++combinations;
        }
        bool conditional = false;  // conditions are read from the nodes
        for (int atom : plan_.atoms)
            for (const Evaluator& evaluator : schema_.node(atom).evaluators) conditional |= evaluator.condition >= 0;
        plan_.simple = combinations == 0 && !conditional &&
                       std::all_of(plan_.hard.begin(), plan_.hard.end(), [](bool hard) { return hard; });
    }

    Schema& schema_;
    Plan& plan_;
    std::map<int, int> done_;
    int constants_[2] = {-1, -1};
};

const Plan& Schema::plan(const Roots* roots, Kind kind) {
    auto& found = const_cast<Roots*>(roots)->plans[static_cast<int>(kind)];
    if (!found) {
        auto plan = std::make_unique<Plan>();
        plan->kind = kind;
        plan->roots = roots;
        Lowering lowering(*this, *plan);
        lowering.run();
        if (kind == Kind::Text) plan->text = std::make_unique<TextSpec>(*this, *plan);
        if (kind == Kind::Number) plan->number = std::make_unique<NumberSpec>(*this, *plan);
        if (kind == Kind::Object) plan->object = std::make_unique<ObjectSpec>(*this, *plan);
        if (kind == Kind::Array) plan->array = std::make_unique<ArraySpec>(*this, *plan);
        found = std::move(plan);
    }
    return *found;
}

bool Schema::kind_satisfiable(const Roots* roots, Kind kind) {
    const Plan& p = plan(roots, kind);
    if (p.impossible()) return false;
    switch (kind) {
        case Kind::Object: return object_satisfiable(*this, p);
        case Kind::Array: return array_satisfiable(*this, p);
        case Kind::Text: return p.text->satisfiable();
        case Kind::Number: return p.number->satisfiable();
        default: return true;
    }
}

// The least fixed point: a value that would have to contain itself does not exist. What was concluded while a search
// met itself is kept only if positive.
bool Schema::satisfiable(const Roots* roots) {
    if (roots->satisfiable >= 0) return roots->satisfiable;
    if (roots->visiting) return guessed_ = true, false;
    if (depth_ > 200) return true;
    const_cast<Roots*>(roots)->visiting = true;
    ++depth_;
    bool outer_guessed = guessed_;
    guessed_ = false;
    bool result = false;
    try {
        for (Kind kind : {Kind::Text, Kind::Null, Kind::True, Kind::False, Kind::Number, Kind::Array, Kind::Object})
            if (!result) result = kind_satisfiable(roots, kind);
    } catch (...) {
        const_cast<Roots*>(roots)->visiting = false;
        --depth_;
        throw;
    }
    if (result || !guessed_ || depth_ == 1) const_cast<Roots*>(roots)->satisfiable = result;
    const_cast<Roots*>(roots)->visiting = false;
    --depth_;
    guessed_ = outer_guessed || (guessed_ && !result);
    return result;
}

bool Schema::satisfiable(const Roots* roots, Kind kind) {
    std::int8_t& known = const_cast<Roots*>(roots)->kinds[static_cast<int>(kind)];
    if (known < 0) known = kind_satisfiable(roots, kind);
    return known;
}

long Schema::num_values(const Roots* roots) {
    if (roots->num_values >= 0) return roots->num_values;
    long total = 0;
    for (Kind kind : {Kind::Null, Kind::True, Kind::False}) total += !plan(roots, kind).impossible();
    for (Kind kind : {Kind::Object, Kind::Array})
        if (!plan(roots, kind).impossible() && kind_satisfiable(roots, kind)) total = Roots::kMany;
    if (total < Roots::kMany && !plan(roots, Kind::Text).impossible())
        total += plan(roots, Kind::Text).text->num_values();
    if (total < Roots::kMany && !plan(roots, Kind::Number).impossible())
        total += plan(roots, Kind::Number).number->num_values();
    const_cast<Roots*>(roots)->num_values = std::min(total, Roots::kMany);
    return roots->num_values;
}

bool Schema::verdict_on_text(int node, const std::string& text) {
    const Plan& p = plan(roots({node}, false), Kind::Text);
    return p.text->verdicts_on(text)[0] == Tri::Yes;
}

}  // namespace sapwood
