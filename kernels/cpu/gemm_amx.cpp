// The matmul kernel for AMX: a tile instruction does the integer dot products of 16 rows with a group of a block, and
// vectors add them up as floats, in the order of all other kernels. A block's unpacked group already is a tile.
//
// A block is unpacked once for a panel. Then 16 rows at a time keep their sums in registers, group after group:
//
//     multiply group g + 2 (tiles, into memory)   |   add up the dots of group g (vectors, from memory)
//
// two groups apart, because a load has to wait for a fresh store of a tile.
#include "gemm_kernels.h"

#if defined(__AMX_INT8__) && defined(__AVX512VNNI__)

#include <immintrin.h>

#include <memory>
#include <new>

#include "gemm_avx512_unpack.h"

namespace sapwood::amx {
namespace {

using avx512::for_each_group;
using avx512::WeightGroup;

constexpr int kTileRows = 16;
constexpr int kFewestRows = 28;  // below, vectors are as fast: a tile that is not full takes as long as one that is
constexpr int kAhead = 2;        // groups that tiles run ahead of vectors
constexpr int kDots = 4;         // groups of dots in memory, a power of two above kAhead

// Tile 0: dots; 1: rows; 2: weights.
template <Layout L>
void configure_tiles() {
    TileConfig config;
    config.rows[0] = kTileRows, config.row_bytes[0] = 64;
    config.rows[1] = kTileRows, config.row_bytes[1] = L.group;
    config.rows[2] = L.group / 4, config.row_bytes[2] = 64;
    _tile_loadconfig(&config);
}

// One group of a block, unpacked.
template <Layout L>
struct alignas(64) Weights {
    uint8_t q[L.scales()][64 * L.group / 4];
    float scale[L.scales()][kBlockOutputs];
    float offset[L.scales()][kBlockOutputs];
};

template <Layout L>
struct alignas(64) Dots {
    int32_t of[L.scales()][kTileRows][kBlockOutputs];
};

// Memory for the groups of one block, kept by each thread.
template <typename T>
T* scratch(int64_t count) {
    struct Free {
        void operator()(void* memory) const { ::operator delete(memory, std::align_val_t(64)); }
    };
    static thread_local std::unique_ptr<void, Free> memory;
    static thread_local int64_t capacity = 0;
    if (count > capacity) {
        memory.reset(::operator new(size_t(count) * sizeof(T), std::align_val_t(64)));
        capacity = count;
    }
    return static_cast<T*>(memory.get());
}

template <Layout L>
void unpack_block(const uint8_t* block, int64_t in, Weights<L>* weights) {
    constexpr int kPerScale = 8 / L.scales();
    for_each_group<L, 1>(block, 0, in, [=](const WeightGroup* group, int64_t g) {
        for (int s = 0; s < L.scales(); ++s) {
            for (int j = 0; j < kPerScale; ++j)
                _mm512_store_si512(weights[g].q[s] + 64 * j, group->q[kPerScale * s + j]);
            _mm512_store_ps(weights[g].scale[s], group->scale[s]);
            if constexpr (L.has_offset) _mm512_store_ps(weights[g].offset[s], group->offset[s]);
        }
    });
}

template <Layout L>
inline void multiply(const Weights<L>& weights, const ActivationGroup* acts, Dots<L>& dots) {
    for (int s = 0; s < L.scales(); ++s) {
        _tile_loadd(2, weights.q[s], 64);
        _tile_loadd(1, acts->q + L.group * s, sizeof(ActivationGroup));
        _tile_zero(0);
        _tile_dpbsud(0, 1, 2);
        _tile_stored(0, dots.of[s], 64);
    }
}

template <Layout L>
inline void add(const Weights<L>& weights, const ActivationGroup* acts, const Dots<L>& dots, __m512 (&sum)[kTileRows]) {
    for (int s = 0; s < L.scales(); ++s) {
        const __m512 scale = _mm512_load_ps(weights.scale[s]);
        __m512 offset;
        if constexpr (L.has_offset) offset = _mm512_load_ps(weights.offset[s]);
#pragma GCC unroll 16
        for (int row = 0; row < kTileRows; ++row) {
            __m512i dot = _mm512_load_si512(dots.of[s][row]);
            if constexpr (!L.has_offset) {
                __m512i zero = _mm512_set1_epi32(L.scales() == 1 ? acts[row].zero8 : acts[row].half_zero8[s]);
                if constexpr (L.bits > 4) zero = _mm512_slli_epi32(zero, L.bits - 4);
                dot = _mm512_add_epi32(dot, zero);
            }
            const __m512 both = _mm512_mul_ps(scale, _mm512_set1_ps(acts[row].scale));
            sum[row] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), both, sum[row]);
            if constexpr (L.has_offset) {
                const float row_sum = L.scales() == 1 ? acts[row].sum : acts[row].half_sum[s];
                sum[row] = _mm512_fmadd_ps(offset, _mm512_set1_ps(row_sum), sum[row]);
            }
        }
    }
}

// 16 rows; where the panel has fewer, what stands behind it is computed too, and never looked at. Meanwhile the block
// of packed weights at `ahead` is fetched: tiles leave memory idle, and unpacking waits for nothing else.
template <Layout L>
void tile_of_rows(const Weights<L>* weights, int64_t groups, const ActivationGroup* acts, int64_t stride,
                  const uint8_t* ahead, float* sums) {
    Dots<L> dots[kDots];
    __m512 sum[kTileRows];
#pragma GCC unroll 16
    for (int row = 0; row < kTileRows; ++row) sum[row] = _mm512_setzero_ps();
    for (int64_t g = -kAhead; g < groups; ++g) {
        const int64_t next = g + kAhead;
        if (next < groups) multiply<L>(weights[next], acts + next * stride, dots[next % kDots]);
        if (g < 0) continue;
        for (size_t line = 0; line < L.group_bytes(); line += 64)
            _mm_prefetch(reinterpret_cast<const char*>(ahead + g * L.group_bytes() + line), _MM_HINT_T1);
        add<L>(weights[g], acts + g * stride, dots[g % kDots], sum);
    }
#pragma GCC unroll 16
    for (int row = 0; row < kTileRows; ++row) _mm512_store_ps(sums + row * kBlockOutputs, sum[row]);
}

template <Layout L>
struct Blocks {
    static void run(const PackedMatrix& weights, int64_t first, int count, const ActivationGroup* panel, int rows,
                    float* sums) {
        if (rows < kFewestRows) return avx512::int8_kernel(L)(weights, first, count, panel, rows, sums);
        const int64_t groups = weights.in / kGroup;
        auto* unpacked = scratch<Weights<L>>(groups);
        configure_tiles<L>();
        for (int b = 0; b < count; ++b, sums += kSumsPerBlock) {
            unpack_block<L>(weights.block(first + b), weights.in, unpacked);
            const uint8_t* ahead = weights.block(first + b + 1);
            for (int row = 0; row < rows; row += kTileRows)
                tile_of_rows<L>(unpacked, groups, panel + row, rows, ahead, sums + row * kBlockOutputs);
        }
        _tile_release();
    }
};

}  // namespace

// A product of 16 inputs takes tiles as long as one of 32: where scales are for 16, vectors are faster.
Int8Kernel int8_kernel(const Layout& layout) {
    return layout.group == 32 ? pick_int8_kernel<Blocks>(layout) : avx512::int8_kernel(layout);
}

}  // namespace sapwood::amx

#endif
