// An EAGLE head beside the plan of its target (arXiv 2401.15077, 2503.01840): one layer that guesses how texts go on.
//
// Entry j of a text stands for its token x_j and the target's feature of the position before; from there the head guesses
// x_{j+1}. An entry depends on the text up to x_j only, as the target's keys and values at that position do: so features,
// keys and values lie in the tree's slots, and whoever shares a prefix shares them.
//
//     slots of a path     x0   x1   x2   x3   x4      x5 is chosen: it has a slot, but was not computed yet
//     feature             g0   g1   g2   g3   g4
//     keys and values      -   x1g0 x2g1 x3g2 x4g3    draft: x5g4 -> d6 and h;  d6h -> d7 and h; ...
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "plan.h"

namespace sapwood {

struct EagleSource {
    int32_t version = 3;  // 1 (and 2, which differs in its trees only) or 3
    int32_t num_heads, num_kv_heads, head_dim;
    float norm_eps;
    // Version 3: fc [hidden, captures * hidden] makes g of the features; q, k, v take [embedding; g], both normed.
    // Version 1: g is the target's final hidden state; fc [hidden, 2 * hidden] takes [embedding; g]; q, k, v take that.
    EncodedMatrix fc, wq, wk, wv, wo, gate, up, down, head;
    Floats fc_bias;                                         // version 1
    Floats target_norm;                                     // version 1: the target's final norm
    Floats input_norm, hidden_norm, post_norm, final_norm;  // version 1 has post_norm only
    bool norm_before_residual = false;                      // version 3: what attention adds to is normed
    RopeSource rope;
    std::vector<int32_t> vocab;  // the target's id of each row of `head`
};

class Eagle {
   public:
    static constexpr int kDeepest = 16;       // tokens of a draft
    static constexpr int kMostRequests = 64;  // in one call

    // Uses the target's embedding and threads; the target must outlive it.
    Eagle(Plan& target, const EagleSource& source);

    // After the target computed this batch: learn what it says of each row. features [rows][captures * hidden].
    void observe(const BatchView& batch, const float* features);

    struct Request {
        const int32_t* table;  // slots of all positions, the last being that of `id`
        int32_t length;        // positions; at least 2
        int32_t id;            // the last token: chosen, but not computed by the target yet
    };
    static constexpr int kBins = 16;
    // Guess up to `depth` tokens for each request, [requests][depth] each with the chance that the head gives it. What such a
    // chance turns out to be worth stands in `worth` [kBins], by sixteenths. A request goes on as long as the product of what
    // its tokens are worth is at least `least`; its other ids are -1.
    void draft(const std::vector<Request>& requests, int depth, float least, const float* worth, int32_t* ids, float* chances);

    const Plan& target() const { return target_; }
    size_t weight_bytes() const { return weights_->size(); }

   private:
    PackedMatrix packed(const EncodedMatrix& source);
    // The feature kept for a slot into a row of state_.
    void recall(int64_t slot, int64_t row);
    // From state_ [rows][hidden] and the embeddings of ids to residual_, and what q, k and v of the rows are multiplied from.
    void enter(const int32_t* ids, int64_t rows);
    // Keys and values of a row of qkv_ into a slot; its queries, if it has any, are rotated and scaled in place.
    void finish(int64_t row, int32_t position, int64_t slot, bool has_queries);
    // The rest of the layer for entries whose tables end at their own slots: residual_ becomes h, logits_ what it guesses.
    void guess(const BatchRows& rows);

    Plan& target_;
    int32_t version_, heads_, kv_heads_, dim_, hidden_, kv_size_, ffn_;
    float eps_;
    bool norm_before_residual_;
    int64_t num_slots_, max_rows_;
    std::unique_ptr<WeightMemory> weights_;
    PackedMatrix fc_, wq_, wk_, wv_, wo_, gate_, up_, down_, head_;
    Floats fc_bias_, target_norm_, input_norm_, hidden_norm_, post_norm_, final_norm_;
    RopeSource rope_;
    std::vector<int32_t> vocab_;
    LazyMemory features_;       // bfloat16 [slots][hidden]
    LazyMemory keys_, values_;  // float16 [slots + kMostRequests * kDeepest][kv_size]

    // Buffers of one call.
    Linear linear_;
    Floats state_, residual_, joined_, qkv_, mixed_, wide_, logits_, partials_;
    std::vector<Floats> scratch_, attention_scratch_;
    AttentionWork attention_;
};

}  // namespace sapwood
