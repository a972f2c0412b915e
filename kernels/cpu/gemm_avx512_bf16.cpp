// The bfloat16 matmul for AVX-512 BF16: a lane is an output, an instruction takes a pair of inputs.
#include "gemm_kernels.h"

#if defined(__AVX512BF16__)

#include <immintrin.h>

namespace sapwood::avx512 {
namespace {

constexpr int kRowsAtOnce = 6;

inline __m512bh load_pairs(const uint8_t* at) { return (__m512bh)_mm512_load_si512(at); }

// The sums of `rows` rows and `blocks` blocks in registers. `stride`: rows of the panel.
template <int rows, int blocks>
void tile(const uint8_t* block, size_t block_bytes, int64_t pairs, const uint32_t* acts, int64_t stride, float* sums) {
    __m512 sum[blocks][rows];
    for (int b = 0; b < blocks; ++b)
        for (int row = 0; row < rows; ++row) sum[b][row] = _mm512_setzero_ps();
    for (int64_t p = 0; p < pairs; ++p, acts += stride) {
        __m512bh w[blocks];
        for (int b = 0; b < blocks; ++b) {
            const uint8_t* at = block + b * block_bytes + 64 * p;
            _mm_prefetch(reinterpret_cast<const char*>(at + kPrefetchBytes), _MM_HINT_T1);
            w[b] = load_pairs(at);
        }
        for (int row = 0; row < rows; ++row) {
            const __m512bh a = (__m512bh)_mm512_set1_epi32(int(acts[row]));
            for (int b = 0; b < blocks; ++b) sum[b][row] = _mm512_dpbf16_ps(sum[b][row], w[b], a);
        }
    }
    for (int b = 0; b < blocks; ++b)
        for (int row = 0; row < rows; ++row) _mm512_store_ps(sums + (b * kPanelRows + row) * 16, sum[b][row]);
}

template <int blocks>
void tiles(const uint8_t* block, size_t block_bytes, int64_t pairs, const uint32_t* panel, int rows, float* sums) {
    int row = 0;
    for (; row + kRowsAtOnce <= rows; row += kRowsAtOnce)
        tile<kRowsAtOnce, blocks>(block, block_bytes, pairs, panel + row, rows, sums + row * 16);
    using Tile = void (*)(const uint8_t*, size_t, int64_t, const uint32_t*, int64_t, float*);
    constexpr Tile kRest[kRowsAtOnce] = {nullptr,         tile<1, blocks>, tile<2, blocks>,
                                         tile<3, blocks>, tile<4, blocks>, tile<5, blocks>};
    if (row < rows) kRest[rows - row](block, block_bytes, pairs, panel + row, rows, sums + row * 16);
}

}  // namespace

void bf16_blocks(const PackedMatrix& weights, int64_t first, int count, const uint32_t* panel, int rows, float* sums) {
    const int64_t pairs = (weights.in + 1) / 2;
    const uint8_t* block = weights.block(first);
    if (count == kBlocksPerCall) return tiles<kBlocksPerCall>(block, weights.block_bytes(), pairs, panel, rows, sums);
    for (int b = 0; b < count; ++b, block += weights.block_bytes(), sums += kSumsPerBlock)
        tiles<1>(block, 0, pairs, panel, rows, sums);
}

}  // namespace sapwood::avx512

#endif
