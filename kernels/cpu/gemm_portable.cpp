// The matmul kernels in plain C++: the specification of the others, and what runs where no other can.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "gemm_kernels.h"
#include "pack_formats.h"

namespace sapwood::portable {
namespace {

// 32 inputs of a block, unpacked.
struct WeightGroup {
    uint8_t q[kGroup][kBlockOutputs];
    float scale[2][kBlockOutputs];
    float offset[2][kBlockOutputs];
};

struct SuperScales {
    float scale[kBlockOutputs], offset[kBlockOutputs];
};

void load_halves(const uint8_t* at, float* out) {
    uint16_t halves[kBlockOutputs];
    std::memcpy(halves, at, sizeof halves);
    for (int lane = 0; lane < kBlockOutputs; ++lane) out[lane] = half_to_float(halves[lane]);
}

void unpack_planes(const Layout& layout, const uint8_t* at, WeightGroup& group) {
    for (int k = 0; k < kGroup; ++k)
        for (int lane = 0; lane < kBlockOutputs; ++lane) {
            const int byte = 4 * lane + k % 4;
            if (layout.bits == 8) {
                group.q[k][lane] = at[64 * (k / 4) + byte];
                continue;
            }
            int q = at[64 * (k % 16 / 4) + byte] >> (k < 16 ? 0 : 4) & 15;
            if (layout.bits == 5) q |= (at[256 + byte] >> (k / 4) & 1) << 4;
            if (layout.bits == 6) q |= (at[256 + 64 * (k / 16) + byte] >> (2 * (k % 16 / 4)) & 3) << 4;
            group.q[k][lane] = uint8_t(q);
        }
}

void unpack_scales(const Layout& layout, const uint8_t* at, const SuperScales& super, WeightGroup& group) {
    if (!layout.two_level) {
        load_halves(at, group.scale[0]);
        if (layout.has_offset) load_halves(at + 32, group.offset[0]);
        return;
    }
    for (int s = 0; s < layout.scales(); ++s)
        for (int lane = 0; lane < kBlockOutputs; ++lane) {
            group.scale[s][lane] = super.scale[lane] * float(int8_t(at[16 * s + lane]));
            if (layout.has_offset)
                group.offset[s][lane] = super.offset[lane] * float(int8_t(at[16 * (layout.scales() + s) + lane]));
        }
}

void add_group(const Layout& layout, const WeightGroup& group, const ActivationGroup& row, float* sums) {
    const int num_scales = layout.scales();
    const int zero_shift = layout.bits - 4;  // the record holds the sum for a zero point of 8
    for (int s = 0; s < num_scales; ++s) {
        const int32_t zero = num_scales == 1 ? row.zero8 : row.half_zero8[s];
        const float row_sum = num_scales == 1 ? row.sum : row.half_sum[s];
        for (int lane = 0; lane < kBlockOutputs; ++lane) {
            int32_t dot = layout.has_offset ? 0 : zero * (1 << zero_shift);
            for (int k = s * layout.group; k < (s + 1) * layout.group; ++k)
                dot += int(group.q[k][lane]) * int(row.q[k]);
            sums[lane] = std::fma(float(dot), group.scale[s][lane] * row.scale, sums[lane]);
            if (layout.has_offset) sums[lane] = std::fma(group.offset[s][lane], row_sum, sums[lane]);
        }
    }
}

void int8_block(const PackedMatrix& weights, const uint8_t* at, const ActivationGroup* panel, int rows, float* sums) {
    const Layout& layout = weights.layout;
    WeightGroup group;
    SuperScales super{};
    std::fill(sums, sums + rows * kBlockOutputs, 0.0f);
    for (int64_t g = 0; g < weights.in / kGroup; ++g, at += layout.group_bytes(), panel += rows) {
        if (layout.two_level && g % (kSuperGroup / kGroup) == 0) {
            load_halves(at, super.scale);
            if (layout.has_offset) load_halves(at + 32, super.offset);
            at += layout.super_bytes();
        }
        unpack_planes(layout, at, group);
        unpack_scales(layout, at + layout.plane_bytes(), super, group);
        for (int row = 0; row < rows; ++row) add_group(layout, group, panel[row], sums + row * kBlockOutputs);
    }
}

}  // namespace

void int8_blocks(const PackedMatrix& weights, int64_t first, int count, const ActivationGroup* panel, int rows,
                 float* sums) {
    for (int b = 0; b < count; ++b)
        int8_block(weights, weights.block(first + b), panel, rows, sums + b * kSumsPerBlock);
}

void bf16_blocks(const PackedMatrix& weights, int64_t first, int count, const Bf16Group* panel, int rows, float* sums) {
    for (int b = 0; b < count; ++b, sums += kSumsPerBlock) {
        const uint8_t* at = weights.block(first + b);
        std::fill(sums, sums + rows * kBlockOutputs, 0.0f);
        for (int64_t k = 0; k < weights.num_groups() * kGroup; k += 2, at += 64) {
            uint16_t w[kBlockOutputs][2];
            std::memcpy(w, at, sizeof w);
            for (int row = 0; row < rows; ++row) {
                const uint16_t* x = panel[k / kGroup * rows + row].x + k % kGroup;
                for (int lane = 0; lane < kBlockOutputs; ++lane)
                    for (const int which : {1, 0})  // the order of the instruction that takes pairs
                        sums[row * kBlockOutputs + lane] += bf16_to_float(w[lane][which]) * bf16_to_float(x[which]);
            }
        }
    }
}

void quantize(const float* x, int64_t in, ActivationGroup* groups, int64_t stride) {
    for (int64_t g = 0; g < in / kGroup; ++g, x += kGroup, groups += stride) {
        float largest = 0;
        for (int k = 0; k < kGroup; ++k) largest = std::max(largest, std::fabs(x[k]));
        const float scale = largest / 127.0f;
        const float inverse = inverse_scale(largest);
        int32_t half[2] = {0, 0};
        for (int k = 0; k < kGroup; ++k) {
            const int q = int(std::nearbyint(x[k] * inverse));
            groups->q[k] = int8_t(q);
            half[k / 16] += q;
        }
        finish_group(*groups, scale, half[0], half[1]);
    }
}

void store_sums(const float* sums, int rows, int64_t columns, float* out, int64_t out_stride, bool accumulate) {
    for (int row = 0; row < rows; ++row, sums += kBlockOutputs, out += out_stride)
        for (int64_t column = 0; column < columns; ++column) {
            const float sum = sums[column / kBlockOutputs * kSumsPerBlock + column % kBlockOutputs];
            out[column] = accumulate ? out[column] + sum : sum;
        }
}

}  // namespace sapwood::portable
