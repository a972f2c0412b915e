#include "linear.h"

namespace sapwood {

void Linear::begin(std::initializer_list<const PackedMatrix*> readers, int64_t rows, int64_t in) {
    int8_used_ = bf16_used_ = false;
    for (const PackedMatrix* matrix : readers) (matrix->layout.is_bf16() ? bf16_used_ : int8_used_) = true;
    if (int8_used_) int8_inputs_.reset(Activations::Kind::int8, rows, in);
    if (bf16_used_) bf16_inputs_.reset(Activations::Kind::bf16, rows, in);
}

void Linear::set(int64_t row, const float* x) {
    if (int8_used_) int8_inputs_.set_row(row, x);
    if (bf16_used_) bf16_inputs_.set_row(row, x);
}

void Linear::multiply(std::initializer_list<Product> products, float* target, int64_t stride, bool accumulate) {
    constexpr int64_t kChunksOfThread = 6;
    int64_t columns = 0;
    for (const Product& product : products) columns += product.matrix->out;
    const int64_t wanted = pool_.size() * kChunksOfThread;
    const int64_t width = std::max<int64_t>(kBlockOutputs, (columns / wanted + kBlockOutputs - 1) / kBlockOutputs * kBlockOutputs);
    int64_t chunks = 0;
    for (const Product& product : products) chunks += (product.matrix->out + width - 1) / width;
    pool_.run(chunks, [&](int64_t chunk, int) {
        const Product* product = products.begin();
        for (int64_t here; chunk >= (here = (product->matrix->out + width - 1) / width); ++product) chunk -= here;
        const PackedMatrix& matrix = *product->matrix;
        const Activations& inputs = matrix.layout.is_bf16() ? bf16_inputs_ : int8_inputs_;
        gemm(matrix, inputs, target + product->column, stride, chunk * width, std::min(matrix.out, (chunk + 1) * width),
             accumulate);
    });
}

}  // namespace sapwood
