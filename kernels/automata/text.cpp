#include "text.h"

#include <algorithm>
#include <deque>

namespace sapwood {

namespace {

std::uint64_t mix_state(const TextState& at) {
    return static_cast<std::uint64_t>(at.state) << 32 | static_cast<std::uint32_t>(at.chars);
}

}  // namespace

void TextList::narrow(TextState& at, std::uint8_t byte) const {
    auto byte_at = [&](int i) {
        return at.depth < static_cast<int>(texts[i].size()) ? static_cast<std::uint8_t>(texts[i][at.depth]) : -1;
    };
    auto first_from = [&](int value) {
        int lo = at.lo, hi = at.hi;
        while (lo < hi) {
            int mid = (lo + hi) / 2;
            if (byte_at(mid) < value) lo = mid + 1;
            else hi = mid;
        }
        return lo;
    };
    int lo = first_from(byte);
    at.hi = first_from(byte + 1);
    at.lo = lo;
    ++at.depth;
}

std::bitset<256> TextList::next_bytes(const TextState& at) const {
    std::bitset<256> out;
    TextState rest = at;
    while (rest.lo < rest.hi) {
        if (static_cast<int>(texts[rest.lo].size()) > at.depth) {
            auto byte = static_cast<std::uint8_t>(texts[rest.lo][at.depth]);
            out.set(byte);
            TextState same = rest;
            narrow(same, byte);
            rest.lo = same.hi;
        } else {
            ++rest.lo;
        }
    }
    return out;
}

std::vector<int> TextSpec::patterns_of(const Schema& schema, const Plan& plan) {
    std::vector<int> patterns;
    for (int atom : plan.atoms)
        if (schema.node(atom).what == Assert::Pattern) patterns.push_back(schema.node(atom).patterns[0]);
    std::sort(patterns.begin(), patterns.end());
    patterns.erase(std::unique(patterns.begin(), patterns.end()), patterns.end());
    return patterns;
}

TextSpec::TextSpec(Schema& schema, const Plan& plan)
    : schema(schema), plan(plan), product(schema.product(patterns_of(schema, plan))) {
    std::vector<int> patterns = patterns_of(schema, plan);
    for (int atom : plan.atoms) {
        const Node& node = schema.node(atom);
        part_.push_back(0);
        if (node.what == Assert::Pattern)
            part_.back() = 1 + static_cast<int>(std::lower_bound(patterns.begin(), patterns.end(), node.patterns[0]) -
                                                patterns.begin());
        if (node.what == Assert::InTexts) list.texts.insert(list.texts.end(), node.texts.begin(), node.texts.end());
        if (node.what == Assert::MinLength) {
            counted = std::max(counted, static_cast<int>(node.count));
            min_length = std::max(min_length, static_cast<int>(node.count));
        }
        if (node.what == Assert::MaxLength) {
            counted = std::max(counted, static_cast<int>(node.count) + 1);
            max_length = std::max(max_length, static_cast<int>(node.count));
            if (shortest_max < 0 || node.count < shortest_max) shortest_max = static_cast<int>(node.count);
        }
    }
    auto& texts = list.texts;
    std::sort(texts.begin(), texts.end());
    texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
    schema.budget.charge_bytes(64 * texts.size());
    member_.resize(plan.atoms.size());
    for (std::size_t i = 0; i < plan.atoms.size(); ++i) {
        const Node& node = schema.node(plan.atoms[i]);
        if (node.what != Assert::InTexts) continue;
        member_[i].assign(texts.size(), false);
        for (const std::string& text : node.texts)
            member_[i][std::lower_bound(texts.begin(), texts.end(), text) - texts.begin()] = true;
    }
    if (!plan.roots->must || texts.empty()) return;
    std::vector<Tri> values(plan.atoms.size(), Tri::Maybe), verdict;
    for (std::size_t i = 0; i < values.size(); ++i)
        if (!member_[i].empty()) values[i] = Tri::No;
    plan.evaluate(values, verdict);
    only_list = verdict[0] == Tri::No;
    ok_before_.push_back(0);
    for (std::size_t i = 0; i < texts.size(); ++i) {
        schema.budget.tick(texts[i].size());
        ok_before_.push_back(ok_before_.back() + (verdicts_on(texts[i])[0] == Tri::Yes));
    }
}

TextState TextSpec::start() const {
    TextState at;
    at.hi = static_cast<int>(list.texts.size());
    return at;
}

void TextSpec::atoms(const TextState& at, bool closed, std::vector<Tri>& out) const {
    out.assign(plan.atoms.size(), Tri::Maybe);
    schema.budget.tick(out.size() / 4 + plan.nodes.size() / 4);
    const std::vector<int>& parts = product.parts(at.state);
    int exact = closed ? list.complete(at) : -1;
    for (std::size_t i = 0; i < out.size(); ++i) {
        const Node& node = schema.node(plan.atoms[i]);
        switch (node.what) {
            case Assert::Pattern: {
                Dfa& dfa = product.dfa(part_[i]);
                int part = parts[part_[i]];
                if (closed) out[i] = definite(dfa.accepts(part));
                else if (part == Dfa::kAll) out[i] = Tri::Yes;
                else if (!dfa.live(part)) out[i] = Tri::No;
                break;
            }
            case Assert::MinLength:
                if (at.chars >= node.count) out[i] = Tri::Yes;
                else if (closed) out[i] = Tri::No;
                break;
            case Assert::MaxLength:
                if (at.chars > node.count) out[i] = Tri::No;
                else if (closed) out[i] = Tri::Yes;
                break;
            default:
                if (closed) out[i] = definite(exact >= 0 && member_[i][exact]);
                else if (std::find(member_[i].begin() + at.lo, member_[i].begin() + std::max(at.lo, at.hi), true) ==
                         member_[i].begin() + std::max(at.lo, at.hi))
                    out[i] = Tri::No;
        }
    }
}

bool TextSpec::may_close(const TextState& at) const {
    if (!product.whole(at.state)) return false;
    if (plan.atoms.empty()) return plan.nodes[plan.verdicts[0]].how == Combine::Yes;
    std::vector<Tri> values, verdict;
    atoms(at, true, values);
    plan.evaluate(values, verdict);
    return verdict[0] == Tri::Yes;
}

bool TextSpec::may_go_on(const TextState& at) {
    if (at.lo < at.hi && ok_before_[at.hi] > ok_before_[at.lo]) return true;
    return !only_list && live(at.state, at.chars);
}

bool TextSpec::live(int state, int chars) {
    if (plan.atoms.empty()) return true;
    if (counted == 0) {
        if (state >= static_cast<int>(live_by_state_.size())) live_by_state_.resize(state + 64, -1);
        if (live_by_state_[state] < 0) {
            bool result = search_live(state, chars);
            live_by_state_[state] = result;
        }
        return live_by_state_[state];
    }
    if (product.num_parts() == 1 && plan.simple) return max_length < 0 || search_live(state, chars);
    std::uint64_t key = static_cast<std::uint64_t>(state) << 32 | static_cast<std::uint32_t>(chars);
    auto found = live_.find(key);
    if (found == live_.end()) {
        schema.budget.charge_bytes(48);
        found = live_.emplace(key, search_live(state, chars)).first;
    }
    return found->second;
}

// Breadth first over the product and the length. What is not found within the bound counts as live: a text that ends
// is checked again.
bool TextSpec::search_live(int state, int chars) {
    constexpr std::size_t kBound = 600;
    TextState at;
    at.state = state, at.chars = chars;
    std::vector<Tri> values, verdict;
    atoms(at, false, values);
    plan.evaluate(values, verdict);
    if (verdict[0] == Tri::No) return false;
    if (product.num_parts() == 1 && plan.simple) {
        for (int atom : plan.atoms)
            if (schema.node(atom).what == Assert::MinLength)
                for (int other : plan.atoms)
                    if (schema.node(other).what == Assert::MaxLength &&
                        schema.node(other).count < schema.node(atom).count)
                        return false;
        return true;
    }
    if (product.num_parts() == 2 && plan.simple && counted == 0 && list.texts.empty()) return true;
    std::unordered_map<std::uint64_t, bool> seen;
    std::deque<TextState> queue{at};
    while (!queue.empty()) {
        TextState here = queue.front();
        queue.pop_front();
        if (may_close(here)) return true;
        for (int cls = 0; cls < product.num_classes(); ++cls) {
            TextState next = here;
            schema.budget.tick();
            if (!step(next, product.representative(cls))) continue;
            if (!seen.emplace(mix_state(next), true).second) continue;
            atoms(next, false, values);
            plan.evaluate(values, verdict);
            if (verdict[0] == Tri::No) continue;
            if (seen.size() > kBound) return true;
            queue.push_back(next);
        }
    }
    return false;
}

long TextSpec::num_values() {
    TextState at = start();
    if (!only_list && live(at.state, at.chars)) return Roots::kMany;
    return ok_before_.empty() ? 0 : ok_before_.back();
}

std::vector<Tri> TextSpec::verdicts_on(const std::string& text) {
    TextState at = start();
    for (char c : text)
        if (!step(at, c)) return std::vector<Tri>(plan.verdicts.size(), Tri::No);
    std::vector<Tri> values, verdict;
    atoms(at, true, values);
    plan.evaluate(values, verdict);
    return verdict;
}

}  // namespace sapwood
