#include "product.h"

namespace sapwood {

Product::Product(std::vector<Dfa*> dfas, Budget& budget) : dfas_(std::move(dfas)), budget_(budget) {
    for (int b = 0; b < 256; ++b) {
        bool border = b == 0;
        for (Dfa* dfa : dfas_) border |= b > 0 && dfa->classes()[b] != dfa->classes()[b - 1];
        if (border) {
            ++num_classes_;
            representatives_.push_back(b);
        }
        classes_[b] = num_classes_ - 1;
    }
    std::vector<int> parts;
    for (Dfa* dfa : dfas_) parts.push_back(dfa->start());
    intern(std::move(parts));
}

int Product::intern(std::vector<int> parts) {
    if (auto found = ids_.find(parts); found != ids_.end()) return found->second;
    budget_.charge_bytes(160 + num_classes_ * sizeof(int));  // may throw
    int id = static_cast<int>(parts_.size());
    ids_.emplace(parts, id);
    parts_.push_back(std::move(parts));
    table_.insert(table_.end(), num_classes_, kUnknown);
    return id;
}

int Product::compute(int state, std::uint8_t byte) {
    std::vector<int> parts(parts_[state]);
    for (std::size_t i = 0; i < parts.size(); ++i) parts[i] = dfas_[i]->step(parts[i], byte);
    int next = parts[0] == Dfa::kDead ? kNone : intern(std::move(parts));
    table_[state * num_classes_ + classes_[byte]] = next;
    return next;
}

}  // namespace sapwood
