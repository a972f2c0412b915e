// Matrix multiplication: out[r][c] = sum over k of activations[r][k] * weights[c][k].
//
// Exactness. A row's result has the same bits whatever the other rows, their number, the range of columns and the
// thread are: integer dot products over 16 or 32 inputs are exact, and the floats of one output are summed group after
// group,
//     acc = fma(float(dot - zero * sum), weight_scale * row_scale, acc);  acc = fma(offset, row_scale * sum, acc)
// by every kernel in this order. For the integer layouts the bits are also the same in all instruction sets; for BF16
// they may differ between sets (denormals), not within one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "pack.h"

namespace sapwood {

constexpr int kPanelRows = 64;  // rows that a block of weights is unpacked once for

// 32 quantized inputs of one row and all that the kernels want to know of them: one cache line.
struct alignas(64) ActivationGroup {
    int8_t q[kGroup];   // x = scale * q
    float scale;        // largest |x| / 127
    float sum;          // scale * sum of q
    float half_sum[2];  // the same for the first and the last 16
    int32_t zero8;      // -8 * sum of q: what a zero point of 8 takes from the dot product
    int32_t half_zero8[2];
    int32_t unused;
};
static_assert(sizeof(ActivationGroup) == 64);

// 32 inputs of one row as bfloat16: also one cache line.
struct alignas(64) Bf16Group {
    uint16_t x[kGroup];
};

// The rows that go into a matmul, in the form that a matrix's layout wants: groups of int8 or of bfloat16.
// Rows stand in panels of kPanelRows; a panel is [groups][rows of the panel], so that a kernel that holds a group of
// weights walks all rows linearly.
class Activations {
 public:
    enum class Kind { int8, bf16 };
    static Kind kind_for(const Layout& layout) { return layout.is_bf16() ? Kind::bf16 : Kind::int8; }
    static size_t bytes(int64_t rows, int64_t in);  // of either kind

    // Memory for up to `max_rows` x `max_in` of either kind.
    Activations(int64_t max_rows, int64_t max_in);

    // Say what set_row() will write. int8 needs `in` to be a multiple of 32.
    void reset(Kind kind, int64_t rows, int64_t in);

    // Quantize or round x [in] into row `row`. Different rows may be set by different threads at the same time.
    // int8: scale = max|x| / 127, q = x * (127 / max|x|) to nearest even.
    void set_row(int64_t row, const float* x);

    Kind kind() const { return kind_; }
    int64_t rows() const { return rows_; }
    int64_t in() const { return in_; }

    // The number of rows of the panel that starts at row `panel * kPanelRows`, and its first record.
    int64_t panel_rows(int64_t panel) const;
    const ActivationGroup* int8_panel(int64_t panel) const;
    const Bf16Group* bf16_panel(int64_t panel) const;

 private:
    struct Free {
        void operator()(void* memory) const;
    };
    template <typename Group>
    Group* panel_of(int64_t panel) const;

    std::unique_ptr<void, Free> memory_;
    size_t capacity_;
    Kind kind_ = Kind::int8;
    int64_t rows_ = 0;
    int64_t in_ = 0;
};

// out[r * out_stride + c] = (accumulate ? itself : 0) + the product, for all rows r and columns c of
// [col_begin, col_end). col_begin is a multiple of kBlockOutputs, and so is col_end unless it is weights.out. Other
// columns are not touched. Threads share a matmul by calling this on disjoint ranges.
void gemm(const PackedMatrix& weights, const Activations& rows, float* out, int64_t out_stride, int64_t col_begin,
          int64_t col_end, bool accumulate = false);

}  // namespace sapwood
