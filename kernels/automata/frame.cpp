#include "frame.h"

#include <algorithm>

namespace sapwood {
namespace {

struct Pending {
    const std::vector<Tri>* verdicts = nullptr;  // on the open child, as far as known
    bool closed = false;                         // the container ends
};

Tri after_child(const Frame& frame, int atom, Tri value, const Pending& pending) {
    if (!pending.verdicts || pending.closed) return value;
    for (const Link& link : frame.links) {
        if (link.ask->atom != atom || (*pending.verdicts)[link.verdict] != Tri::No) continue;
        bool way = !link.ask->clause.empty();
        for (int index : link.ways) way |= (*pending.verdicts)[index] != Tri::No;
        if (!way) return Tri::No;
    }
    return value;
}

Tri has_key(const Frame& frame, int key, bool closed, Schema& schema) {
    if (frame.has_seen(key)) return Tri::Yes;
    if (closed || (!schema.layout.any_order && key < frame.position)) return Tri::No;
    ObjectSpec& object = *frame.plan->object;
    return object.possible(object.of_key(key)) ? Tri::Maybe : Tri::No;
}

// How many keys a frame can have in the end.
long most_keys(Schema& schema, const Frame& frame) {
    ObjectSpec& object = *frame.plan->object;
    if (object.other_keys()) return Roots::kMany;
    long most = frame.count;
    for (int key = 0; key < object.num_keys(); ++key) most += has_key(frame, key, false, schema) == Tri::Maybe;
    return most;
}

Tri object_atom(Schema& schema, const Frame& frame, int atom, const Pending& pending) {
    const Node& node = schema.node(frame.plan->atoms[atom]);
    switch (node.what) {
        case Assert::Has: return has_key(frame, frame.plan->object->key_of_atom[atom], pending.closed, schema);
        case Assert::MinProperties:
            if (frame.count >= node.count) return Tri::Yes;
            return pending.closed || most_keys(schema, frame) < node.count ? Tri::No : Tri::Maybe;
        case Assert::MaxProperties:
            if (frame.count > node.count) return Tri::No;
            return pending.closed ? Tri::Yes : Tri::Maybe;
        default: {
            Tri value = after_child(frame, atom, frame.fixed[atom], pending);
            return pending.closed && value == Tri::Maybe ? Tri::Yes : value;
        }
    }
}

Tri contains(const Frame& frame, int atom, const Node& node, const Pending& pending) {
    int sure = frame.tallies[atom], possible = sure;
    if (frame.child && !pending.closed) {
        Tri verdict = Tri::Maybe;
        if (pending.verdicts)
            for (const Link& link : frame.links)
                if (link.ask->atom == atom) verdict = (*pending.verdicts)[link.verdict];
        sure += verdict == Tri::Yes, possible += verdict != Tri::No;
    }
    bool unlimited = node.limit < 0;
    if (!unlimited && sure > node.limit) return Tri::No;
    if (pending.closed) return definite(sure >= node.count);
    long more = frame.plan->array->most_items() - frame.count;
    if (possible + more < node.count) return Tri::No;
    return sure >= node.count && unlimited ? Tri::Yes : Tri::Maybe;
}

Tri array_atom(Schema& schema, const Frame& frame, int atom, const Pending& pending) {
    const Node& node = schema.node(frame.plan->atoms[atom]);
    int count = frame.count - (pending.closed && frame.child ? 1 : 0);
    switch (node.what) {
        case Assert::MinItems:
            if (count >= node.count) return Tri::Yes;
            return pending.closed || frame.plan->array->most_items() < node.count ? Tri::No : Tri::Maybe;
        case Assert::MaxItems:
            if (count > node.count) return Tri::No;
            return pending.closed ? Tri::Yes : Tri::Maybe;
        case Assert::Contains: return contains(frame, atom, node, pending);
        default: {
            Tri value = after_child(frame, atom, frame.fixed[atom], pending);
            return pending.closed && value == Tri::Maybe ? Tri::Yes : value;
        }
    }
}

// Conditions of the plan that unevaluated keys and items need.
void apply_clauses(const Frame& frame, std::vector<Tri>& atoms) {
    std::vector<Tri> nodes;
    for (std::size_t round = 0; round < frame.clauses.size(); ++round) {
        bool changed = false;
        frame.plan->evaluate_nodes(atoms, nodes);
        for (const std::vector<int>& clause : frame.clauses) {
            Tri best = Tri::No;
            for (std::size_t i = 1; i < clause.size(); ++i) best = std::max(best, nodes[clause[i]]);
            Tri& atom = atoms[clause[0]];
            if (best < atom) changed = true, atom = best;
        }
        if (!changed) break;
    }
}

void atoms_of(Schema& schema, const Frame& frame, const Pending& pending, std::vector<Tri>& atoms) {
    atoms.resize(frame.plan->atoms.size());
    schema.budget.tick(1 + atoms.size() / 4 + frame.plan->nodes.size() / 4);
    bool object = frame.plan->kind == Kind::Object;
    for (int atom = 0; atom < static_cast<int>(atoms.size()); ++atom)
        atoms[atom] = object ? object_atom(schema, frame, atom, pending) : array_atom(schema, frame, atom, pending);
    if (!frame.clauses.empty()) apply_clauses(frame, atoms);
}

// An object with fewer keys to come than it needs.
bool too_few_places(Schema& schema, const Frame& frame) {
    if (frame.plan->kind != Kind::Object) return false;
    long most = Roots::kMany, missing = 0;
    for (std::size_t atom = 0; atom < frame.plan->atoms.size(); ++atom) {
        if (!frame.plan->hard[atom]) continue;
        const Node& node = schema.node(frame.plan->atoms[atom]);
        if (node.what == Assert::MaxProperties) most = std::min(most, node.count);
        if (node.what == Assert::Has) missing += !frame.has_seen(frame.plan->object->key_of_atom[atom]);
    }
    return frame.count + missing > most;
}

bool may_hold(Schema& schema, const Frame& frame, const Pending& pending) {
    std::vector<Tri> atoms, verdicts;
    atoms_of(schema, frame, pending, atoms);
    frame.plan->evaluate(atoms, verdicts);
    const Roots* roots = frame.plan->roots;
    if (roots->must) return verdicts[0] != Tri::No && !too_few_places(schema, frame);
    return consult(schema, frame.parent.get(), roots, verdicts);
}

void rehash(Frame& frame) {
    std::uint64_t h = frame.parent ? frame.parent->hash : 1;
    h = mix(h, reinterpret_cast<std::uintptr_t>(frame.plan));
    h = mix(h, static_cast<std::uint64_t>(frame.count) << 32 | static_cast<std::uint32_t>(frame.position));
    for (Tri value : frame.fixed) h = h * 5 + static_cast<std::uint64_t>(value);
    for (int tally : frame.tallies) h = mix(h, tally);
    for (std::uint64_t word : frame.seen) h = mix(h, word);
    for (const OtherKey& key : frame.others) h = mix(h, key.digest);
    for (const auto& clause : frame.clauses)
        for (int node : clause) h = mix(h, node);
    for (std::uint64_t item : frame.items) h = mix(h, item);
    if (frame.tracked) h = mix(h, frame.digest);
    h = mix(h, reinterpret_cast<std::uintptr_t>(frame.child));
    for (const Link& link : frame.links) h = mix(h, reinterpret_cast<std::uintptr_t>(link.ask));
    frame.hash = h;
}

FramePtr copy(const Frame& frame) { return FramePtr(new Frame(frame)); }

Frame::Keys& keys_of(const Frame& frame) {
    if (!frame.keys) {
        frame.keys = std::make_unique<Frame::Keys>();
        frame.keys->known.assign(frame.plan->object->num_keys(), -1);
        frame.keys->frames.resize(frame.plan->object->num_keys());
    }
    return *frame.keys;
}

// Opens a child under what is asked of it. Null: it may not be.
FramePtr open_child(Schema& schema, FramePtr frame, const Outcome& outcome) {
    frame->links.clear();
    if (outcome.firm && frame->plan->simple) {
        frame->child = outcome.firm;
        if (!schema.satisfiable(outcome.firm) || !may_hold(schema, *frame, {})) return {};
        rehash(*frame);
        return frame;
    }
    std::vector<int> nodes;
    std::vector<const Ask*> asks;
    for (const Ask& ask : outcome.asks) {
        if (frame->fixed[ask.atom] == Tri::No) continue;
        asks.push_back(&ask);
        nodes.push_back(schema.target(ask.node));
        for (auto [node, condition] : ask.ways) nodes.push_back(schema.target(node));
    }
    const Roots* roots = schema.roots(nodes, false);
    auto index = [&](int node) {
        return static_cast<int>(std::lower_bound(roots->nodes.begin(), roots->nodes.end(), schema.target(node)) -
                                roots->nodes.begin());
    };
    for (const Ask* ask : asks) {
        Link link{ask, index(ask->node), {}};
        for (auto [node, condition] : ask->ways) link.ways.push_back(index(node));
        frame->links.push_back(std::move(link));
    }
    frame->child = roots;
    std::vector<Tri> verdicts;
    for (int node : roots->nodes)
        verdicts.push_back(schema.satisfiable(schema.roots({node}, true)) ? Tri::Maybe : Tri::No);
    if (!may_hold(schema, *frame, {&verdicts, false})) return {};
    // Where no verdict may be negative, the child simply has to satisfy all.
    constexpr std::size_t kWorthTrying = 24;
    bool all_needed = roots->nodes.size() <= kWorthTrying;
    for (std::size_t i = 0; i < roots->nodes.size() && all_needed; ++i) {
        Tri before = std::exchange(verdicts[i], Tri::No);
        all_needed = !may_hold(schema, *frame, {&verdicts, false});
        verdicts[i] = before;
    }
    bool counts = std::any_of(asks.begin(), asks.end(), [&](const Ask* ask) {
        return schema.node(frame->plan->atoms[ask->atom]).what == Assert::Contains;
    });
    if (all_needed && !counts) {
        frame->child = schema.roots(nodes, true);
        frame->links.clear();
        if (!schema.satisfiable(frame->child)) return {};
    }
    rehash(*frame);
    return frame;
}

bool names_allow(Schema& schema, Frame& frame, const Outcome& outcome) {
    for (int atom : outcome.failed) frame.fixed[atom] = Tri::No;
    return outcome.failed.empty() || may_hold(schema, frame, {});
}

}  // namespace

Frame::Frame(const Frame& o)
    : parent(o.parent),
      plan(o.plan),
      count(o.count),
      position(o.position),
      tracked(o.tracked),
      fixed(o.fixed),
      tallies(o.tallies),
      seen(o.seen),
      others(o.others),
      clauses(o.clauses),
      items(o.items),
      digest(o.digest),
      key_digest(o.key_digest),
      child(o.child),
      links(o.links),
      hash(o.hash) {}

FramePtr open_container(const Plan& plan, FramePtr parent) {
    FramePtr frame(new Frame);
    frame->parent = std::move(parent);
    frame->plan = &plan;
    frame->fixed.assign(plan.atoms.size(), Tri::Maybe);
    frame->tracked =
        frame->parent && (frame->parent->tracked || (frame->parent->plan->array && frame->parent->plan->array->unique));
    if (plan.object) frame->seen.assign(plan.object->num_keys() / 64 + 1, 0);
    if (plan.array) frame->tallies.assign(plan.atoms.size(), 0);
    frame->digest = plan.object ? 11 : 13;
    rehash(*frame);
    return frame;
}

bool admissible(Schema& schema, const Frame& frame) { return may_hold(schema, frame, {}); }

bool consult(Schema& schema, const Frame* parent, const Roots* roots, const std::vector<Tri>& verdicts) {
    if (roots->must) return verdicts[0] != Tri::No;
    if (!parent) return true;
    auto known = parent->answers.find(verdicts);
    if (known != parent->answers.end()) return known->second;
    bool answer = may_hold(schema, *parent, {&verdicts, false});
    if (parent->answers.size() >= Frame::kMostAnswers) parent->answers.clear();
    return parent->answers[verdicts] = answer;
}

FramePtr open_key(Schema& schema, const Frame& frame, int key) {
    ObjectSpec& object = *frame.plan->object;
    Frame::Keys& keys = keys_of(frame);
    if (keys.known[key] >= 0) return keys.frames[key];
    FramePtr opened;
    bool late = !schema.layout.any_order && key < frame.position;
    if (Outcome& outcome = object.of_key(key); !frame.has_seen(key) && !late && object.possible(outcome)) {
        FramePtr next = copy(frame);
        next->seen[key / 64] |= 1ull << (key % 64);
        ++next->count;
        next->position = key + 1;
        if (names_allow(schema, *next, outcome)) opened = open_child(schema, std::move(next), outcome);
    }
    keys.known[key] = 1;
    return keys.frames[key] = opened;
}

bool other_key_live(Schema& schema, const Frame& frame, const TextState& at) {
    ObjectSpec& object = *frame.plan->object;
    Frame::Keys& keys = keys_of(frame);
    constexpr OtherKey kFresh{0, 0, 0};
    auto allowed = [&](Outcome& outcome) {
        if (auto found = keys.other_allowed.find(&outcome); found != keys.other_allowed.end()) return found->second;
        bool result = static_cast<bool>(open_other_key(schema, frame, outcome, kFresh));
        return keys.other_allowed[&outcome] = result;
    };
    if (object.plain) {
        if (keys.other < 0) {
            bool result = object.other_key_live(at, allowed, keys.other_live);
            keys.other = result;
        }
        return keys.other;
    }
    return object.other_key_live(at) && object.other_key_live(at, allowed, keys.other_live);
}

FramePtr open_other_key(Schema& schema, const Frame& frame, Outcome& outcome, OtherKey other) {
    if (!frame.plan->object->possible(outcome)) return {};
    for (const OtherKey& key : frame.others)
        if (key.digest == other.digest) return {};
    FramePtr next = copy(frame);
    ++next->count;
    next->position = frame.plan->object->num_keys();
    next->others.push_back(other);
    if (!names_allow(schema, *next, outcome)) return {};
    return open_child(schema, std::move(next), outcome);
}

FramePtr open_item(Schema& schema, const Frame& frame) {
    ArraySpec& array = *frame.plan->array;
    if (frame.count >= array.most_items()) return {};
    FramePtr next = copy(frame);
    ++next->count;
    next = open_child(schema, std::move(next), array.of_item(frame.count));
    long same = std::max(1l, next ? next->count - array.alike_from : 0);  // items that have to differ, under one schema
    if (next && array.unique && next->child->must && schema.num_values(next->child) < same) {
        for (std::size_t atom = 0; atom < frame.plan->atoms.size(); ++atom)
            if (frame.plan->hard[atom] && schema.node(frame.plan->atoms[atom]).what == Assert::Unique) return {};
    }
    return next;
}

FramePtr close_child(Schema& schema, const Frame& frame, const std::vector<Tri>& verdicts, std::uint64_t child_digest) {
    FramePtr next = copy(frame);
    bool changed = false;
    for (const Link& link : frame.links) {
        const Ask& ask = *link.ask;
        if (schema.node(frame.plan->atoms[ask.atom]).what == Assert::Contains) {
            next->tallies[ask.atom] += verdicts[link.verdict] == Tri::Yes;
            changed = true;
            continue;
        }
        if (verdicts[link.verdict] == Tri::Yes) continue;
        changed = true;
        std::vector<int> clause{ask.atom};
        clause.insert(clause.end(), ask.clause.begin(), ask.clause.end());
        bool met = false;
        for (std::size_t i = 0; i < link.ways.size(); ++i)
            if (verdicts[link.ways[i]] == Tri::Yes) {
                if (ask.ways[i].second < 0) met = true;
                else clause.push_back(ask.ways[i].second);
            }
        if (met) continue;
        if (clause.size() == 1) next->fixed[ask.atom] = Tri::No;
        else if (std::find(next->clauses.begin(), next->clauses.end(), clause) == next->clauses.end())
            next->clauses.push_back(clause);
    }
    next->child = nullptr;
    next->links.clear();
    if (frame.plan->object) {
        next->digest += mix(frame.key_digest, child_digest);  // in any order
    } else {
        next->digest = mix(frame.digest, child_digest);
        if (frame.plan->array->unique) {
            bool twice = std::find(frame.items.begin(), frame.items.end(), child_digest) != frame.items.end();
            next->items.push_back(child_digest);
            if (!twice) std::sort(next->items.begin(), next->items.end());
            for (std::size_t atom = 0; twice && atom < next->fixed.size(); ++atom)
                if (schema.node(frame.plan->atoms[atom]).what == Assert::Unique)
                    next->fixed[atom] = Tri::No, changed = true;
        }
    }
    if (changed && !may_hold(schema, *next, {})) return {};
    rehash(*next);
    return next;
}

void close_container(Schema& schema, const Frame& frame, std::vector<Tri>& verdicts) {
    std::vector<Tri> atoms;
    atoms_of(schema, frame, {nullptr, true}, atoms);
    frame.plan->evaluate(atoms, verdicts);
}

}  // namespace sapwood
