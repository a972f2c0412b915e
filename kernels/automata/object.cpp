#include "object.h"

#include <algorithm>
#include <deque>

#include "frame.h"

namespace sapwood {
namespace {

// The nodes that are asked by hard assertions without a way out.
std::vector<int> hard_nodes(const Plan& plan, const Outcome& outcome) {
    std::vector<int> nodes;
    for (const Ask& ask : outcome.asks)
        if (plan.hard[ask.atom] && ask.clause.empty() && ask.ways.empty()) nodes.push_back(ask.node);
    return nodes;
}

bool judge(Schema& schema, const Plan& plan, Outcome& outcome) {
    if (!outcome.judged) {
        bool possible =
            std::none_of(outcome.failed.begin(), outcome.failed.end(), [&](int atom) { return plan.hard[atom]; });
        outcome.possible = possible && schema.satisfiable(schema.roots(hard_nodes(plan, outcome), true));
        outcome.judged = true;
    }
    return outcome.possible;
}

void find_firm(Schema& schema, const Plan& plan, Outcome& outcome) {
    if (!plan.simple) return;
    std::vector<int> nodes;
    for (const Ask& ask : outcome.asks) {
        if (!ask.clause.empty() || !ask.ways.empty() || schema.node(plan.atoms[ask.atom]).what == Assert::Contains)
            return;
        nodes.push_back(ask.node);
    }
    outcome.firm = schema.roots(std::move(nodes), true);
}

}  // namespace

void ObjectSpec::collect_keys() {
    std::map<std::string, int> ids;
    auto add = [&](const std::string& key) {
        if (ids.try_emplace(key, num_keys()).second) keys.push_back(key);
        return ids[key];
    };
    for (int atom : plan.atoms) {
        const Node& node = schema.node(atom);
        if (node.what == Assert::Properties)
            for (const std::string& key : node.texts) add(key);
    }
    for (int atom : plan.atoms) {
        const Node& node = schema.node(atom);
        key_of_atom.push_back(node.what == Assert::Has ? add(node.texts[0]) : -1);
        for (const Evaluator& evaluator : node.evaluators)
            for (const std::string& key : evaluator.keys) add(key);
    }
    for (int atom : plan.atoms) {
        const Node& node = schema.node(atom);
        if (node.what != Assert::Names) continue;
        const Plan& names = schema.plan(schema.roots({node.children[0]}, false), Kind::Text);
        for (const std::string& key : names.text->list.texts) add(key);
    }
}

ObjectSpec::ObjectSpec(Schema& schema, const Plan& plan) : schema(schema), plan(plan) {
    collect_keys();
    schema.budget.charge_bytes(128 * keys.size());
    std::vector<int> nodes;
    Node known{Assert::InTexts};
    known.texts = keys;
    nodes.push_back(schema.add(known));
    std::map<int, int> pattern_node, names_node;
    auto watch = [&](const std::vector<int>& patterns) {
        for (int pattern : patterns) {
            if (pattern_node.count(pattern)) continue;
            Node match{Assert::Pattern};
            match.patterns = {pattern};
            nodes.push_back(pattern_node[pattern] = schema.add(match));
        }
    };
    for (std::size_t i = 0; i < plan.atoms.size(); ++i) {
        Node node = schema.node(plan.atoms[i]);
        watch(node.patterns);
        for (const Evaluator& evaluator : node.evaluators) watch(evaluator.patterns);
        if (node.what == Assert::Names)
            nodes.push_back(names_node[static_cast<int>(i)] = schema.target(node.children[0]));
    }
    plain = nodes.size() == 1;
    const Roots* roots = schema.roots(nodes, false);
    text = schema.plan(roots, Kind::Text).text.get();
    auto index = [&](int node) {
        return static_cast<int>(std::lower_bound(roots->nodes.begin(), roots->nodes.end(), node) -
                                roots->nodes.begin());
    };
    for (auto [pattern, node] : pattern_node) pattern_verdict_[pattern] = index(node);
    for (auto [atom, node] : names_node) names_verdict_[atom] = index(node);
    std::map<std::string, int> ids;
    for (int i = 0; i < num_keys(); ++i) ids[keys[i]] = i;
    for (const std::string& key : text->list.texts) key_of_listed_.push_back(ids.at(key));
    key_outcomes_.resize(num_keys());
}

Outcome& ObjectSpec::of_verdicts(int key, const std::vector<Tri>& verdicts) {
    std::vector<int> signature{key};
    for (Tri verdict : verdicts) signature.push_back(static_cast<int>(verdict));
    if (auto found = outcomes_.find(signature); found != outcomes_.end()) return found->second;
    schema.budget.charge_bytes(200);
    Outcome outcome;
    auto matches = [&](int pattern) { return verdicts[pattern_verdict_.at(pattern)] == Tri::Yes; };
    for (int atom = 0; atom < static_cast<int>(plan.atoms.size()); ++atom) {
        const Node& node = schema.node(plan.atoms[atom]);
        if (node.what == Assert::Names && verdicts[names_verdict_.at(atom)] != Tri::Yes) outcome.failed.push_back(atom);
        if (node.what == Assert::Properties) ask_properties(atom, key, matches, outcome);
        if (node.what == Assert::UnevaluatedProperties) ask_unevaluated(atom, key, matches, outcome);
    }
    find_firm(schema, plan, outcome);
    return outcomes_.emplace(std::move(signature), std::move(outcome)).first->second;
}

void ObjectSpec::ask_properties(int atom, int key, const Matches& matches, Outcome& outcome) {
    const Node& node = schema.node(plan.atoms[atom]);
    std::size_t before = outcome.asks.size();
    for (std::size_t i = 0; key >= 0 && i < node.texts.size(); ++i)
        if (node.texts[i] == keys[key]) outcome.asks.push_back({atom, node.children[i], {}, {}});
    for (std::size_t i = 0; i < node.patterns.size(); ++i)
        if (matches(node.patterns[i])) outcome.asks.push_back({atom, node.children[node.texts.size() + i], {}, {}});
    bool met = outcome.asks.size() > before;
    if (!met && node.other >= 0) outcome.asks.push_back({atom, node.other, {}, {}});
}

void ObjectSpec::ask_unevaluated(int atom, int key, const Matches& matches, Outcome& outcome) {
    const Node& node = schema.node(plan.atoms[atom]);
    Ask ask{atom, node.other, {}, {}};
    for (const Evaluator& evaluator : node.evaluators) {
        const auto& named = evaluator.keys;
        bool met = evaluator.all || (key >= 0 && std::find(named.begin(), named.end(), keys[key]) != named.end()) ||
                   std::any_of(evaluator.patterns.begin(), evaluator.patterns.end(), matches);
        if (met && evaluator.condition < 0) return;
        if (met) ask.clause.push_back(plan.conditions.at(evaluator.condition));
    }
    outcome.asks.push_back(std::move(ask));
}

Outcome& ObjectSpec::of_key(int key) {
    if (!key_outcomes_[key]) key_outcomes_[key] = &of_verdicts(key, text->verdicts_on(keys[key]));
    return *key_outcomes_[key];
}

Outcome& ObjectSpec::of_text(const TextState& at) {
    std::vector<Tri> values, verdict;
    text->atoms(at, true, values);
    text->plan.evaluate(values, verdict);
    return of_verdicts(-1, verdict);
}

int ObjectSpec::known(const TextState& at) const {
    int listed = text->list.complete(at);
    return listed < 0 ? -1 : key_of_listed_[listed];
}

bool ObjectSpec::possible(Outcome& outcome) { return judge(schema, plan, outcome); }

// Breadth first to a key that is allowed; a bounded search, since every key is judged when it ends.
bool ObjectSpec::other_key_live(const TextState& from, const std::function<bool(Outcome&)>& allowed, KnownLive& known) {
    constexpr std::size_t kBound = 4000;
    auto place = [](const TextState& at) {
        return static_cast<std::uint64_t>(at.state) << 32 | static_cast<std::uint32_t>(at.chars);
    };
    std::uint64_t key = plain ? 0 : place(from);
    if (auto found = known.find(key); found != known.end()) return found->second;
    TextState first = plain ? text->start() : from;
    first.lo = first.hi = 0;
    std::deque<TextState> queue{first};
    std::unordered_map<std::uint64_t, bool> seen;
    bool result = false;
    while (!queue.empty() && !result) {
        TextState here = queue.front();
        queue.pop_front();
        if (text->product.whole(here.state) && allowed(of_text(here))) result = true;
        for (int cls = 0; cls < text->product.num_classes() && !plain && !result; ++cls) {
            TextState next = here;
            schema.budget.tick();
            if (!text->step(next, text->product.representative(cls))) continue;
            if (seen.emplace(place(next), true).second) queue.push_back(next);
            result |= seen.size() > kBound;
        }
    }
    schema.budget.charge_bytes(48);
    return known[key] = result;
}

ArraySpec::ArraySpec(Schema& schema, const Plan& plan) : schema(schema), plan(plan) {
    for (int atom : plan.atoms) {
        const Node& node = schema.node(atom);
        if (node.what == Assert::Items) alike_from = std::max(alike_from, static_cast<long>(node.children.size()));
        if (node.what == Assert::Unique) unique = true;
        for (const Evaluator& evaluator : node.evaluators) alike_from = std::max(alike_from, evaluator.items);
    }
}

Outcome& ArraySpec::of_item(long index) {
    index = std::min(index, alike_from);
    if (auto found = outcomes_.find(index); found != outcomes_.end()) return found->second;
    Outcome outcome;
    for (int atom = 0; atom < static_cast<int>(plan.atoms.size()); ++atom) {
        const Node& node = schema.node(plan.atoms[atom]);
        if (node.what == Assert::Items) {
            bool first = index < static_cast<long>(node.children.size());
            int asked = first ? node.children[index] : node.other;
            if (asked >= 0) outcome.asks.push_back({atom, asked, {}, {}});
        }
        if (node.what == Assert::Contains) outcome.asks.push_back({atom, node.children[0], {}, {}});
        if (node.what == Assert::UnevaluatedItems) {
            Ask ask{atom, node.other, {}, {}};
            bool evaluated = false;
            for (const Evaluator& evaluator : node.evaluators) {
                bool met = evaluator.all || index < evaluator.items;
                int condition = evaluator.condition < 0 ? -1 : plan.conditions.at(evaluator.condition);
                if (met && condition < 0) evaluated = true;
                else if (met) ask.clause.push_back(condition);
                else if (evaluator.contains >= 0) ask.ways.emplace_back(evaluator.contains, condition);
            }
            if (!evaluated) outcome.asks.push_back(std::move(ask));
        }
    }
    find_firm(schema, plan, outcome);
    return outcomes_.emplace(index, std::move(outcome)).first->second;
}

bool ArraySpec::possible(Outcome& outcome) {
    if (outcome.judged) return outcome.possible;
    Outcome firm = outcome;  // `contains` may refuse an item
    std::erase_if(firm.asks,
                  [&](const Ask& ask) { return schema.node(plan.atoms[ask.atom]).what == Assert::Contains; });
    outcome.possible = judge(schema, plan, firm);
    outcome.judged = true;
    return outcome.possible;
}

long ArraySpec::most_items() {
    if (most_ >= 0) return most_;
    long most = Roots::kMany;
    for (std::size_t i = 0; i < plan.atoms.size(); ++i)
        if (plan.hard[i] && schema.node(plan.atoms[i]).what == Assert::MaxItems)
            most = std::min(most, schema.node(plan.atoms[i]).count);
    for (long i = 0; i <= alike_from && i < most; ++i)
        if (!possible(of_item(i))) most = i;
    return most_ = most;
}

bool object_satisfiable(Schema& schema, const Plan& plan) {
    return !plan.roots->must || admissible(schema, *open_container(plan, {}));
}

bool array_satisfiable(Schema& schema, const Plan& plan) {
    return !plan.roots->must || admissible(schema, *open_container(plan, {}));
}

}  // namespace sapwood
