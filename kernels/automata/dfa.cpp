#include "dfa.h"

#include <algorithm>

namespace sapwood {

Dfa::Dfa(std::shared_ptr<Nfa> nfa, Budget& budget) : nfa_(std::move(nfa)), budget_(budget) {
    for (const LookAround& look : nfa_->looks) looks_.push_back(std::make_unique<Dfa>(look.body, budget));
    find_classes();
    mark_.assign(nfa_->insts.size(), -1);
    states_.resize(2);
    flags_ = {kKnown, kMatched | kAcceptsEnd | kLive | kKnown};
    table_.assign(num_classes_, kDead);
    table_.insert(table_.end(), num_classes_, kAll);
}

// Bytes that no instruction tells apart are one class.
void Dfa::find_classes() {
    std::array<bool, 257> border{};
    border[0] = true;
    for (const Inst& inst : nfa_->insts)
        if (inst.op == Op::Byte && inst.lo <= inst.hi) border[inst.lo] = border[inst.hi + 1] = true;
    for (const SetRow& row : nfa_->rows)
        for (int b = 1; b < 256; ++b)
            if (row.to[b] != row.to[b - 1]) border[b] = true;
    for (auto& look : looks_)
        for (int b = 1; b < 256; ++b)
            if (look->classes_[b] != look->classes_[b - 1]) border[b] = true;
    num_classes_ = 0;
    for (int b = 0; b < 256; ++b) {
        if (border[b]) {
            ++num_classes_;
            representatives_.push_back(b);
        }
        classes_[b] = num_classes_ - 1;
    }
}

int Dfa::start() {
    if (start_ < 0) {
        std::vector<int> behind;
        for (std::size_t i = 0; i < looks_.size(); ++i)
            behind.push_back(nfa_->looks[i].behind ? looks_[i]->start() : kDead);
        start_ = intern({{nfa_->start, {}}}, std::move(behind), true);
    }
    return start_;
}

// Takes on a look-ahead, or settles it at once. False: the thread can't go on.
bool Dfa::owe(Thread& thread, int look) {
    bool negative = nfa_->looks[look].negative;
    int state = looks_[look]->start();
    if (looks_[look]->matched(state)) return !negative;
    if (!looks_[look]->live(state)) return negative;
    auto at = thread.owed.begin();
    while (at != thread.owed.end() && std::pair(at[0], at[1]) < std::pair(look, state)) at += 2;
    if (at == thread.owed.end() || at[0] != look || at[1] != state) thread.owed.insert(at, {look, state});
    return true;
}

bool Dfa::advance_owed(Thread& thread, std::uint8_t byte) {
    if (thread.owed.empty()) return true;
    std::vector<std::pair<int, int>> kept;
    for (std::size_t i = 0; i < thread.owed.size(); i += 2) {
        int look = thread.owed[i];
        int state = looks_[look]->step(thread.owed[i + 1], byte);
        bool negative = nfa_->looks[look].negative;
        if (looks_[look]->matched(state)) {
            if (negative) return false;
        } else if (!looks_[look]->live(state)) {
            if (!negative) return false;
        } else {
            kept.emplace_back(look, state);
        }
    }
    std::sort(kept.begin(), kept.end());
    kept.erase(std::unique(kept.begin(), kept.end()), kept.end());
    thread.owed.clear();
    for (auto [look, state] : kept) thread.owed.insert(thread.owed.end(), {look, state});
    return true;
}

bool Dfa::owes_nothing_at_end(const Thread& thread) {
    for (std::size_t i = 0; i < thread.owed.size(); i += 2)
        if (looks_[thread.owed[i]]->accepts(thread.owed[i + 1]) == nfa_->looks[thread.owed[i]].negative) return false;
    return true;
}

// Follows everything that reads no byte. `at_end` also passes End.
void Dfa::close(std::vector<Thread>& threads, const std::vector<int>& behind, bool at_start, bool at_end) {
    std::vector<Thread> todo(threads.rbegin(), threads.rend()), done;
    std::map<int, std::vector<std::vector<int>>> seen;  // threads that owe something
    ++round_;
    while (!todo.empty()) {
        Thread thread = std::move(todo.back());
        todo.pop_back();
        budget_.tick();
        if (thread.owed.empty()) {
            if (mark_[thread.pc] == round_) continue;
            mark_[thread.pc] = round_;
        } else {
            auto& owed = seen[thread.pc];
            if (std::find(owed.begin(), owed.end(), thread.owed) != owed.end()) continue;
            owed.push_back(thread.owed);
        }
        const Inst& inst = nfa_->insts[thread.pc];
        switch (inst.op) {
            case Op::Byte:
            case Op::Set:
            case Op::Match: done.push_back(std::move(thread)); break;
            case Op::Split:
                todo.push_back({inst.other, thread.owed});
                todo.push_back({inst.next, std::move(thread.owed)});
                break;
            case Op::Begin:
                if (at_start) todo.push_back({inst.next, std::move(thread.owed)});
                break;
            case Op::End:
                if (at_end) todo.push_back({inst.next, std::move(thread.owed)});
                else done.push_back(std::move(thread));
                break;
            case Op::Look: {
                const LookAround& look = nfa_->looks[inst.other];
                bool goes_on = look.behind ? looks_[inst.other]->matched(behind[inst.other]) != look.negative
                                           : owe(thread, inst.other);
                if (goes_on) todo.push_back({inst.next, std::move(thread.owed)});
            }
        }
    }
    threads = std::move(done);
}

int Dfa::intern(std::vector<Thread> threads, std::vector<int> behind, bool at_start) {
    close(threads, behind, at_start, false);
    std::sort(threads.begin(), threads.end());
    bool matched = false, accepts = false;
    for (const Thread& thread : threads)
        if (nfa_->insts[thread.pc].op == Op::Match) {
            matched |= thread.owed.empty();
            accepts |= owes_nothing_at_end(thread);
        }
    if (matched && nfa_->sticky) return kAll;
    if (!accepts) {
        std::vector<Thread> ended;
        for (const Thread& thread : threads)
            if (nfa_->insts[thread.pc].op == Op::End) ended.push_back(thread);
        if (!ended.empty()) {
            close(ended, behind, at_start, true);
            for (const Thread& thread : ended)
                accepts |= nfa_->insts[thread.pc].op == Op::Match && owes_nothing_at_end(thread);
        }
    }
    if (threads.empty()) return kDead;
    std::vector<int> key(behind);
    key.push_back(accepts);
    for (const Thread& thread : threads) {
        key.push_back(thread.pc);
        key.push_back(static_cast<int>(thread.owed.size()));
        key.insert(key.end(), thread.owed.begin(), thread.owed.end());
    }
    if (auto found = ids_.find(key); found != ids_.end()) return found->second;
    budget_.charge_bytes(128 + threads.size() * 40 + num_classes_ * sizeof(int) + key.size() * 4);  // may throw
    int id = static_cast<int>(states_.size());
    ids_.emplace(std::move(key), id);
    states_.push_back({std::move(threads), std::move(behind)});
    flags_.push_back((matched ? kMatched : 0) | (accepts ? kAcceptsEnd | kLive | kKnown : 0));
    table_.insert(table_.end(), num_classes_, -1);
    return id;
}

int Dfa::compute(int state, std::uint8_t byte) {
    std::vector<Thread> threads;
    for (const Thread& thread : states_[state].threads) {
        budget_.tick();
        bool waits = nfa_->insts[thread.pc].op == Op::Match && nfa_->sticky;  // for the look-aheads that it owes
        int pc = waits ? thread.pc : nfa_->after(thread.pc, byte);
        if (pc < 0) continue;
        Thread next{pc, thread.owed};
        if (advance_owed(next, byte)) threads.push_back(std::move(next));
    }
    std::vector<int> behind(states_[state].behind);
    for (std::size_t i = 0; i < looks_.size(); ++i)
        if (nfa_->looks[i].behind) behind[i] = looks_[i]->step(behind[i], byte);
    int next = intern(std::move(threads), std::move(behind), false);
    table_[state * num_classes_ + classes_[byte]] = next;
    return next;
}

bool Dfa::live(int state) { return flags_[state] & kKnown ? flags_[state] & kLive : search_live(state); }

// Depth first to an accepting state; what was walked without success is dead for good.
bool Dfa::search_live(int state) {
    struct Visit {
        int state, next_class;
    };
    std::vector<Visit> path{{state, 0}};
    std::vector<int> visited{state};
    std::unordered_map<int, bool> seen{{state, true}};
    while (!path.empty()) {
        Visit& at = path.back();
        if (at.next_class == num_classes_) {
            path.pop_back();
            continue;
        }
        int next = step(at.state, representatives_[at.next_class++]);
        budget_.tick();
        if (flags_[next] & kLive) {
            for (const Visit& visit : path) flags_[visit.state] |= kLive | kKnown;
            return true;
        }
        if ((flags_[next] & kKnown) || !seen.emplace(next, true).second) continue;
        visited.push_back(next);
        path.push_back({next, 0});
    }
    for (int dead : visited) flags_[dead] |= kKnown;
    return false;
}

}  // namespace sapwood
