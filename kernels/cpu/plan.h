// The native plan: a decoder compiled to a fixed sequence of kernel calls over buffers that are made once.
//
// One run() is one call: the CPU's counterpart of a CUDA graph. It knows nothing of requests or of the tree.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "attention.h"
#include "linear.h"
#include "pack.h"
#include "pool.h"

namespace sapwood {

// An encoded matrix of the checkpoint; read while the plan is made, not after.
struct EncodedMatrix {
    Format format;
    int64_t out = 0;
    int64_t in = 0;
    const uint8_t* data = nullptr;
};

using Floats = std::vector<float>;  // empty: not there

struct LayerSource {
    EncodedMatrix wq, wk, wv, wo, gate, up, down;
    Floats attn_norm, ffn_norm, post_attn_norm, post_ffn_norm, q_norm, k_norm, q_bias, k_bias, v_bias;
    int32_t window = 0;  // 0: none
    int32_t rope = 0;    // index into DecoderSource::ropes
};

struct RopeSource {
    Floats inv_freq;
    bool interleaved = false;
    float magnitude = 1.0f;
};

struct DecoderSource {
    int32_t num_heads, num_kv_heads, head_dim, hidden, vocab;
    float norm_eps, attn_scale, embed_scale, attn_softcap, logit_softcap;  // softcaps 0: none
    bool gelu = false;
    EncodedMatrix embed;
    std::optional<EncodedMatrix> head;  // absent: the embedding
    Floats final_norm;
    std::vector<RopeSource> ropes;
    std::vector<LayerSource> layers;
};

// Zero-filled memory that costs nothing until it is written.
class LazyMemory {
   public:
    explicit LazyMemory(size_t bytes);
    ~LazyMemory();
    LazyMemory(const LazyMemory&) = delete;
    LazyMemory& operator=(const LazyMemory&) = delete;
    uint8_t* data() const { return data_; }

   private:
    uint8_t* data_;
    size_t bytes_;
};

struct DraftRows {
    int32_t sequence;
    int32_t start;
    const uint64_t* ancestors;  // one for each row of the sequence, in the batch's order
};

struct BatchView {
    int64_t rows = 0;
    const int32_t* ids = nullptr;
    const int32_t* positions = nullptr;
    const int32_t* slots = nullptr;
    const int32_t* sequences = nullptr;
    std::vector<const int32_t*> tables;
    std::vector<int32_t> table_lens;
    std::vector<DraftRows> drafts;
    int64_t outputs = 0;
    const int32_t* output_rows = nullptr;
};

class Plan {
   public:
    Plan(const DecoderSource& source, int64_t num_slots, int64_t max_rows, int threads, std::vector<int32_t> captures);

    // For a plan made of matrices without rows: read the packed weights from memory that outlives the plan. `shapes`: the
    // embedding, the head if it is a matrix of its own, then each layer's in LayerSource's order.
    void adopt(const std::vector<EncodedMatrix>& shapes, const uint8_t* data, size_t bytes);

    // captures: layers whose input is wanted, 0 .. the number of layers, which stands for what leaves the last one.
    // logits [outputs][vocab]; hidden [outputs][hidden] and features [rows][captures * hidden] may be null.
    void run(const BatchView& batch, float* logits, float* hidden, float* features);

    int64_t max_rows() const { return max_rows_; }
    int64_t num_slots() const { return num_slots_; }
    int32_t vocab() const { return vocab_; }
    int32_t hidden_size() const { return hidden_; }
    int64_t num_captures() const { return int64_t(captures_.size()); }
    int threads() const { return pool_.size(); }
    size_t weight_bytes() const { return weights_->size(); }
    const PackedMatrix& embedding() const { return embed_; }
    float embed_scale() const { return embed_scale_; }
    ThreadPool& pool() { return pool_; }  // between runs
    int64_t record_bytes() const { return int64_t(layers_.size()) * 2 * kv_size_ * 2; }
    void read(const int32_t* slots, int64_t count, uint8_t* records) const;
    void write(const int32_t* slots, int64_t count, const uint8_t* records);

   private:
    struct Layer {
        PackedMatrix wq, wk, wv, wo, gate, up, down;
        Floats attn_norm, ffn_norm, post_attn_norm, post_ffn_norm, q_norm, k_norm, q_bias, k_bias, v_bias;
        int32_t window, rope;
        uint16_t *keys, *values;  // float16 [slots][kv_size]
    };
    // Keep what enters this layer (or leaves the last one) if it is captured.
    void capture(size_t layer, int64_t rows, float* features);
    void prepare(const BatchView& batch);
    void rotations(const BatchView& batch);
    void attention(const Layer& layer, const BatchView& batch);
    void feed_forward(const Layer& layer, int64_t rows);
    void finish_qkv(const Layer& layer, const BatchView& batch, int64_t row);
    void add_output(const PackedMatrix& matrix, const Floats& post_norm, int64_t rows);

    int32_t heads_, kv_heads_, dim_, hidden_, vocab_, ffn_, kv_size_;
    float eps_, attn_scale_, embed_scale_, attn_softcap_, logit_softcap_;
    bool gelu_;
    int64_t num_slots_, max_rows_;
    std::unique_ptr<WeightMemory> weights_;
    PackedMatrix embed_, head_;
    Floats final_norm_;
    std::vector<RopeSource> ropes_;
    std::vector<Layer> layers_;
    std::vector<int32_t> captures_;
    LazyMemory kv_;
    ThreadPool pool_;

    // Buffers of one run.
    Linear linear_;
    Floats x_, qkv_, wide_, part_;              // [rows][hidden | q + 2 kv | 2 ffn | hidden]
    std::vector<Floats> cos_sin_;               // per rope: [rows][2][half]
    std::vector<Floats> row_scratch_;           // per thread
    std::vector<Floats> attention_scratch_;     // per thread
    Floats partials_;
    BatchRows attention_rows_;
    std::vector<std::vector<int32_t>> draft_tables_;
    std::vector<std::pair<int32_t, AttentionWork>> attention_work_;  // by window
};

}  // namespace sapwood
