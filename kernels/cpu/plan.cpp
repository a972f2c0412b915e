#include "plan.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>
#include <stdexcept>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "rope.h"
#include "vector_ops.h"

namespace sapwood {
namespace {

PackedMatrix described(const EncodedMatrix& source) { return {layout_of(source.format), source.out, source.in, nullptr}; }

int64_t widest_input(const DecoderSource& source) {
    int64_t widest = source.hidden;
    for (const LayerSource& layer : source.layers) widest = std::max({widest, layer.wo.in, layer.down.in});
    return widest;
}

}  // namespace

LazyMemory::LazyMemory(size_t bytes) : bytes_(std::max(bytes, size_t(1))) {
#if defined(__linux__)
    void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    data_ = static_cast<uint8_t*>(memory);
#else
    data_ = static_cast<uint8_t*>(std::calloc(bytes_, 1));
    if (!data_) throw std::bad_alloc();
#endif
}

LazyMemory::~LazyMemory() {
#if defined(__linux__)
    munmap(data_, bytes_);
#else
    std::free(data_);
#endif
}

Plan::Plan(const DecoderSource& source, int64_t num_slots, int64_t max_rows, int threads, std::vector<int32_t> captures)
    : heads_(source.num_heads),
      kv_heads_(source.num_kv_heads),
      dim_(source.head_dim),
      hidden_(source.hidden),
      vocab_(source.vocab),
      ffn_(source.layers.empty() ? 0 : int32_t(source.layers[0].down.in)),
      kv_size_(source.num_kv_heads * source.head_dim),
      eps_(source.norm_eps),
      attn_scale_(source.attn_scale),
      embed_scale_(source.embed_scale),
      attn_softcap_(source.attn_softcap),
      logit_softcap_(source.logit_softcap),
      gelu_(source.gelu),
      num_slots_(num_slots),
      max_rows_(max_rows),
      final_norm_(source.final_norm),
      ropes_(source.ropes),
      captures_(std::move(captures)),
      kv_(source.layers.size() * 2 * size_t(num_slots) * size_t(kv_size_) * sizeof(uint16_t)),
      pool_(threads > 0 ? threads : usable_cores()),
      linear_(pool_, max_rows, widest_input(source)) {
    if (dim_ % 16 != 0 || dim_ > 1024) throw std::invalid_argument("heads must have a multiple of 16 channels, at most 1024");
    for (int32_t layer : captures_)
        if (layer < 0 || size_t(layer) > source.layers.size()) throw std::invalid_argument("a captured layer is out of range");
    if (heads_ / kv_heads_ > 64 || heads_ % kv_heads_) throw std::invalid_argument("at most 64 query heads may share a key head");
    // All packed matrices lie in one piece of memory.
    std::vector<std::pair<PackedMatrix*, const EncodedMatrix*>> parts;
    layers_.resize(source.layers.size());
    embed_ = described(source.embed);
    parts.emplace_back(&embed_, &source.embed);
    if (source.head) {
        head_ = described(*source.head);
        parts.emplace_back(&head_, &*source.head);
    }
    uint16_t* kv = reinterpret_cast<uint16_t*>(kv_.data());
    for (size_t i = 0; i < layers_.size(); ++i) {
        const LayerSource& from = source.layers[i];
        Layer& layer = layers_[i];
        const std::pair<PackedMatrix*, const EncodedMatrix*> matrices[] = {
            {&layer.wq, &from.wq}, {&layer.wk, &from.wk}, {&layer.wv, &from.wv},    {&layer.wo, &from.wo},
            {&layer.gate, &from.gate}, {&layer.up, &from.up}, {&layer.down, &from.down}};
        for (const auto& [matrix, encoded] : matrices) {
            *matrix = described(*encoded);
            parts.emplace_back(matrix, encoded);
        }
        layer.attn_norm = from.attn_norm;
        layer.ffn_norm = from.ffn_norm;
        layer.post_attn_norm = from.post_attn_norm;
        layer.post_ffn_norm = from.post_ffn_norm;
        layer.q_norm = from.q_norm;
        layer.k_norm = from.k_norm;
        layer.q_bias = from.q_bias;
        layer.k_bias = from.k_bias;
        layer.v_bias = from.v_bias;
        layer.window = from.window;
        layer.rope = from.rope;
        layer.keys = kv + 2 * i * size_t(num_slots) * size_t(kv_size_);
        layer.values = layer.keys + size_t(num_slots) * size_t(kv_size_);
        ffn_ = std::max(ffn_, int32_t(from.down.in));
    }
    size_t bytes = 0;
    for (const auto& [matrix, encoded] : parts) bytes += WeightMemory::aligned_bytes(matrix->bytes());
    weights_ = std::make_unique<WeightMemory>(bytes);
    for (const auto& [matrix, encoded] : parts) {
        uint8_t* target = weights_->take(matrix->bytes());
        matrix->data = target;
        const int64_t blocks = matrix->num_blocks(), step = std::max<int64_t>(1, blocks / 64);
        pool_.run((blocks + step - 1) / step, [&, m = matrix, e = encoded](int64_t chunk, int) {
            pack_blocks(*m, target, e->format, e->data, chunk * step, std::min(blocks, (chunk + 1) * step));
        });
    }
    if (!source.head) head_ = embed_;
    x_.resize(size_t(max_rows * hidden_));
    qkv_.resize(size_t(max_rows) * size_t(heads_ * dim_ + 2 * kv_size_));
    wide_.resize(size_t(max_rows) * size_t(2 * ffn_));
    part_.resize(size_t(max_rows * hidden_));
    cos_sin_.resize(ropes_.size());
    row_scratch_.assign(size_t(pool_.size()), Floats(size_t(std::max({hidden_, ffn_, heads_ * dim_}))));
    attention_scratch_.assign(size_t(pool_.size()), Floats(size_t(attention_scratch(dim_))));
}

void Plan::rotations(const BatchView& batch) {
    for (size_t i = 0; i < ropes_.size(); ++i) {
        const RopeSource& rope = ropes_[i];
        const size_t half = rope.inv_freq.size();
        cos_sin_[i].resize(std::max(cos_sin_[i].size(), size_t(batch.rows) * 2 * half));
        linear_.each_row(batch.rows, [&](int64_t row, int) {
            float* at = cos_sin_[i].data() + size_t(row) * 2 * half;
            rope_angles(rope.inv_freq.data(), int64_t(half), batch.positions[row], rope.magnitude, at, at + half);
        });
    }
}

void Plan::prepare(const BatchView& batch) {
    BatchRows& rows = attention_rows_;
    rows.count = batch.rows;
    rows.table.resize(size_t(batch.rows));
    rows.table_len.resize(size_t(batch.rows));
    rows.last.assign(batch.positions, batch.positions + batch.rows);
    draft_tables_.clear();
    std::vector<int64_t> seen(batch.tables.size(), 0);  // rows of each sequence so far
    draft_tables_.reserve(size_t(batch.rows));
    for (int64_t row = 0; row < batch.rows; ++row) {
        const size_t sequence = size_t(batch.sequences[row]);
        rows.table[size_t(row)] = batch.tables[sequence];
        rows.table_len[size_t(row)] = batch.table_lens[sequence];
        for (const DraftRows& draft : batch.drafts) {
            if (size_t(draft.sequence) != sequence) continue;
            const int32_t* table = batch.tables[sequence];
            auto& own = draft_tables_.emplace_back(table, table + draft.start);
            for (uint64_t mask = draft.ancestors[seen[sequence]]; mask; mask &= mask - 1)
                own.push_back(table[draft.start + __builtin_ctzll(mask)]);
            rows.table[size_t(row)] = own.data();
            rows.table_len[size_t(row)] = int32_t(own.size());
        }
        ++seen[sequence];
    }
    attention_work_.clear();
    for (const Layer& layer : layers_) {
        const auto same = [&](const auto& work) { return work.first == layer.window; };
        if (std::any_of(attention_work_.begin(), attention_work_.end(), same)) continue;
        attention_work_.emplace_back(layer.window, AttentionWork());
        attention_work_.back().second.plan(rows, layer.window, heads_ / kv_heads_, heads_, dim_);
        partials_.resize(std::max(partials_.size(), size_t(attention_work_.back().second.partial_floats())));
    }
    rotations(batch);
}

void Plan::finish_qkv(const Layer& layer, const BatchView& batch, int64_t row) {
    const VectorOps& ops = vector_ops();
    const int64_t q_size = heads_ * dim_;
    float* qkv = qkv_.data() + row * (q_size + 2 * kv_size_);
    if (!layer.q_bias.empty()) ops.add(qkv, layer.q_bias.data(), q_size);
    if (!layer.k_bias.empty()) ops.add(qkv + q_size, layer.k_bias.data(), kv_size_);
    if (!layer.v_bias.empty()) ops.add(qkv + q_size + kv_size_, layer.v_bias.data(), kv_size_);
    const RopeSource& rope = ropes_[size_t(layer.rope)];
    const int64_t half = int64_t(rope.inv_freq.size());
    const float* cos = cos_sin_[size_t(layer.rope)].data() + row * 2 * half;
    const float* sin = cos + half;
    for (int64_t head = 0; head < heads_ + kv_heads_; ++head) {
        float* x = qkv + head * dim_;
        const Floats& norm = head < heads_ ? layer.q_norm : layer.k_norm;
        if (!norm.empty()) ops.rms_norm(x, norm.data(), eps_, dim_, x);
        rotate_head(x, half, rope.interleaved, cos, sin);
        if (head < heads_)
            for (int64_t d = 0; d < dim_; ++d) x[d] *= attn_scale_;
    }
    if (batch.slots[row] >= 0) {
        const int64_t at = int64_t(batch.slots[row]) * kv_size_;
        ops.to_half(qkv + q_size, kv_size_, layer.keys + at);
        ops.to_half(qkv + q_size + kv_size_, kv_size_, layer.values + at);
    }
}

void Plan::add_output(const PackedMatrix& matrix, const Floats& post_norm, int64_t rows) {
    if (post_norm.empty()) {
        linear_.multiply({{&matrix, 0}}, x_.data(), hidden_, true);
        return;
    }
    linear_.multiply({{&matrix, 0}}, part_.data(), hidden_);
    const VectorOps& ops = vector_ops();
    linear_.each_row(rows, [&](int64_t row, int) {
        float* part = part_.data() + row * hidden_;
        ops.rms_norm(part, post_norm.data(), eps_, hidden_, part);
        ops.add(x_.data() + row * hidden_, part, hidden_);
    });
}

void Plan::attention(const Layer& layer, const BatchView& batch) {
    const VectorOps& ops = vector_ops();
    const int64_t rows = batch.rows, q_size = heads_ * dim_, width = q_size + 2 * kv_size_;
    linear_.begin({&layer.wq, &layer.wk, &layer.wv}, rows, hidden_);
    linear_.each_row(rows, [&](int64_t row, int thread) {
        float* normed = row_scratch_[size_t(thread)].data();
        ops.rms_norm(x_.data() + row * hidden_, layer.attn_norm.data(), eps_, hidden_, normed);
        linear_.set(row, normed);
    });
    linear_.multiply({{&layer.wq, 0}, {&layer.wk, q_size}, {&layer.wv, q_size + kv_size_}}, qkv_.data(), width);
    linear_.each_row(rows, [&](int64_t row, int) { finish_qkv(layer, batch, row); });
    const AttentionWork& work = std::find_if(attention_work_.begin(), attention_work_.end(), [&](const auto& one) {
                                    return one.first == layer.window;
                                })->second;
    work.run(pool_, {qkv_.data(), width, layer.keys, layer.values, attn_softcap_}, partials_.data(), attention_scratch_);
    linear_.begin({&layer.wo}, rows, q_size);
    linear_.each_row(rows, [&](int64_t row, int thread) {
        float* mixed = row_scratch_[size_t(thread)].data();
        work.merge(row, partials_.data(), mixed);
        linear_.set(row, mixed);
    });
    add_output(layer.wo, layer.post_attn_norm, rows);
}

void Plan::feed_forward(const Layer& layer, int64_t rows) {
    const VectorOps& ops = vector_ops();
    const int64_t ffn = layer.down.in;
    linear_.begin({&layer.gate, &layer.up}, rows, hidden_);
    linear_.each_row(rows, [&](int64_t row, int thread) {
        float* normed = row_scratch_[size_t(thread)].data();
        ops.rms_norm(x_.data() + row * hidden_, layer.ffn_norm.data(), eps_, hidden_, normed);
        linear_.set(row, normed);
    });
    linear_.multiply({{&layer.gate, 0}, {&layer.up, ffn}}, wide_.data(), 2 * ffn);
    linear_.begin({&layer.down}, rows, ffn);
    linear_.each_row(rows, [&](int64_t row, int thread) {
        float* act = row_scratch_[size_t(thread)].data();
        const float* gate = wide_.data() + row * 2 * ffn;
        (gelu_ ? ops.gelu_mul : ops.silu_mul)(gate, gate + ffn, ffn, act);
        linear_.set(row, act);
    });
    add_output(layer.down, layer.post_ffn_norm, rows);
}

void Plan::capture(size_t layer, int64_t rows, float* features) {
    const int64_t count = int64_t(captures_.size());
    for (int64_t c = 0; features && c < count; ++c)
        if (size_t(captures_[size_t(c)]) == layer)
            for (int64_t row = 0; row < rows; ++row)
                std::memcpy(features + (row * count + c) * hidden_, x_.data() + row * hidden_, size_t(hidden_) * sizeof(float));
}

void Plan::run(const BatchView& batch, float* logits, float* hidden, float* features) {
    const VectorOps& ops = vector_ops();
    prepare(batch);
    linear_.each_row(batch.rows, [&](int64_t row, int) {
        float* x = x_.data() + row * hidden_;
        dequantize_row(embed_, batch.ids[row], x);
        if (embed_scale_ != 1.0f)
            for (int64_t k = 0; k < hidden_; ++k) x[k] *= embed_scale_;
    });
    for (size_t i = 0; i < layers_.size(); ++i) {
        capture(i, batch.rows, features);
        attention(layers_[i], batch);
        feed_forward(layers_[i], batch.rows);
    }
    capture(layers_.size(), batch.rows, features);
    if (!batch.outputs) return;
    linear_.begin({&head_}, batch.outputs, hidden_);
    linear_.each_row(batch.outputs, [&](int64_t out, int thread) {
        float* normed = hidden ? hidden + out * hidden_ : row_scratch_[size_t(thread)].data();
        ops.rms_norm(x_.data() + int64_t(batch.output_rows[out]) * hidden_, final_norm_.data(), eps_, hidden_, normed);
        linear_.set(out, normed);
    });
    linear_.multiply({{&head_, 0}}, logits, vocab_);
    if (logit_softcap_ > 0)
        linear_.each_row(batch.outputs, [&](int64_t out, int) { ops.softcap(logits + out * vocab_, logit_softcap_, vocab_); });
}

void Plan::read(const int32_t* slots, int64_t count, uint8_t* records) const {
    const size_t bytes = size_t(kv_size_) * sizeof(uint16_t);
    for (int64_t i = 0; i < count; ++i)
        for (const Layer& layer : layers_)
            for (const uint16_t* from : {layer.keys, layer.values}) {
                std::memcpy(records, from + int64_t(slots[i]) * kv_size_, bytes);
                records += bytes;
            }
}

void Plan::write(const int32_t* slots, int64_t count, const uint8_t* records) {
    const size_t bytes = size_t(kv_size_) * sizeof(uint16_t);
    for (int64_t i = 0; i < count; ++i)
        for (const Layer& layer : layers_)
            for (uint16_t* to : {layer.keys, layer.values}) {
                std::memcpy(to + int64_t(slots[i]) * kv_size_, records, bytes);
                records += bytes;
            }
}

}  // namespace sapwood
