// The bfloat16 matmul for AVX-512 BF16: a lane is an output, an instruction takes a pair of inputs.
#include "gemm_kernels.h"

#if defined(__AVX512BF16__)

#include <immintrin.h>

#include <cstring>

namespace sapwood::avx512 {
namespace {

constexpr int kRowsAtOnce = 6;

// The sums of `rows` rows and `blocks` blocks in registers. `stride`: rows of the panel.
template <int rows, int blocks>
void tile(const uint8_t* block, size_t block_bytes, int64_t groups, const Bf16Group* acts, int64_t stride,
          float* sums) {
    __m512 sum[blocks][rows];
    for (int b = 0; b < blocks; ++b)
        for (int row = 0; row < rows; ++row) sum[b][row] = _mm512_setzero_ps();
    for (int64_t g = 0; g < groups; ++g, acts += stride)
        for (int p = 0; p < kGroup / 2; ++p, block += 64) {
            __m512bh w[blocks];
            for (int b = 0; b < blocks; ++b) {
                const uint8_t* at = block + b * block_bytes;
                _mm_prefetch(reinterpret_cast<const char*>(at + kPrefetchBytes), _MM_HINT_T1);
                w[b] = (__m512bh)_mm512_loadu_si512(at);
            }
            for (int row = 0; row < rows; ++row) {
                int32_t pair;
                std::memcpy(&pair, acts[row].x + 2 * p, 4);
                for (int b = 0; b < blocks; ++b)
                    sum[b][row] = _mm512_dpbf16_ps(sum[b][row], w[b], (__m512bh)_mm512_set1_epi32(pair));
            }
        }
    for (int b = 0; b < blocks; ++b)
        for (int row = 0; row < rows; ++row) _mm512_store_ps(sums + b * kSumsPerBlock + row * 16, sum[b][row]);
}

template <int blocks>
void tiles(const uint8_t* block, size_t block_bytes, int64_t groups, const Bf16Group* panel, int rows, float* sums) {
    int row = 0;
    for (; row + kRowsAtOnce <= rows; row += kRowsAtOnce)
        tile<kRowsAtOnce, blocks>(block, block_bytes, groups, panel + row, rows, sums + row * 16);
    using Tile = void (*)(const uint8_t*, size_t, int64_t, const Bf16Group*, int64_t, float*);
    constexpr Tile kRest[kRowsAtOnce] = {nullptr,         tile<1, blocks>, tile<2, blocks>,
                                         tile<3, blocks>, tile<4, blocks>, tile<5, blocks>};
    if (row < rows) kRest[rows - row](block, block_bytes, groups, panel + row, rows, sums + row * 16);
}

}  // namespace

void bf16_blocks(const PackedMatrix& weights, int64_t first, int count, const Bf16Group* panel, int rows, float* sums) {
    const uint8_t* block = weights.block(first);
    const size_t block_bytes = weights.block_bytes();
    const int64_t groups = weights.num_groups();
    if (count == kBlocksPerCall) return tiles<kBlocksPerCall>(block, block_bytes, groups, panel, rows, sums);
    for (int b = 0; b < count; ++b, block += block_bytes, sums += kSumsPerBlock)
        tiles<1>(block, 0, groups, panel, rows, sums);
}

}  // namespace sapwood::avx512

#endif
