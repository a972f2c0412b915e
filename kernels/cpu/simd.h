// Sixteen floats at a time, in three forms: one AVX-512 register, two AVX2 registers, or an array.
//
// Every function does the same float operations in the same order in all forms, so that a kernel written with it has one
// meaning; fma rounds once on x86 with FMA and twice (multiply, add) in the portable form.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "pack_formats.h"

namespace sapwood {
namespace {  // one copy for each file's instruction set

#if defined(__AVX512F__)

struct Lanes {
    __m512 v;
};
inline Lanes load(const float* at) { return {_mm512_loadu_ps(at)}; }
inline Lanes load_half(const uint16_t* at) {
    return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)))};
}
inline void store(float* at, Lanes x) { _mm512_storeu_ps(at, x.v); }
inline void store_half(uint16_t* at, Lanes x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(at), _mm512_cvtps_ph(x.v, _MM_FROUND_TO_NEAREST_INT));
}
inline Lanes all(float x) { return {_mm512_set1_ps(x)}; }
inline Lanes operator+(Lanes a, Lanes b) { return {_mm512_add_ps(a.v, b.v)}; }
inline Lanes operator-(Lanes a, Lanes b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline Lanes operator*(Lanes a, Lanes b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline Lanes operator/(Lanes a, Lanes b) { return {_mm512_div_ps(a.v, b.v)}; }
inline Lanes fma(Lanes a, Lanes b, Lanes c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline Lanes max(Lanes a, Lanes b) { return {_mm512_max_ps(a.v, b.v)}; }
inline Lanes min(Lanes a, Lanes b) { return {_mm512_min_ps(a.v, b.v)}; }
inline Lanes round(Lanes x) { return {_mm512_maskz_roundscale_ps(0xffff, x.v, 8)}; }
// 2^n for whole n in -126 .. 127; any finite value for NaN
inline Lanes power_of_two(Lanes n) {
    const __m512i bits = _mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n.v), _mm512_set1_epi32(127)), 23);
    return {_mm512_castsi512_ps(bits)};
}
// x where the lane's bit is set, else `other`
inline Lanes where(uint32_t bits, Lanes x, Lanes other) { return {_mm512_mask_mov_ps(other.v, __mmask16(bits), x.v)}; }

#elif defined(__AVX2__)

struct Lanes {
    __m256 lo, hi;
};
inline Lanes load(const float* at) { return {_mm256_loadu_ps(at), _mm256_loadu_ps(at + 8)}; }
inline Lanes load_half(const uint16_t* at) {
    return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at))),
            _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at + 8)))};
}
inline void store(float* at, Lanes x) {
    _mm256_storeu_ps(at, x.lo);
    _mm256_storeu_ps(at + 8, x.hi);
}
inline void store_half(uint16_t* at, Lanes x) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(at), _mm256_cvtps_ph(x.lo, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(at + 8), _mm256_cvtps_ph(x.hi, _MM_FROUND_TO_NEAREST_INT));
}
inline Lanes all(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline Lanes operator+(Lanes a, Lanes b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
inline Lanes operator-(Lanes a, Lanes b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
inline Lanes operator*(Lanes a, Lanes b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
inline Lanes operator/(Lanes a, Lanes b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
inline Lanes fma(Lanes a, Lanes b, Lanes c) {
    return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
inline Lanes max(Lanes a, Lanes b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
inline Lanes min(Lanes a, Lanes b) { return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)}; }
inline Lanes round(Lanes x) { return {_mm256_round_ps(x.lo, 8), _mm256_round_ps(x.hi, 8)}; }
inline __m256 power_of_two_half(__m256 n) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23));
}
inline Lanes power_of_two(Lanes n) { return {power_of_two_half(n.lo), power_of_two_half(n.hi)}; }
inline __m256 where_half(uint32_t bits, __m256 x, __m256 other) {
    const __m256i each = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const __m256i set = _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(int(bits)), each), each);
    return _mm256_blendv_ps(other, x, _mm256_castsi256_ps(set));
}
inline Lanes where(uint32_t bits, Lanes x, Lanes other) {
    return {where_half(bits, x.lo, other.lo), where_half(bits >> 8, x.hi, other.hi)};
}

#else

struct Lanes {
    float v[16];
};
template <typename F>
inline Lanes each(F f) {
    Lanes x;
    for (int i = 0; i < 16; ++i) x.v[i] = f(i);
    return x;
}
inline Lanes load(const float* at) { return each([&](int i) { return at[i]; }); }
inline Lanes load_half(const uint16_t* at) { return each([&](int i) { return half_to_float(at[i]); }); }
inline void store(float* at, Lanes x) { std::memcpy(at, x.v, sizeof x.v); }
inline uint16_t to_half(float value) {  // to nearest even
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    const uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) return uint16_t(sign | 0x7e00);
    if (magnitude >= 0x477ff000) return uint16_t(sign | 0x7c00);
    if (magnitude < 0x38800000) {  // subnormal halves: let the float adder round
        float scaled;
        std::memcpy(&scaled, &magnitude, 4);
        scaled += 0.5f;
        uint32_t rounded;
        std::memcpy(&rounded, &scaled, 4);
        return uint16_t(sign | (rounded - 0x3f000000));
    }
    const uint32_t rounded = magnitude + 0xc8000fff + (magnitude >> 13 & 1);
    return uint16_t(sign | rounded >> 13);
}
inline void store_half(uint16_t* at, Lanes x) {
    for (int i = 0; i < 16; ++i) at[i] = to_half(x.v[i]);
}
inline Lanes all(float x) { return each([&](int) { return x; }); }
inline Lanes operator+(Lanes a, Lanes b) { return each([&](int i) { return a.v[i] + b.v[i]; }); }
inline Lanes operator-(Lanes a, Lanes b) { return each([&](int i) { return a.v[i] - b.v[i]; }); }
inline Lanes operator*(Lanes a, Lanes b) { return each([&](int i) { return a.v[i] * b.v[i]; }); }
inline Lanes operator/(Lanes a, Lanes b) { return each([&](int i) { return a.v[i] / b.v[i]; }); }
inline Lanes fma(Lanes a, Lanes b, Lanes c) { return each([&](int i) { return a.v[i] * b.v[i] + c.v[i]; }); }
inline Lanes max(Lanes a, Lanes b) { return each([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; }); }
inline Lanes min(Lanes a, Lanes b) { return each([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; }); }
inline Lanes round(Lanes x) { return each([&](int i) { return std::nearbyint(x.v[i]); }); }
inline Lanes power_of_two(Lanes n) {
    return each([&](int i) {
        const uint32_t bits = std::isnan(n.v[i]) ? 0x3f800000 : uint32_t(int32_t(n.v[i]) + 127) << 23;
        float value;
        std::memcpy(&value, &bits, 4);
        return value;
    });
}
inline Lanes where(uint32_t bits, Lanes x, Lanes other) {
    return each([&](int i) { return bits >> i & 1 ? x.v[i] : other.v[i]; });
}

#endif

// Of 16 values: halves are joined until one is left, in registers where there are any.
#if defined(__AVX2__)
template <typename Join8, typename Join4>
inline float joined(Lanes x, Join8 join8, Join4 join4) {
#if defined(__AVX512F__)
    const __m256 eight = join8(_mm512_castps512_ps256(x.v),
                               _mm256_castpd_ps(_mm512_maskz_extractf64x4_pd(0xf, _mm512_castps_pd(x.v), 1)));
#else
    const __m256 eight = join8(x.lo, x.hi);
#endif
    const __m128 four = join4(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = join4(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(join4(two, _mm_shuffle_ps(two, two, 1)));
}
inline float sum(Lanes x) {
    return joined(
        x, [](__m256 a, __m256 b) { return _mm256_add_ps(a, b); }, [](__m128 a, __m128 b) { return _mm_add_ps(a, b); });
}
inline float largest(Lanes x) {
    return joined(
        x, [](__m256 a, __m256 b) { return _mm256_max_ps(a, b); }, [](__m128 a, __m128 b) { return _mm_max_ps(a, b); });
}
#else
inline float sum(Lanes x) {
    for (int width = 8; width; width /= 2)
        for (int i = 0; i < width; ++i) x.v[i] += x.v[i + width];
    return x.v[0];
}
inline float largest(Lanes x) {
    for (int width = 8; width; width /= 2)
        for (int i = 0; i < width; ++i) x.v[i] = x.v[i] > x.v[i + width] ? x.v[i] : x.v[i + width];
    return x.v[0];
}
#endif

// e^x, within 2 units in the last place; 0 below -87 (and for minus infinity), finite above 88, NaN for NaN.
inline Lanes exp(Lanes x) {
    const Lanes clamped = max(all(-87.5f), min(all(88.0f), x));  // of two operands, the second is kept when one is NaN
    const Lanes n = round(clamped * all(1.44269504f));
    Lanes r = fma(n, all(-0.693145752f), clamped);  // ln 2 in two parts, so that the remainder is exact
    r = fma(n, all(-1.42860677e-6f), r);
    Lanes p = all(1.98756915e-4f);  // minimax polynomial of Cephes' expf
    p = fma(p, r, all(1.39819995e-3f));
    p = fma(p, r, all(8.33345191e-3f));
    p = fma(p, r, all(4.16657960e-2f));
    p = fma(p, r, all(1.66666655e-1f));
    p = fma(p, r, all(5.00000012e-1f));
    p = fma(p, r * r, r + all(1.0f));
    const Lanes value = p * power_of_two(n);
#if defined(__AVX512F__)
    return {_mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x.v, _mm512_set1_ps(-87.5f), _CMP_NLE_UQ), value.v)};
#elif defined(__AVX2__)
    const __m256 least = _mm256_set1_ps(-87.5f);
    return {_mm256_and_ps(value.lo, _mm256_cmp_ps(x.lo, least, _CMP_NLE_UQ)),
            _mm256_and_ps(value.hi, _mm256_cmp_ps(x.hi, least, _CMP_NLE_UQ))};
#else
    return each([&](int i) { return x.v[i] <= -87.5f ? 0.0f : value.v[i]; });
#endif
}

}  // namespace
}  // namespace sapwood
