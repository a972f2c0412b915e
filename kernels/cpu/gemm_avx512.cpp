// The matmul kernels for AVX-512 with VNNI. Lanes are outputs, so nothing is summed across a vector:
//
//     weights    8 vectors hold 32 inputs of 16 outputs, one byte each, 4 inputs a lane; unpacked once ...
//     rows       ... and multiplied with every row of the panel, whose 4 bytes are broadcast from memory
//     sums       one vector a row: in registers for up to 8 rows, else in the caller's array, which L1 holds
#include "gemm_kernels.h"

#if defined(__AVX512VNNI__)

#include <immintrin.h>

#include <cstring>

#include "gemm_avx512_unpack.h"

namespace sapwood::avx512 {
namespace {

// Adds 32 inputs of `rows` rows to their sums with `blocks` blocks, all of them interleaved: each is a chain of
// dependent instructions, and only several at once keep the multipliers busy.
template <Layout L, int blocks, int rows>
inline void add_group(const WeightGroup* group, const ActivationGroup* acts, __m512 (&sum)[rows][blocks]) {
    constexpr int kPerScale = 8 / L.scales();
    for (int s = 0; s < L.scales(); ++s) {
        __m512i dot[rows][blocks];
        for (int row = 0; row < rows; ++row) {
            __m512i start = _mm512_setzero_si512();
            if constexpr (!L.has_offset) {
                start = _mm512_set1_epi32(L.scales() == 1 ? acts[row].zero8 : acts[row].half_zero8[s]);
                if constexpr (L.bits > 4) start = _mm512_slli_epi32(start, L.bits - 4);
            }
            for (int b = 0; b < blocks; ++b) dot[row][b] = start;
        }
        for (int j = kPerScale * s; j < kPerScale * (s + 1); ++j)
            for (int row = 0; row < rows; ++row) {
                int32_t four;
                std::memcpy(&four, acts[row].q + 4 * j, 4);
                for (int b = 0; b < blocks; ++b)
                    dot[row][b] = _mm512_dpbusd_epi32(dot[row][b], group[b].q[j], _mm512_set1_epi32(four));
            }
        for (int row = 0; row < rows; ++row)
            for (int b = 0; b < blocks; ++b) {
                const __m512 scale = _mm512_mul_ps(group[b].scale[s], _mm512_set1_ps(acts[row].scale));
                sum[row][b] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[row][b]), scale, sum[row][b]);
                if constexpr (L.has_offset) {
                    const float row_sum = L.scales() == 1 ? acts[row].sum : acts[row].half_sum[s];
                    sum[row][b] = _mm512_fmadd_ps(group[b].offset[s], _mm512_set1_ps(row_sum), sum[row][b]);
                }
            }
    }
}

// One to eight rows of one block, with their sums in registers.
template <Layout L, int rows>
void few_rows(const uint8_t* block, int64_t in, const ActivationGroup* panel, float* sums) {
    __m512 sum[rows][1];
    for (int row = 0; row < rows; ++row) sum[row][0] = _mm512_setzero_ps();
    for_each_group<L, 1>(block, 0, in, [&, panel](const WeightGroup* group, int64_t g) {
        add_group<L, 1, rows>(group, panel + g * rows, sum);
    });
    for (int row = 0; row < rows; ++row) _mm512_store_ps(sums + 16 * row, sum[row][0]);
}

// The same for `rows` rows of `blocks` blocks, with the sums in memory.
template <Layout L, int blocks, int rows>
inline void add_to_sums(const WeightGroup* group, const ActivationGroup* acts, float* sums) {
    __m512 sum[rows][blocks];
    for (int row = 0; row < rows; ++row)
        for (int b = 0; b < blocks; ++b) sum[row][b] = _mm512_load_ps(sums + b * kSumsPerBlock + row * 16);
    add_group<L, blocks, rows>(group, acts, sum);
    for (int row = 0; row < rows; ++row)
        for (int b = 0; b < blocks; ++b) _mm512_store_ps(sums + b * kSumsPerBlock + row * 16, sum[row][b]);
}

// Any number of rows of one or two blocks. Two blocks share what is loaded of the rows.
template <Layout L, int blocks>
void many_rows(const uint8_t* block, size_t block_bytes, int64_t in, const ActivationGroup* panel, int rows,
               float* sums) {
    const size_t sums_bytes = size_t(rows) * kBlockOutputs * sizeof(float);
    for (int b = 0; b < blocks; ++b) std::memset(sums + b * kSumsPerBlock, 0, sums_bytes);
    for_each_group<L, blocks>(block, block_bytes, in, [=](const WeightGroup* group, int64_t g) {
        const ActivationGroup* acts = panel + g * rows;
        int row = 0;
        for (; row + 2 <= rows; row += 2) add_to_sums<L, blocks, 2>(group, acts + row, sums + row * 16);
        if (row < rows) add_to_sums<L, blocks, 1>(group, acts + row, sums + row * 16);
    });
}

using FewRows = void (*)(const uint8_t* block, int64_t in, const ActivationGroup* panel, float* sums);
constexpr int kMostFewRows = 8;

template <Layout L>
constexpr FewRows kFewRows[] = {nullptr,        few_rows<L, 1>, few_rows<L, 2>, few_rows<L, 3>, few_rows<L, 4>,
                                few_rows<L, 5>, few_rows<L, 6>, few_rows<L, 7>, few_rows<L, kMostFewRows>};

template <Layout L>
struct Blocks {
    static void run(const PackedMatrix& weights, int64_t first, int count, const ActivationGroup* panel, int rows,
                    float* sums) {
        const size_t block_bytes = weights.block_bytes();
        const uint8_t* block = weights.block(first);
        if (rows <= kMostFewRows) {
            for (int b = 0; b < count; ++b)
                kFewRows<L>[rows](block + b * block_bytes, weights.in, panel, sums + b * kSumsPerBlock);
            return;
        }
        int b = 0;
        for (; b + 2 <= count; b += 2)
            many_rows<L, 2>(block + b * block_bytes, block_bytes, weights.in, panel, rows, sums + b * kSumsPerBlock);
        if (b < count) many_rows<L, 1>(block + b * block_bytes, 0, weights.in, panel, rows, sums + b * kSumsPerBlock);
    }
};

}  // namespace

Int8Kernel int8_kernel(const Layout& layout) { return pick_int8_kernel<Blocks>(layout); }

void quantize(const float* x, int64_t in, ActivationGroup* groups, int64_t stride) {
    for (int64_t g = 0; g < in / kGroup; ++g, x += kGroup, groups += stride) {
        const __m512 x0 = _mm512_loadu_ps(x), x1 = _mm512_loadu_ps(x + 16);
        const float largest = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_abs_ps(x0), _mm512_abs_ps(x1)));
        const __m512 inverse = _mm512_set1_ps(inverse_scale(largest));
        const __m128i q0 = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(x0, inverse)));
        const __m128i q1 = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(x1, inverse)));
        const __m256i q = _mm256_set_m128i(q1, q0);
        _mm256_store_si256(reinterpret_cast<__m256i*>(groups->q), q);
        // finish_group(), with fewer instructions.
        __m256i sums = _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_set1_epi8(1), q);
        sums = _mm256_add_epi32(sums, _mm256_shuffle_epi32(sums, 0xb1));
        sums = _mm256_add_epi32(sums, _mm256_shuffle_epi32(sums, 0x4e));  // each half's, in all of its lanes
        const __m128i first = _mm256_castsi256_si128(sums), second = _mm256_extracti128_si256(sums, 1);
        const __m128i both = _mm_add_epi32(first, second);
        const __m128i parts = _mm_unpacklo_epi64(_mm_unpacklo_epi32(both, first), second);  // both, first, second, second
        const __m128 scale = _mm_set1_ps(largest / 127.0f);
        const __m128 scaled = _mm_mul_ps(_mm_cvtepi32_ps(_mm_shuffle_epi32(parts, 0x90)), scale);
        _mm_store_ps(&groups->scale, _mm_move_ss(scaled, scale));
        const __m128i zeros = _mm_sub_epi32(_mm_setzero_si128(), _mm_slli_epi32(parts, 3));
        _mm_store_si128(reinterpret_cast<__m128i*>(&groups->zero8), zeros);
    }
}

void store_sums(const float* sums, int rows, int64_t columns, float* out, int64_t out_stride, bool accumulate) {
    const int blocks = int((columns + kBlockOutputs - 1) / kBlockOutputs);
    const __mmask16 last = __mmask16(0xffff >> (blocks * kBlockOutputs - columns));
    for (int row = 0; row < rows; ++row, sums += kBlockOutputs, out += out_stride)
        for (int b = 0; b < blocks; ++b) {
            const __mmask16 lanes = b + 1 == blocks ? last : __mmask16(0xffff);
            __m512 sum = _mm512_load_ps(sums + b * kSumsPerBlock);
            if (accumulate) sum = _mm512_add_ps(_mm512_maskz_loadu_ps(lanes, out + b * kBlockOutputs), sum);
            _mm512_mask_storeu_ps(out + b * kBlockOutputs, lanes, sum);
        }
}

int64_t do_dots(int64_t operations) {
    constexpr int64_t kChains = 12;  // enough to hide the latency; spelled out, or they would be kept in memory
    constexpr int64_t kPerStep = kChains * 64 * 2;
    const int64_t steps = (operations + kPerStep - 1) / kPerStep;
    const __m512i ones = _mm512_set1_epi8(1), zero = _mm512_setzero_si512();
    __m512i a = zero, b = zero, c = zero, d = zero, e = zero, f = zero;
    __m512i g = zero, h = zero, i = zero, j = zero, k = zero, l = zero;
    const auto step = [ones](__m512i& dot) {
        dot = _mm512_dpbusd_epi32(dot, ones, ones);
        __asm__ volatile("" : "+v"(dot));  // or the compiler would see through the loop
    };
    for (int64_t s = 0; s < steps; ++s) {
        step(a), step(b), step(c), step(d), step(e), step(f);
        step(g), step(h), step(i), step(j), step(k), step(l);
    }
    return steps * kPerStep;
}

}  // namespace sapwood::avx512

#endif
