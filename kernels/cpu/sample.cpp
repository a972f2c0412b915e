#include "sample.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace sapwood {
namespace {

constexpr int kDropped = 17;  // bits of a float that bins ignore: 64 bins for each power of two
constexpr int64_t kBins = (0x3f800000 >> kDropped) + 1;

inline uint32_t bits_of(float weight) {
    uint32_t bits;
    std::memcpy(&bits, &weight, sizeof bits);
    return bits;
}

// Weights in falling order, as far as anyone looks: they are counted by bins of nearly equal weight, and of these only the
// few that a question is about are sorted.
class Ranking {
   public:
    Ranking(const float* weights, int64_t n) : weights_(weights), n_(n), counts_(kBins), masses_(kBins) {
        for (int64_t i = 0; i < n; ++i) {
            const size_t bin = std::min<size_t>(bits_of(weights[i]) >> kDropped, kBins - 1);
            ++counts_[bin];
            masses_[bin] += double(weights[i]);
        }
        while (lowest_ < kBins - 1 && masses_[size_t(lowest_)] == 0) ++lowest_;
    }

    // Weight of the first `count`.
    double mass_of(int64_t count) {
        double sum = 0;
        for (int64_t bin = kBins - 1; bin >= 0 && count > 0; --bin) {
            const int64_t here = counts_[size_t(bin)];
            if (here <= count) {
                sum += masses_[size_t(bin)];
            } else {
                sort(bin);
                for (int64_t i = 0; i < count; ++i) sum += double(weights_[members_[size_t(i)]]);
            }
            count -= here;
        }
        return sum;
    }

    struct Place {
        int64_t rank;
        int64_t token;
    };

    // The first place up to which the weights sum to more than `mass` (to as much, if `reached`), before rank `count` and
    // never one of weight 0: rounding must not lead beyond.
    Place at(double mass, bool reached, int64_t count) {
        double sum = 0;
        int64_t rank = 0;
        Place place{0, 0};
        for (int64_t bin = kBins - 1; bin >= 0 && rank < count; --bin) {
            const int64_t here = counts_[size_t(bin)];
            if (!here) continue;
            const double beyond = sum + masses_[size_t(bin)];
            const bool inside = reached ? beyond >= mass : beyond > mass;
            if (inside || rank + here >= count || bin == lowest_) {
                sort(bin);
                for (int64_t i = 0; i < here && rank + i < count; ++i) {
                    const float weight = weights_[members_[size_t(i)]];
                    if (weight == 0 && rank + i > 0) return place;
                    place = {rank + i, members_[size_t(i)]};
                    sum += double(weight);
                    if (reached ? sum >= mass : sum > mass) return place;
                }
            }
            sum = beyond;
            rank += here;
        }
        return place;
    }

   private:
    void sort(int64_t bin) {
        members_.clear();
        for (int64_t i = 0; i < n_; ++i)
            if (std::min<int64_t>(bits_of(weights_[i]) >> kDropped, kBins - 1) == bin) members_.push_back(int32_t(i));
        std::stable_sort(members_.begin(), members_.end(), [&](int32_t a, int32_t b) { return weights_[a] > weights_[b]; });
    }

    const float* weights_;
    int64_t n_;
    std::vector<int32_t> counts_;
    std::vector<double> masses_;
    int64_t lowest_ = 0;  // the last bin with any weight
    std::vector<int32_t> members_;  // of the bin sorted last
};

}  // namespace

int64_t draw(const float* weights, int64_t n, const Kept& kept, double number) {
    Ranking ranking(weights, n);
    int64_t count = n;
    if (kept.top_p < 1) count = ranking.at(kept.top_p * ranking.mass_of(n), true, n).rank + 1;
    if (kept.min_p > 0) {
        const int64_t likely = std::count_if(weights, weights + n, [&](float weight) { return weight >= kept.min_p; });
        count = std::max<int64_t>(1, std::min(count, likely));
    }
    return ranking.at(number * ranking.mass_of(count), false, count).token;
}

}  // namespace sapwood
