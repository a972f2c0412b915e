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

template <Layout L>
inline __m512 add_group(const WeightGroup& group, const ActivationGroup& row, __m512 sum) {
    constexpr int kPerScale = 8 / L.scales();
    for (int s = 0; s < L.scales(); ++s) {
        __m512i dot = _mm512_setzero_si512();
        if constexpr (!L.has_offset) {
            dot = _mm512_set1_epi32(L.scales() == 1 ? row.zero8 : row.half_zero8[s]);
            if constexpr (L.bits > 4) dot = _mm512_slli_epi32(dot, L.bits - 4);
        }
        for (int j = kPerScale * s; j < kPerScale * (s + 1); ++j) {
            int32_t four;
            std::memcpy(&four, row.q + 4 * j, 4);
            dot = _mm512_dpbusd_epi32(dot, group.q[j], _mm512_set1_epi32(four));
        }
        const __m512 scale = _mm512_mul_ps(group.scale[s], _mm512_set1_ps(row.scale));
        sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), scale, sum);
        if constexpr (L.has_offset)
            sum = _mm512_fmadd_ps(group.offset[s], _mm512_set1_ps(L.scales() == 1 ? row.sum : row.half_sum[s]), sum);
    }
    return sum;
}

// Calls use(group, g) for every 32 inputs g of a block, in order.
template <Layout L, typename Use>
inline void for_each_group(const uint8_t* at, int64_t in, Use use) {
    SuperScales super{};
    for (int64_t g = 0; g < in / kGroup; ++g, at += L.group_bytes()) {
        if constexpr (L.two_level) {
            if (g % (kSuperGroup / kGroup) == 0) {
                super.scale = load_halves(at);
                if constexpr (L.has_offset) super.offset = load_halves(at + 32);
                at += L.super_bytes();
            }
        }
        for (size_t line = 0; line < L.group_bytes(); line += 64)
            _mm_prefetch(reinterpret_cast<const char*>(at + kPrefetchBytes + line), _MM_HINT_T1);
        WeightGroup group;
        unpack_planes<L>(at, group);
        unpack_scales<L>(at + L.plane_bytes(), super, group);
        use(group, g);
    }
}

template <Layout L, int rows>
void few_rows(const uint8_t* block, int64_t in, const ActivationGroup* panel, float* sums) {
    __m512 sum[rows];
    for (int row = 0; row < rows; ++row) sum[row] = _mm512_setzero_ps();
    for_each_group<L>(block, in, [&](const WeightGroup& group, int64_t g) {
        for (int row = 0; row < rows; ++row) sum[row] = add_group<L>(group, panel[g * rows + row], sum[row]);
    });
    for (int row = 0; row < rows; ++row) _mm512_store_ps(sums + 16 * row, sum[row]);
}

template <Layout L>
void many_rows(const uint8_t* block, int64_t in, const ActivationGroup* panel, int rows, float* sums) {
    std::memset(sums, 0, size_t(rows) * 16 * sizeof(float));
    for_each_group<L>(block, in, [&](const WeightGroup& group, int64_t g) {
        const ActivationGroup* acts = panel + g * rows;
        int row = 0;
        for (; row + 4 <= rows; row += 4) {
            __m512 sum[4];
            for (int i = 0; i < 4; ++i) sum[i] = _mm512_load_ps(sums + 16 * (row + i));
            for (int i = 0; i < 4; ++i) sum[i] = add_group<L>(group, acts[row + i], sum[i]);
            for (int i = 0; i < 4; ++i) _mm512_store_ps(sums + 16 * (row + i), sum[i]);
        }
        for (; row < rows; ++row) {
            const __m512 sum = _mm512_load_ps(sums + 16 * row);
            _mm512_store_ps(sums + 16 * row, add_group<L>(group, acts[row], sum));
        }
    });
}

template <Layout L>
struct Blocks {
    static void run(const PackedMatrix& weights, int64_t first, int count, const ActivationGroup* panel, int rows,
                    float* sums) {
        for (int b = 0; b < count; ++b, sums += kPanelRows * kBlockOutputs) {
            const uint8_t* block = weights.block(first + b);
            switch (rows) {
                case 1: few_rows<L, 1>(block, weights.in, panel, sums); break;
                case 2: few_rows<L, 2>(block, weights.in, panel, sums); break;
                case 3: few_rows<L, 3>(block, weights.in, panel, sums); break;
                case 4: few_rows<L, 4>(block, weights.in, panel, sums); break;
                default: many_rows<L>(block, weights.in, panel, rows, sums);
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
