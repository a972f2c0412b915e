// What each instruction set supplies to gemm.cpp. Private to the matmul files.
#pragma once

#include "gemm.h"

namespace sapwood {

constexpr int kBlocksPerCall = 4;  // blocks of outputs a kernel is asked for at once

// The sums of one panel of rows (1..kPanelRows) and blocks [first, first + count), count <= kBlocksPerCall:
// sums[(block - first) * kPanelRows * 16 + row * 16 + lane]. Aligned to 64 bytes.
using Int8Kernel = void (*)(const PackedMatrix& weights, int64_t first, int count, const ActivationGroup* panel, int rows,
                            float* sums);
using Bf16Kernel = void (*)(const PackedMatrix& weights, int64_t first, int count, const uint32_t* panel, int rows,
                            float* sums);
// Quantize x [in] into records `stride` apart.
using QuantizeKernel = void (*)(const float* x, int64_t in, ActivationGroup* groups, int64_t stride);

namespace portable {
void int8_blocks(const PackedMatrix&, int64_t first, int count, const ActivationGroup*, int rows, float* sums);
void bf16_blocks(const PackedMatrix&, int64_t first, int count, const uint32_t*, int rows, float* sums);
void quantize(const float* x, int64_t in, ActivationGroup* groups, int64_t stride);
}  // namespace portable

}  // namespace sapwood
