// Packed blocks of weights as AVX-512 vectors, for the kernels that multiply them.
#pragma once

#include <immintrin.h>

#include "gemm_kernels.h"

namespace sapwood::avx512 {
namespace {  // each file that includes this is compiled for its own instruction set: nothing may be shared

// 32 inputs of a block, unpacked: vector j, lane c, byte i = q of input 4j + i and output c.
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

}  // namespace
}  // namespace sapwood::avx512
