#include "eagle.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "pack_formats.h"
#include "rope.h"
#include "vector_ops.h"

namespace sapwood {
namespace {

size_t packed_bytes(const EncodedMatrix& source) {
    return WeightMemory::aligned_bytes(PackedMatrix{layout_of(source.format), source.out, source.in, nullptr}.bytes());
}

uint16_t* halves(const LazyMemory& memory) { return reinterpret_cast<uint16_t*>(memory.data()); }

}  // namespace

Eagle::Eagle(Plan& target, const EagleSource& source)
    : target_(target),
      version_(source.version),
      heads_(source.num_heads),
      kv_heads_(source.num_kv_heads),
      dim_(source.head_dim),
      hidden_(target.hidden_size()),
      kv_size_(source.num_kv_heads * source.head_dim),
      ffn_(int32_t(source.down.in)),
      eps_(source.norm_eps),
      norm_before_residual_(source.norm_before_residual),
      num_slots_(target.num_slots()),
      max_rows_(std::max<int64_t>(target.max_rows(), kMostRequests)),
      fc_bias_(source.fc_bias),
      target_norm_(source.target_norm),
      input_norm_(source.input_norm),
      hidden_norm_(source.hidden_norm),
      post_norm_(source.post_norm),
      final_norm_(source.final_norm),
      rope_(source.rope),
      vocab_(source.vocab),
      features_(size_t(num_slots_) * size_t(hidden_) * sizeof(uint16_t)),
      keys_(size_t(num_slots_ + kMostRequests * kDeepest) * size_t(kv_size_) * sizeof(uint16_t)),
      values_(size_t(num_slots_ + kMostRequests * kDeepest) * size_t(kv_size_) * sizeof(uint16_t)),
      linear_(target.pool(), max_rows_, std::max({source.fc.in, int64_t(2 * hidden_), source.wo.in, source.down.in})) {
    if (dim_ % 16 != 0 || dim_ > 1024 || heads_ % kv_heads_ || heads_ / kv_heads_ > 64) throw std::invalid_argument("heads of an unsupported shape");
    const EncodedMatrix* matrices[] = {&source.fc, &source.wq, &source.wk,   &source.wv,  &source.wo,
                                       &source.gate, &source.up, &source.down, &source.head};
    size_t bytes = 0;
    for (const EncodedMatrix* matrix : matrices) bytes += packed_bytes(*matrix);
    weights_ = std::make_unique<WeightMemory>(bytes);
    fc_ = packed(source.fc);
    wq_ = packed(source.wq);
    wk_ = packed(source.wk);
    wv_ = packed(source.wv);
    wo_ = packed(source.wo);
    gate_ = packed(source.gate);
    up_ = packed(source.up);
    down_ = packed(source.down);
    head_ = packed(source.head);
    const size_t rows = size_t(max_rows_);
    state_.resize(rows * size_t(hidden_));
    residual_.resize(rows * size_t(hidden_));
    joined_.resize(rows * size_t(2 * hidden_));
    qkv_.resize(rows * size_t(heads_ * dim_ + 2 * kv_size_));
    mixed_.resize(size_t(kMostRequests) * size_t(heads_ * dim_));
    wide_.resize(size_t(kMostRequests) * size_t(2 * ffn_));
    logits_.resize(size_t(kMostRequests) * vocab_.size());
    scratch_.assign(size_t(target.pool().size()), Floats(size_t(std::max(2 * hidden_, ffn_))));
    attention_scratch_.assign(size_t(target.pool().size()), Floats(size_t(attention_scratch(dim_))));
}

PackedMatrix Eagle::packed(const EncodedMatrix& source) {
    PackedMatrix matrix{layout_of(source.format), source.out, source.in, nullptr};
    uint8_t* memory = weights_->take(matrix.bytes());
    matrix.data = memory;
    pack_blocks(matrix, memory, source.format, source.data, 0, matrix.num_blocks());
    return matrix;
}

void Eagle::recall(int64_t slot, int64_t row) {
    const uint16_t* kept = halves(features_) + slot * hidden_;
    for (int64_t k = 0; k < hidden_; ++k) state_[size_t(row * hidden_ + k)] = bf16_to_float(kept[k]);
}

void Eagle::enter(const int32_t* ids, int64_t rows) {
    const VectorOps& ops = vector_ops();
    const int64_t width = 2 * hidden_;
    const auto embed = [&](int64_t row) {
        float* e = joined_.data() + row * width;
        dequantize_row(target_.embedding(), ids[row], e);
        if (const float scale = target_.embed_scale(); scale != 1.0f)
            for (int64_t k = 0; k < hidden_; ++k) e[k] *= scale;
        return e;
    };
    if (version_ == 3) {
        linear_.begin({&wq_, &wk_, &wv_}, rows, width);
        linear_.each_row(rows, [&](int64_t row, int) {
            float* e = embed(row);
            const float* state = state_.data() + row * hidden_;
            ops.rms_norm(e, input_norm_.data(), eps_, hidden_, e);
            ops.rms_norm(state, hidden_norm_.data(), eps_, hidden_, e + hidden_);
            std::copy_n(norm_before_residual_ ? e + hidden_ : state, hidden_, residual_.data() + row * hidden_);
            linear_.set(row, e);
        });
        return;
    }
    linear_.begin({&fc_}, rows, width);
    linear_.each_row(rows, [&](int64_t row, int) {
        float* e = embed(row);
        std::copy_n(state_.data() + row * hidden_, hidden_, e + hidden_);
        linear_.set(row, e);
    });
    linear_.multiply({{&fc_, 0}}, residual_.data(), hidden_);
    linear_.begin({&wq_, &wk_, &wv_}, rows, hidden_);
    linear_.each_row(rows, [&](int64_t row, int) {
        float* x = residual_.data() + row * hidden_;
        if (!fc_bias_.empty()) ops.add(x, fc_bias_.data(), hidden_);
        linear_.set(row, x);
    });
}

void Eagle::finish(int64_t row, int32_t position, int64_t slot, bool has_queries) {
    const VectorOps& ops = vector_ops();
    const int64_t q_size = heads_ * dim_, half = int64_t(rope_.inv_freq.size());
    float* qkv = qkv_.data() + row * (q_size + 2 * kv_size_);
    float angles[1024];
    rope_angles(rope_.inv_freq.data(), half, position, rope_.magnitude, angles, angles + half);
    for (int64_t head = has_queries ? 0 : heads_; head < heads_ + kv_heads_; ++head)
        rotate_head(qkv + head * dim_, half, rope_.interleaved, angles, angles + half);
    const float scale = 1.0f / std::sqrt(float(dim_));
    for (int64_t i = 0; has_queries && i < q_size; ++i) qkv[i] *= scale;
    ops.to_half(qkv + q_size, kv_size_, halves(keys_) + slot * kv_size_);
    ops.to_half(qkv + q_size + kv_size_, kv_size_, halves(values_) + slot * kv_size_);
}

void Eagle::observe(const BatchView& batch, const float* features) {
    const VectorOps& ops = vector_ops();
    const int64_t rows = batch.rows, q_size = heads_ * dim_, width = q_size + 2 * kv_size_;
    const auto slot = [&](int64_t row, int32_t position) { return int64_t(batch.tables[size_t(batch.sequences[row])][position]); };
    const int64_t num_features = version_ == 3 ? fc_.in : hidden_;
    float* g = state_.data();
    if (version_ == 3) {
        linear_.begin({&fc_}, rows, num_features);
        linear_.each_row(rows, [&](int64_t row, int) { linear_.set(row, features + row * num_features); });
        linear_.multiply({{&fc_, 0}}, g, hidden_);
    }
    linear_.each_row(rows, [&](int64_t row, int) {
        if (version_ != 3) ops.rms_norm(features + row * hidden_, target_norm_.data(), eps_, hidden_, g + row * hidden_);
        uint16_t* kept = halves(features_) + slot(row, batch.positions[row]) * hidden_;
        for (int64_t k = 0; k < hidden_; ++k) kept[k] = float_to_bf16(g[row * hidden_ + k]);
    });
    linear_.each_row(rows, [&](int64_t row, int) {
        if (const int32_t position = batch.positions[row]; position > 0)
            recall(slot(row, position - 1), row);
    });
    enter(batch.ids, rows);
    linear_.multiply({{&wk_, q_size}, {&wv_, q_size + kv_size_}}, qkv_.data(), width);
    linear_.each_row(rows, [&](int64_t row, int) {
        if (const int32_t position = batch.positions[row]; position > 0) finish(row, position, slot(row, position), false);
    });
}

void Eagle::guess(const BatchRows& rows) {
    const VectorOps& ops = vector_ops();
    const int64_t count = rows.count, q_size = heads_ * dim_;
    attention_.plan(rows, 0, heads_ / kv_heads_, heads_, dim_);
    partials_.resize(std::max(partials_.size(), size_t(attention_.partial_floats())));
    attention_.run(target_.pool(), {qkv_.data(), q_size + 2 * kv_size_, halves(keys_), halves(values_), 0.0f},
                   partials_.data(), attention_scratch_);
    linear_.begin({&wo_}, count, q_size);
    linear_.each_row(count, [&](int64_t row, int) {
        attention_.merge(row, partials_.data(), mixed_.data() + row * q_size);
        linear_.set(row, mixed_.data() + row * q_size);
    });
    linear_.multiply({{&wo_, 0}}, residual_.data(), hidden_, true);
    linear_.begin({&gate_, &up_}, count, hidden_);
    linear_.each_row(count, [&](int64_t row, int thread) {
        float* normed = scratch_[size_t(thread)].data();
        ops.rms_norm(residual_.data() + row * hidden_, post_norm_.data(), eps_, hidden_, normed);
        linear_.set(row, normed);
    });
    linear_.multiply({{&gate_, 0}, {&up_, ffn_}}, wide_.data(), 2 * ffn_);
    linear_.begin({&down_}, count, ffn_);
    linear_.each_row(count, [&](int64_t row, int thread) {
        float* act = scratch_[size_t(thread)].data();
        const float* gate = wide_.data() + row * 2 * ffn_;
        ops.silu_mul(gate, gate + ffn_, ffn_, act);
        linear_.set(row, act);
    });
    linear_.multiply({{&down_, 0}}, residual_.data(), hidden_, true);
    linear_.begin({&head_}, count, hidden_);
    linear_.each_row(count, [&](int64_t row, int thread) {
        const float* h = residual_.data() + row * hidden_;
        float* normed = scratch_[size_t(thread)].data();
        if (version_ == 3) ops.rms_norm(h, final_norm_.data(), eps_, hidden_, normed);
        linear_.set(row, version_ == 3 ? normed : h);
    });
    linear_.multiply({{&head_, 0}}, logits_.data(), int64_t(vocab_.size()));
}

void Eagle::draft(const std::vector<Request>& requests, int depth, float least, const float* worth, int32_t* ids,
                  float* chances) {
    const VectorOps& ops = vector_ops();
    const int64_t q_size = heads_ * dim_, width = q_size + 2 * kv_size_, vocab = int64_t(vocab_.size());
    const std::vector<uint32_t> all((vocab_.size() + 31) / 32, ~0u);
    struct Running {
        size_t request;
        int32_t id;
        float worth;
        std::vector<int32_t> table;  // slots of the entries, the first of which stands for position 1
    };
    std::vector<Running> running;
    for (size_t r = 0; r < requests.size(); ++r) {
        const Request& request = requests[r];
        recall(request.table[request.length - 2], int64_t(r));
        running.push_back({r, request.id, 1.0f, {request.table + 1, request.table + request.length}});
    }
    std::fill_n(ids, requests.size() * size_t(depth), -1);
    std::fill_n(chances, requests.size() * size_t(depth), 0.0f);
    for (int step = 0; step < depth && !running.empty(); ++step) {
        const int64_t count = int64_t(running.size());
        std::vector<int32_t> entered;
        BatchRows rows;
        rows.count = count;
        for (Running& one : running) {
            entered.push_back(one.id);
            if (step) one.table.push_back(int32_t(num_slots_ + int64_t(one.request) * kDeepest + step - 1));
            rows.table.push_back(one.table.data());
            rows.table_len.push_back(int32_t(one.table.size()));
            rows.last.push_back(int32_t(one.table.size()) - 1);
        }
        enter(entered.data(), count);
        linear_.multiply({{&wq_, 0}, {&wk_, q_size}, {&wv_, q_size + kv_size_}}, qkv_.data(), width);
        linear_.each_row(count, [&](int64_t row, int) {
            const std::vector<int32_t>& table = running[size_t(row)].table;
            finish(row, int32_t(table.size()), table.back(), true);
        });
        guess(rows);
        std::vector<Running> going;
        for (int64_t row = 0; row < count; ++row) {
            Running& one = running[size_t(row)];
            const float* logits = logits_.data() + row * vocab;
            const int64_t best = ops.masked_argmax(logits, all.data(), vocab);
            const float chance = 1.0f / ops.exp_total(logits, logits[best], vocab);
            const size_t at = one.request * size_t(depth) + size_t(step);
            one.worth *= worth[std::clamp(int(chance * kBins), 0, kBins - 1)];
            if (!(one.worth >= least)) continue;
            ids[at] = one.id = vocab_[size_t(best)];
            chances[at] = chance;
            std::copy_n(residual_.data() + row * hidden_, hidden_, state_.data() + int64_t(going.size()) * hidden_);
            going.push_back(std::move(one));
        }
        running = std::move(going);
    }
}

}  // namespace sapwood
