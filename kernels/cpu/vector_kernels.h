// The functions of VectorOps, written once and compiled for each instruction set by the file that includes this.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "simd.h"
#include "vector_ops.h"

namespace sapwood {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// f(begin) for each 16 of n values, then scalar(i) for the rest.
template <typename Wide, typename Scalar>
inline void spans(int64_t n, Wide wide, Scalar scalar) {
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) wide(i);
    for (; i < n; ++i) scalar(i);
}

void rms_norm(const float* x, const float* weight, float eps, int64_t n, float* out) {
    Lanes squares = all(0.0f);
    float rest = 0.0f;
    spans(n, [&](int64_t i) { squares = fma(load(x + i), load(x + i), squares); }, [&](int64_t i) { rest += x[i] * x[i]; });
    const float scale = 1.0f / std::sqrt((sum(squares) + rest) / float(n) + eps);
    spans(
        n, [&](int64_t i) { store(out + i, load(x + i) * all(scale) * load(weight + i)); },
        [&](int64_t i) { out[i] = x[i] * scale * weight[i]; });
}

void add(float* x, const float* y, int64_t n) {
    spans(n, [&](int64_t i) { store(x + i, load(x + i) + load(y + i)); }, [&](int64_t i) { x[i] += y[i]; });
}

inline Lanes sigmoid(Lanes x) { return all(1.0f) / (all(1.0f) + exp(all(0.0f) - x)); }

// 0.5 x (1 + tanh(y)) = x sigmoid(2y), y = sqrt(2 / pi) (x + 0.044715 x^3)
inline Lanes gelu(Lanes x) {
    const Lanes inner = fma(x * x * x, all(0.044715f), x);
    return x * sigmoid(inner * all(1.5957691216f));
}

template <typename Act>
inline void gated(const float* gate, const float* up, int64_t n, float* out, Act act) {
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) store(out + i, act(load(gate + i)) * load(up + i));
    if (i < n) {
        float g[16] = {}, u[16] = {}, o[16];
        std::copy(gate + i, gate + n, g);
        std::copy(up + i, up + n, u);
        store(o, act(load(g)) * load(u));
        std::copy(o, o + (n - i), out + i);
    }
}

void silu_mul(const float* gate, const float* up, int64_t n, float* out) {
    gated(gate, up, n, out, [](Lanes x) { return x * sigmoid(x); });
}

void gelu_mul(const float* gate, const float* up, int64_t n, float* out) {
    gated(gate, up, n, out, [](Lanes x) { return gelu(x); });
}

void to_half(const float* x, int64_t n, uint16_t* out) {
    for (int64_t i = 0; i < n; i += 16) store_half(out + i, load(x + i));
}

inline Lanes capped(Lanes x, float cap) {  // cap * tanh(x / cap) = cap * (2 sigmoid(2 x / cap) - 1)
    return all(cap) * (all(2.0f) * sigmoid(x * all(2.0f / cap)) - all(1.0f));
}

void softcap(float* x, float cap, int64_t n) {
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) store(x + i, capped(load(x + i), cap));
    for (; i < n; ++i) x[i] = cap * std::tanh(x[i] / cap);
}

inline bool is_set(const uint32_t* mask, int64_t i) { return mask[i / 32] >> i % 32 & 1; }

int64_t masked_argmax(const float* x, const uint32_t* mask, int64_t n) {
    constexpr int64_t kBlock = 1024;  // looked at twice, to find in it the largest value's place
    float best = kMinusInfinity;
    int64_t block = 0;
    for (int64_t begin = 0; begin < n; begin += kBlock) {
        const int64_t end = std::min(n, begin + kBlock), wide_end = begin + (end - begin) / 16 * 16;
        Lanes high = all(kMinusInfinity);
        for (int64_t i = begin; i < wide_end; i += 16)
            high = max(where(mask[i / 32] >> i % 32, load(x + i), all(kMinusInfinity)), high);
        float found = largest(high);
        for (int64_t i = wide_end; i < end; ++i)
            if (is_set(mask, i)) found = std::max(found, x[i]);
        if (found > best) best = found, block = begin;
    }
    for (int64_t i = block; i < std::min(n, block + kBlock); ++i)
        if (x[i] == best && is_set(mask, i)) return i;
    return 0;
}

void forbid(float* x, const uint32_t* mask, int64_t n) {
    spans(
        n, [&](int64_t i) { store(x + i, where(mask[i / 32] >> i % 32, load(x + i), all(kMinusInfinity))); },
        [&](int64_t i) { x[i] = is_set(mask, i) ? x[i] : kMinusInfinity; });
}

float exp_total(const float* x, float maximum, int64_t n) {
    Lanes sum = all(0.0f);
    const int64_t wide_end = n / 16 * 16;
    for (int64_t i = 0; i < wide_end; i += 16) sum = sum + exp(load(x + i) - all(maximum));
    float lanes[16], total = 0.0f;
    store(lanes, sum);
    for (float lane : lanes) total += lane;
    for (int64_t i = wide_end; i < n; ++i) total += std::exp(x[i] - maximum);
    return total;
}

// 16 rows of 16 floats, transposed: out[c * out_stride + r] = rows[r][c].
#if defined(__AVX512F__)
inline void transpose16(const Lanes (&rows)[16], float* out, int64_t out_stride) {
    __m512 a[16], b[16];
    for (int i = 0; i < 8; ++i) {
        a[2 * i] = _mm512_unpacklo_ps(rows[2 * i].v, rows[2 * i + 1].v);
        a[2 * i + 1] = _mm512_unpackhi_ps(rows[2 * i].v, rows[2 * i + 1].v);
    }
    for (int i = 0; i < 4; ++i)
        for (int half = 0; half < 2; ++half) {
            const __m512d low = _mm512_castps_pd(a[4 * i + half]), high = _mm512_castps_pd(a[4 * i + 2 + half]);
            b[4 * i + 2 * half] = _mm512_castpd_ps(_mm512_unpacklo_pd(low, high));
            b[4 * i + 2 * half + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low, high));
        }
    // b[4 i + c]: columns c, c + 4, c + 8, c + 12 of rows 4 i .. 4 i + 3, one in each quarter
    for (int c = 0; c < 4; ++c) {
        const __m512 even = _mm512_shuffle_f32x4(b[c], b[4 + c], 0x88), odd = _mm512_shuffle_f32x4(b[c], b[4 + c], 0xdd);
        const __m512 even2 = _mm512_shuffle_f32x4(b[8 + c], b[12 + c], 0x88);
        const __m512 odd2 = _mm512_shuffle_f32x4(b[8 + c], b[12 + c], 0xdd);
        _mm512_storeu_ps(out + c * out_stride, _mm512_shuffle_f32x4(even, even2, 0x88));
        _mm512_storeu_ps(out + (c + 8) * out_stride, _mm512_shuffle_f32x4(even, even2, 0xdd));
        _mm512_storeu_ps(out + (c + 4) * out_stride, _mm512_shuffle_f32x4(odd, odd2, 0x88));
        _mm512_storeu_ps(out + (c + 12) * out_stride, _mm512_shuffle_f32x4(odd, odd2, 0xdd));
    }
}
#else
inline void transpose16(const Lanes (&rows)[16], float* out, int64_t out_stride) {
    for (int r = 0; r < 16; ++r) {
        float row[16];
        store(row, rows[r]);
        for (int c = 0; c < 16; ++c) out[c * out_stride + r] = row[c];
    }
}
#endif

// scores[m][0 .. 16 J) = q[m] . keys, for M queries at once; transposed keys [dim][64].
template <int M, int J>
inline void block_scores(const float* const* q, const float* keys, int64_t dim, float* const* scores) {
    Lanes acc[M][J];
    for (int m = 0; m < M; ++m)
        for (int j = 0; j < J; ++j) acc[m][j] = all(0.0f);
    for (int64_t d = 0; d < dim; ++d) {
        Lanes k[J];
        for (int j = 0; j < J; ++j) k[j] = load(keys + d * kAttentionBlock + 16 * j);
        for (int m = 0; m < M; ++m) {
            const Lanes x = all(q[m][d]);
            for (int j = 0; j < J; ++j) acc[m][j] = fma(x, k[j], acc[m][j]);
        }
    }
    for (int m = 0; m < M; ++m)
        for (int j = 0; j < J; ++j) store(scores[m] + 16 * j, acc[m][j]);
}

// acc[m][0..64) = acc * shrink[m] + weights[m] . values over positions from .. until - 1, for M queries and 64 channels.
template <int M>
inline void block_values(const float* const* weights, const float* shrink, const float* values, int64_t dim, int from,
                         int until, float* const* out) {
    Lanes acc[M][4];
    for (int m = 0; m < M; ++m)
        for (int j = 0; j < 4; ++j) acc[m][j] = load(out[m] + 16 * j) * all(shrink[m]);
    for (int p = from; p < until; ++p) {
        Lanes v[4];
        for (int j = 0; j < 4; ++j) v[j] = load(values + p * dim + 16 * j);
        for (int m = 0; m < M; ++m) {
            const Lanes w = all(weights[m][p]);
            for (int j = 0; j < 4; ++j) acc[m][j] = fma(w, v[j], acc[m][j]);
        }
    }
    for (int m = 0; m < M; ++m)
        for (int j = 0; j < 4; ++j) store(out[m] + 16 * j, acc[m][j]);
}

// The same for 16 channels: heads whose size is no multiple of 64.
inline void block_values_narrow(const float* weights, float shrink, const float* values, int64_t dim, int from, int until,
                                float* out) {
    Lanes acc = load(out) * all(shrink);
    for (int p = from; p < until; ++p) acc = fma(all(weights[p]), load(values + p * dim), acc);
    store(out, acc);
}

// Ask for one head of some slots' keys or values, which lie anywhere in memory: they come while other things are done.
inline void fetch(const uint16_t* heads, int64_t stride, int64_t dim, const int32_t* slots, int count) {
    for (int p = 0; p < count; ++p) {
        const uint16_t* row = heads + int64_t(slots[p]) * stride;
        for (int64_t d = 0; d < dim; d += 32) __builtin_prefetch(row + d, 0, 2);
    }
}

// Keys of a block transposed [dim][64] and values [64][dim], as floats; what lies behind `count` means nothing.
inline void load_block(const AttentionTile& tile, int32_t begin, int count, float* keys, float* values) {
    static const uint16_t zeros[1024] = {};
    const int32_t* slots = tile.slots + (begin - tile.begin);
    fetch(tile.keys, tile.stride, tile.dim, slots, std::min(count, 16));
    for (int p = 0; p < count; p += 16) {
        fetch(tile.keys, tile.stride, tile.dim, slots + p + 16, std::clamp(count - p - 16, 0, 16));
        fetch(tile.values, tile.stride, tile.dim, slots + p, std::min(count - p, 16));
        const uint16_t* rows[16];
        for (int i = 0; i < 16; ++i)
            rows[i] = p + i < count ? tile.keys + int64_t(slots[p + i]) * tile.stride : zeros;
        for (int64_t d = 0; d < tile.dim; d += 16) {
            Lanes part[16];
            for (int i = 0; i < 16; ++i) part[i] = load_half(rows[i] + d);
            transpose16(part, keys + d * kAttentionBlock + p, kAttentionBlock);
        }
    }
    for (int p = 0; p < count; ++p) {
        const uint16_t* row = tile.values + int64_t(slots[p]) * tile.stride;
        for (int64_t d = 0; d < tile.dim; d += 16) store(values + p * tile.dim + d, load_half(row + d));
    }
}

// The queries of a tile that see something of a block.
struct Queries {
    const float* q[kTileRows * 64];
    float* scores[kTileRows * 64];
    float* out[kTileRows * 64];
    float shrink[kTileRows * 64];
    int from[kTileRows * 64];
    int until[kTileRows * 64];
    float* partial[kTileRows * 64];
    int count = 0;
};

// From scores to weights for M queries: mask, running maximum, exponentials, and what earlier sums shrink by.
template <int M>
inline void weigh(Queries& queries, int at, float softcap_of) {
    float before[16] = {}, now[16] = {};
    for (int m = 0; m < M; ++m) {
        float* scores = queries.scores[at + m];
        const int from = queries.from[at + m], until = queries.until[at + m];
        const uint64_t visible = ~uint64_t(0) >> (kAttentionBlock - until) & ~uint64_t(0) << from;
        Lanes high = all(kMinusInfinity);
        for (int j = 0; j < 4; ++j) {
            Lanes s = load(scores + 16 * j);
            if (softcap_of > 0) s = capped(s, softcap_of);
            if (~visible) s = where(uint32_t(visible >> 16 * j) & 0xffff, s, all(kMinusInfinity));
            if (softcap_of > 0 || ~visible) store(scores + 16 * j, s);
            high = max(high, s);
        }
        before[m] = queries.partial[at + m][0];
        now[m] = std::max(before[m], largest(high));
    }
    float shrink[16];
    store(shrink, exp(load(before) - load(now)));
    for (int m = 0; m < M; ++m) {
        float* scores = queries.scores[at + m];
        Lanes s[4];
        for (int j = 0; j < 4; ++j) {
            s[j] = exp(load(scores + 16 * j) - all(now[m]));
            store(scores + 16 * j, s[j]);
        }
        float* partial = queries.partial[at + m];
        partial[0] = now[m];
        partial[1] = partial[1] * shrink[m] + sum((s[0] + s[1]) + (s[2] + s[3]));
        queries.shrink[at + m] = shrink[m];
    }
}

// One block for M queries. Positions that none of them sees are left out: they would add zeros.
template <int M>
inline void take(const AttentionTile& tile, Queries& queries, int at, const float* keys, const float* values) {
    const int from = *std::min_element(queries.from + at, queries.from + at + M);
    const int until = *std::max_element(queries.until + at, queries.until + at + M);
    const auto score = until > 48   ? block_scores<M, 4>
                       : until > 32 ? block_scores<M, 3>
                       : until > 16 ? block_scores<M, 2>
                                    : block_scores<M, 1>;
    score(queries.q + at, keys, tile.dim, queries.scores + at);
    weigh<M>(queries, at, tile.softcap);
    int64_t d = 0;
    float* out[M];
    for (; d + 64 <= tile.dim; d += 64) {
        for (int m = 0; m < M; ++m) out[m] = queries.out[at + m] + d;
        block_values<M>(queries.scores + at, queries.shrink + at, values + d, tile.dim, from, until, out);
    }
    for (; d < tile.dim; d += 16)
        for (int m = 0; m < M; ++m)
            block_values_narrow(queries.scores[at + m], queries.shrink[at + m], values + d, tile.dim, from, until,
                                queries.out[at + m] + d);
}

void attention_tile(const AttentionTile& tile) {
    float* keys = tile.scratch;
    float* values = keys + kAttentionBlock * tile.dim;
    float* scores = values + kAttentionBlock * tile.dim;
    for (int r = 0; r < tile.num_rows; ++r)
        for (int h = 0; h < tile.group; ++h) {
            float* partial = tile.partial[r] + h * (tile.dim + 2);
            partial[0] = kMinusInfinity;
            std::fill(partial + 1, partial + tile.dim + 2, 0.0f);
        }
    for (int32_t begin = tile.begin; begin < tile.end; begin += kAttentionBlock) {
        const int count = std::min<int32_t>(kAttentionBlock, tile.end - begin);
        Queries queries;
        for (int r = 0; r < tile.num_rows; ++r) {
            const int from = std::max(0, tile.first[r] - begin), until = std::min(count, tile.last[r] + 1 - begin);
            if (from >= until) continue;
            for (int h = 0; h < tile.group; ++h) {
                const int at = queries.count++;
                queries.q[at] = tile.q[r] + h * tile.dim;
                queries.scores[at] = scores + at * kAttentionBlock;
                queries.partial[at] = tile.partial[r] + h * (tile.dim + 2);
                queries.out[at] = queries.partial[at] + 2;
                queries.from[at] = from;
                queries.until[at] = until;
            }
        }
        if (!queries.count) continue;
        load_block(tile, begin, count, keys, values);
        int at = 0;
        for (; at + 6 <= queries.count; at += 6) take<6>(tile, queries, at, keys, values);
        for (; at + 3 <= queries.count; at += 3) take<3>(tile, queries, at, keys, values);
        for (; at < queries.count; ++at) take<1>(tile, queries, at, keys, values);
    }
}

void attention_merge(const float* partials, int64_t stride, int count, int64_t dim, float* out) {
    float maximum = partials[0], total = partials[1];
    for (int64_t d = 0; d < dim; d += 16) store(out + d, load(partials + 2 + d));
    for (int i = 1; i < count; ++i) {
        const float* part = partials + i * stride;
        const float now = std::max(maximum, part[0]);
        float ours[16], theirs[16];
        store(ours, exp(all(maximum - now)));
        store(theirs, exp(all(part[0] - now)));
        total = total * ours[0] + part[1] * theirs[0];
        for (int64_t d = 0; d < dim; d += 16)
            store(out + d, fma(load(out + d), all(ours[0]), load(part + 2 + d) * all(theirs[0])));
        maximum = now;
    }
    for (int64_t d = 0; d < dim; d += 16) store(out + d, load(out + d) * all(1.0f / total));
}

constexpr VectorOps kVectorOps = {rms_norm,      add,    silu_mul,       gelu_mul,       to_half, softcap,
                                  masked_argmax, forbid, exp_total,      attention_tile, attention_merge};

}  // namespace
}  // namespace sapwood
