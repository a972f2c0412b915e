#include "gemm.h"

#include <algorithm>
#include <new>
#include <stdexcept>

#include "gemm_kernels.h"
#include "isa.h"
#include "pack_formats.h"

namespace sapwood {
namespace {

Int8Kernel int8_kernel([[maybe_unused]] const Layout& layout) {
    switch (current_isa()) {
#if defined(__x86_64__)
        case Isa::amx: return amx::int8_kernel(layout);
        case Isa::avx512: return avx512::int8_kernel(layout);
        case Isa::avx2: return avx2::int8_kernel(layout);
#endif
        default: return portable::int8_blocks;
    }
}

Bf16Kernel bf16_kernel() {
#if defined(__x86_64__)
    if (current_isa() >= Isa::amx) return amx::bf16_blocks;
    if (current_isa() >= Isa::avx512 && has_avx512_bf16()) return avx512::bf16_blocks;
    if (current_isa() >= Isa::avx2) return avx2::bf16_blocks;
#endif
    return portable::bf16_blocks;
}

QuantizeKernel quantize_kernel() {
#if defined(__x86_64__)
    if (current_isa() >= Isa::avx512) return avx512::quantize;
    if (current_isa() >= Isa::avx2) return avx2::quantize;
#endif
    return portable::quantize;
}

StoreKernel store_kernel() {
#if defined(__x86_64__)
    if (current_isa() >= Isa::avx512) return avx512::store_sums;
#endif
    return portable::store_sums;
}

}  // namespace

void Activations::Free::operator()(void* memory) const { ::operator delete(memory, std::align_val_t(64)); }

size_t Activations::bytes(int64_t rows, int64_t in) {
    static_assert(sizeof(ActivationGroup) == sizeof(Bf16Group));
    return size_t(rows) * size_t((in + kGroup - 1) / kGroup) * sizeof(ActivationGroup);
}

Activations::Activations(int64_t max_rows, int64_t max_in) : capacity_(bytes(max_rows, max_in)) {
    constexpr size_t kReadBeyond = 16 * sizeof(ActivationGroup);  // by kernels that take rows 16 at a time
    memory_.reset(::operator new(capacity_ + kReadBeyond, std::align_val_t(64)));
}

void Activations::reset(Kind kind, int64_t rows, int64_t in) {
    if (kind == Kind::int8 && in % kGroup != 0)
        throw std::invalid_argument("quantized matrices have a multiple of 32 inputs");
    if (bytes(rows, in) > capacity_) throw std::length_error("more activations than memory was reserved for");
    kind_ = kind;
    rows_ = rows;
    in_ = in;
}

int64_t Activations::panel_rows(int64_t panel) const {
    const int64_t left = rows_ - panel * kPanelRows;
    return left < kPanelRows ? left : kPanelRows;
}

template <typename Group>
Group* Activations::panel_of(int64_t panel) const {
    return static_cast<Group*>(memory_.get()) + panel * kPanelRows * ((in_ + kGroup - 1) / kGroup);
}

const ActivationGroup* Activations::int8_panel(int64_t panel) const { return panel_of<ActivationGroup>(panel); }

const Bf16Group* Activations::bf16_panel(int64_t panel) const { return panel_of<Bf16Group>(panel); }

void Activations::set_row(int64_t row, const float* x) {
    const int64_t panel = row / kPanelRows, stride = panel_rows(panel);
    if (kind_ == Kind::int8) {
        quantize_kernel()(x, in_, panel_of<ActivationGroup>(panel) + row % kPanelRows, stride);
        return;
    }
    Bf16Group* group = panel_of<Bf16Group>(panel) + row % kPanelRows;
    for (int64_t k = 0; k < in_; k += kGroup, group += stride)
        for (int i = 0; i < kGroup; ++i) group->x[i] = k + i < in_ ? float_to_bf16(x[k + i]) : 0;
}

void gemm(const PackedMatrix& weights, const Activations& rows, float* out, int64_t out_stride, int64_t col_begin,
          int64_t col_end, bool accumulate) {
    alignas(64) float sums[kBlocksPerCall * kSumsPerBlock];
    const bool is_bf16 = weights.layout.is_bf16();
    const Bf16Kernel bf16 = is_bf16 ? bf16_kernel() : nullptr;
    const Int8Kernel int8 = is_bf16 ? nullptr : int8_kernel(weights.layout);
    const StoreKernel store = store_kernel();
    const int64_t block_end = (col_end + kBlockOutputs - 1) / kBlockOutputs;
    for (int64_t panel = 0; panel * kPanelRows < rows.rows(); ++panel) {
        const int num_rows = int(rows.panel_rows(panel));
        float* panel_out = out + panel * kPanelRows * out_stride;
        for (int64_t first = col_begin / kBlockOutputs; first < block_end; first += kBlocksPerCall) {
            const int count = int(std::min<int64_t>(block_end - first, kBlocksPerCall));
            if (is_bf16)
                bf16(weights, first, count, rows.bf16_panel(panel), num_rows, sums);
            else
                int8(weights, first, count, rows.int8_panel(panel), num_rows, sums);
            const int64_t col = first * kBlockOutputs;
            store(sums, num_rows, std::min<int64_t>(col_end - col, count * kBlockOutputs), panel_out + col, out_stride,
                  accumulate);
        }
    }
}

}  // namespace sapwood
