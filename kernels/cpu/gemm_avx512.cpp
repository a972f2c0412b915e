// The matmul kernels for AVX-512 with VNNI. Lanes are outputs, so nothing is summed across a vector:
//
//     weights    8 vectors hold 32 inputs of 16 outputs, one byte each, 4 inputs a lane; unpacked once ...
//     rows       ... and multiplied with every row of the panel, whose 4 bytes are broadcast from memory
//     sums       one vector a row: in registers for up to 4 rows, else in the caller's array, which L1 holds
#include "gemm_kernels.h"

#if defined(__AVX512VNNI__)

#include <immintrin.h>

#include <cstring>

namespace sapwood::avx512 {
namespace {

// 32 inputs of a block, unpacked.
struct WeightGroup {
    __m512i q[8];
    __m512 scale[2];
    __m512 offset[2];
};

// First-level scales of 256 inputs.
struct SuperScales {
    __m512 scale;
    __m512 offset;
};

inline __m512i load(const uint8_t* at) { return _mm512_loadu_si512(at); }

inline __m512 load_halves(const uint8_t* at) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
}

inline __m512 load_bytes(const uint8_t* at) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at))));
}

// (plane shifted right by `shift`, left if negative) & mask | low
template <int shift>
inline __m512i add_high_bits(__m512i low, __m512i plane, __m512i mask) {
    __m512i moved = plane;
    if constexpr (shift > 0) moved = _mm512_srli_epi16(plane, shift);
    if constexpr (shift < 0) moved = _mm512_slli_epi16(plane, -shift);
    constexpr int kAndOr = 0xea;  // (a & b) | c
    return _mm512_ternarylogic_epi32(moved, mask, low, kAndOr);
}

template <Layout L>
inline void unpack_planes(const uint8_t* at, WeightGroup& group) {
    if constexpr (L.bits == 8) {
        for (int j = 0; j < 8; ++j) group.q[j] = load(at + 64 * j);
        return;
    }
    const __m512i nibble = _mm512_set1_epi8(15);
    for (int j = 0; j < 4; ++j) {
        const __m512i both = load(at + 64 * j);
        group.q[j] = _mm512_and_si512(both, nibble);
        group.q[4 + j] = _mm512_and_si512(_mm512_srli_epi16(both, 4), nibble);
    }
    if constexpr (L.bits == 5) {
        const __m512i plane = load(at + 256), fifth = _mm512_set1_epi8(0x10);
        group.q[0] = add_high_bits<-4>(group.q[0], plane, fifth);
        group.q[1] = add_high_bits<-3>(group.q[1], plane, fifth);
        group.q[2] = add_high_bits<-2>(group.q[2], plane, fifth);
        group.q[3] = add_high_bits<-1>(group.q[3], plane, fifth);
        group.q[4] = add_high_bits<0>(group.q[4], plane, fifth);
        group.q[5] = add_high_bits<1>(group.q[5], plane, fifth);
        group.q[6] = add_high_bits<2>(group.q[6], plane, fifth);
        group.q[7] = add_high_bits<3>(group.q[7], plane, fifth);
    }
    if constexpr (L.bits == 6) {
        const __m512i both = _mm512_set1_epi8(0x30);
        for (int half = 0; half < 2; ++half) {
            const __m512i plane = load(at + 256 + 64 * half);
            __m512i* q = group.q + 4 * half;
            q[0] = add_high_bits<-4>(q[0], plane, both);
            q[1] = add_high_bits<-2>(q[1], plane, both);
            q[2] = add_high_bits<0>(q[2], plane, both);
            q[3] = add_high_bits<2>(q[3], plane, both);
        }
    }
}

template <Layout L>
inline void unpack_scales(const uint8_t* at, const SuperScales& super, WeightGroup& group) {
    if constexpr (L.two_level) {
        for (int s = 0; s < L.scales(); ++s) {
            group.scale[s] = _mm512_mul_ps(super.scale, load_bytes(at + 16 * s));
            if constexpr (L.has_offset)
                group.offset[s] = _mm512_mul_ps(super.offset, load_bytes(at + 16 * (L.scales() + s)));
        }
    } else {
        group.scale[0] = load_halves(at);
        if constexpr (L.has_offset) group.offset[0] = load_halves(at + 32);
    }
}

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

// Calls use(group, g) for every 32 inputs g of `blocks` blocks that stand block_bytes apart, in order;
// group[b] is block b's part.
template <Layout L, int blocks, typename Use>
inline void for_each_group(const uint8_t* at, size_t block_bytes, int64_t in, Use use) {
    SuperScales super[blocks];
    WeightGroup group[blocks];
    for (int64_t g = 0; g < in / kGroup; ++g, at += L.group_bytes()) {
        if constexpr (L.two_level) {
            if (g % (kSuperGroup / kGroup) == 0) {
                for (int b = 0; b < blocks; ++b) {
                    super[b].scale = load_halves(at + b * block_bytes);
                    if constexpr (L.has_offset) super[b].offset = load_halves(at + b * block_bytes + 32);
                }
                at += L.super_bytes();
            }
        }
        for (int b = 0; b < blocks; ++b) {
            const uint8_t* here = at + b * block_bytes;
            for (size_t line = 0; line < L.group_bytes(); line += 64)
                _mm_prefetch(reinterpret_cast<const char*>(here + kPrefetchBytes + line), _MM_HINT_T1);
            unpack_planes<L>(here, group[b]);
            unpack_scales<L>(here + L.plane_bytes(), super[b], group[b]);
        }
        use(group, g);
    }
}

// One to four rows of one block, with their sums in registers.
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
void many_rows(const uint8_t* block, size_t block_bytes, int64_t in, const ActivationGroup* panel, int rows, float* sums) {
    for (int b = 0; b < blocks; ++b) std::memset(sums + b * kSumsPerBlock, 0, size_t(rows) * kBlockOutputs * sizeof(float));
    for_each_group<L, blocks>(block, block_bytes, in, [=](const WeightGroup* group, int64_t g) {
        const ActivationGroup* acts = panel + g * rows;
        int row = 0;
        for (; row + 2 <= rows; row += 2) add_to_sums<L, blocks, 2>(group, acts + row, sums + row * 16);
        if (row < rows) add_to_sums<L, blocks, 1>(group, acts + row, sums + row * 16);
    });
}

template <Layout L>
struct Blocks {
    static void run(const PackedMatrix& weights, int64_t first, int count, const ActivationGroup* panel, int rows,
                    float* sums) {
        const size_t block_bytes = weights.block_bytes();
        const uint8_t* block = weights.block(first);
        for (int b = 0; b < count; ++b, block += block_bytes, sums += kSumsPerBlock) {
            switch (rows) {
                case 1: few_rows<L, 1>(block, weights.in, panel, sums); continue;
                case 2: few_rows<L, 2>(block, weights.in, panel, sums); continue;
                case 3: few_rows<L, 3>(block, weights.in, panel, sums); continue;
                case 4: few_rows<L, 4>(block, weights.in, panel, sums); continue;
            }
            if (b + 1 == count) {
                many_rows<L, 1>(block, 0, weights.in, panel, rows, sums);
            } else {
                many_rows<L, 2>(block, block_bytes, weights.in, panel, rows, sums);
                ++b, block += block_bytes, sums += kSumsPerBlock;
            }
        }
    }
};

}  // namespace

Int8Kernel int8_kernel(const Layout& layout) { return pick_int8_kernel<Blocks>(layout); }

void quantize(const float* x, int64_t in, ActivationGroup* groups, int64_t stride) {
    for (int64_t g = 0; g < in / kGroup; ++g, x += kGroup, groups += stride) {
        const __m512 x0 = _mm512_loadu_ps(x), x1 = _mm512_loadu_ps(x + 16);
        const float largest = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_abs_ps(x0), _mm512_abs_ps(x1)));
        const float scale = largest / 127.0f;
        const __m512 inverse = _mm512_set1_ps(largest > 0 ? 127.0f / largest : 0.0f);
        const __m512i q0 = _mm512_cvtps_epi32(_mm512_mul_ps(x0, inverse));
        const __m512i q1 = _mm512_cvtps_epi32(_mm512_mul_ps(x1, inverse));
        _mm_store_si128(reinterpret_cast<__m128i*>(groups->q), _mm512_cvtepi32_epi8(q0));
        _mm_store_si128(reinterpret_cast<__m128i*>(groups->q + 16), _mm512_cvtepi32_epi8(q1));
        finish_group(*groups, scale, _mm512_reduce_add_epi32(q0), _mm512_reduce_add_epi32(q1));
    }
}

int64_t do_dots(int64_t operations) {
    constexpr int64_t kChains = 12;  // enough to hide the latency; spelled out, or they would be kept in memory
    constexpr int64_t kPerStep = kChains * 64 * 2;
    const int64_t steps = (operations + kPerStep - 1) / kPerStep;
    const __m512i ones = _mm512_set1_epi8(1), zero = _mm512_setzero_si512();
    __m512i a = zero, b = zero, c = zero, d = zero, e = zero, f = zero, g = zero, h = zero, i = zero, j = zero, k = zero, l = zero;
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
