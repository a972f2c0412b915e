// What each instruction set supplies to gemm.cpp. Private to the matmul files.
#pragma once

#include <iterator>

#include "gemm.h"

namespace sapwood {

constexpr int kBlocksPerCall = 4;        // blocks of outputs a kernel is asked for at once
constexpr size_t kPrefetchBytes = 6144;  // how far ahead weights are fetched into L2: their latency times the bandwidth

constexpr int kSumsPerBlock = kPanelRows * kBlockOutputs;

// The sums of one panel of rows (1..kPanelRows) and blocks [first, first + count), count <= kBlocksPerCall:
// sums[(block - first) * kSumsPerBlock + row * 16 + lane]. Aligned to 64 bytes.
using Int8Kernel = void (*)(const PackedMatrix& weights, int64_t first, int count, const ActivationGroup* panel,
                            int rows, float* sums);
using Bf16Kernel = void (*)(const PackedMatrix& weights, int64_t first, int count, const Bf16Group* panel, int rows,
                            float* sums);
// Quantize x [in] into records `stride` apart.
using QuantizeKernel = void (*)(const float* x, int64_t in, ActivationGroup* groups, int64_t stride);

// One panel's sums of a few blocks into their place in the output, row by row, or onto what is there.
using StoreKernel = void (*)(const float* sums, int rows, int64_t columns, float* out, int64_t out_stride, bool accumulate);

// What turns x into q. Groups too small for a finite inverse count as zeros.
static inline float inverse_scale(float largest) { return largest > 1e-36f ? 127.0f / largest : 0.0f; }

// A record's scale and sums, once its q are in place.
static inline void finish_group(ActivationGroup& group, float scale, int32_t first_half, int32_t second_half) {
    group.scale = scale;
    group.sum = scale * float(first_half + second_half);
    group.half_sum[0] = scale * float(first_half);
    group.half_sum[1] = scale * float(second_half);
    group.zero8 = -8 * (first_half + second_half);
    group.half_zero8[0] = -8 * first_half;
    group.half_zero8[1] = -8 * second_half;
}

// Every integer layout there is: kernels are compiled for each, with all choices made beforehand.
constexpr Layout kInt8Layouts[] = {
    {.bits = 4},
    {.bits = 4, .has_offset = true},
    {.bits = 5},
    {.bits = 5, .has_offset = true},
    {.bits = 8},
    {.bits = 4, .group = 16, .has_offset = true, .two_level = true},
    {.bits = 4, .group = 16, .two_level = true},
    {.bits = 4, .has_offset = true, .two_level = true},
    {.bits = 5, .has_offset = true, .two_level = true},
    {.bits = 6, .group = 16, .two_level = true},
};

// Kernel<layout>::run of a kernel template.
template <template <Layout> typename Kernel, size_t i = 0>
Int8Kernel pick_int8_kernel(const Layout& layout) {
    if constexpr (i < std::size(kInt8Layouts)) {
        return layout == kInt8Layouts[i] ? &Kernel<kInt8Layouts[i]>::run : pick_int8_kernel<Kernel, i + 1>(layout);
    } else {
        return nullptr;
    }
}

namespace portable {
void int8_blocks(const PackedMatrix&, int64_t first, int count, const ActivationGroup*, int rows, float* sums);
void bf16_blocks(const PackedMatrix&, int64_t first, int count, const Bf16Group*, int rows, float* sums);
void quantize(const float* x, int64_t in, ActivationGroup* groups, int64_t stride);
void store_sums(const float* sums, int rows, int64_t columns, float* out, int64_t out_stride, bool accumulate);
}  // namespace portable

namespace avx2 {
Int8Kernel int8_kernel(const Layout& layout);
void bf16_blocks(const PackedMatrix&, int64_t first, int count, const Bf16Group*, int rows, float* sums);
void quantize(const float* x, int64_t in, ActivationGroup* groups, int64_t stride);
}  // namespace avx2

namespace avx512 {
Int8Kernel int8_kernel(const Layout& layout);
void bf16_blocks(const PackedMatrix&, int64_t first, int count, const Bf16Group*, int rows, float* sums);
void quantize(const float* x, int64_t in, ActivationGroup* groups, int64_t stride);
void store_sums(const float* sums, int rows, int64_t columns, float* out, int64_t out_stride, bool accumulate);
int64_t do_dots(int64_t operations);  // see gemm_probe.h
}  // namespace avx512

namespace amx {
// What the instruction that shapes the tiles reads.
struct alignas(64) TileConfig {
    uint8_t palette = 1;
    uint8_t start_row = 0;
    uint8_t reserved[14] = {};
    uint16_t row_bytes[16] = {};
    uint8_t rows[16] = {};
};
Int8Kernel int8_kernel(const Layout& layout);
void bf16_blocks(const PackedMatrix&, int64_t first, int count, const Bf16Group*, int rows, float* sums);
}  // namespace amx

}  // namespace sapwood
