// What the plan computes besides matmuls: row by row, and attention over one range of positions.
#pragma once

#include <cstdint>

namespace sapwood {

constexpr int kAttentionBlock = 64;   // positions that are looked at together
constexpr int kAttentionRange = 256;  // positions of one partial softmax; fixed, so bits don't depend on the batch
constexpr int kTileRows = 16;         // most rows that share one reading of a range

// Attention of a tile of rows over one range of positions, for one key head and the query heads of its group.
struct AttentionTile {
    const float* q[kTileRows];      // [group][dim], scaled already
    int32_t first[kTileRows];       // the row sees positions first .. last
    int32_t last[kTileRows];
    float* partial[kTileRows];      // [group][dim + 2]: maximum, sum of weights, weighted sum of values
    int32_t num_rows;
    int32_t group;
    int32_t dim;                    // a multiple of 16
    const int32_t* slots;           // of the range's positions, from `begin` on
    int32_t begin;
    int32_t end;                    // at most begin + kAttentionRange
    const uint16_t* keys;           // float16 [slots][stride], at this head
    const uint16_t* values;
    int64_t stride;
    float softcap;                  // 0: none
    float* scratch;                 // attention_scratch(dim) floats
};
constexpr int64_t attention_scratch(int64_t dim) {
    return 2 * kAttentionBlock * dim + int64_t(kTileRows) * 64 * kAttentionBlock;
}

struct VectorOps {
    // out = x / sqrt(mean(x^2) + eps) * weight over n values; out may be x.
    void (*rms_norm)(const float* x, const float* weight, float eps, int64_t n, float* out);
    // x += y
    void (*add)(float* x, const float* y, int64_t n);
    // out = act(gate) * up
    void (*silu_mul)(const float* gate, const float* up, int64_t n, float* out);
    void (*gelu_mul)(const float* gate, const float* up, int64_t n, float* out);
    void (*to_half)(const float* x, int64_t n, uint16_t* out);  // n is a multiple of 16
    // x = cap * tanh(x / cap)
    void (*softcap)(float* x, float cap, int64_t n);
    // The first of the largest values whose mask bits (bit i % 32 of word i / 32) are set; 0 where none is.
    int64_t (*masked_argmax)(const float* x, const uint32_t* mask, int64_t n);
    // x = minus infinity where the mask's bits are not set
    void (*forbid)(float* x, const uint32_t* mask, int64_t n);
    // The sum of exp(x - maximum) over n values.
    float (*exp_total)(const float* x, float maximum, int64_t n);
    void (*attention_tile)(const AttentionTile& tile);
    // Merge `count` partials [dim + 2] that lie `stride` floats apart, in order, into out [dim].
    void (*attention_merge)(const float* partials, int64_t stride, int count, int64_t dim, float* out);
};

namespace portable {
extern const VectorOps vector_ops;
}
#if defined(__x86_64__)
namespace avx2 {
extern const VectorOps vector_ops;
}
namespace avx512 {
extern const VectorOps vector_ops;
}
#endif

// For the instruction set in use.
const VectorOps& vector_ops();

}  // namespace sapwood
