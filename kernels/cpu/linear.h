// The matmuls and row loops of one batch: inputs are quantized once for all the matrices that read them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "gemm.h"
#include "pack.h"
#include "pool.h"

namespace sapwood {

class Linear {
   public:
    // A matrix and where its product goes: columns from `column` on of the target.
    struct Product {
        const PackedMatrix* matrix;
        int64_t column;
    };

    // For batches of up to max_rows rows of up to widest_input inputs.
    Linear(ThreadPool& pool, int64_t max_rows, int64_t widest_input)
        : pool_(pool), int8_inputs_(max_rows, widest_input), bf16_inputs_(max_rows, widest_input) {}

    // Say which matrices will read the inputs; then set() every row, from any thread.
    void begin(std::initializer_list<const PackedMatrix*> readers, int64_t rows, int64_t in);
    void set(int64_t row, const float* x);

    // target[rows][stride] (+)= inputs @ matrix.T, all products in one parallel loop.
    void multiply(std::initializer_list<Product> products, float* target, int64_t stride, bool accumulate = false);

    // f(row, thread) for every row; few rows are not worth a second thread.
    template <typename F>
    void each_row(int64_t rows, F&& f) {
        constexpr int64_t kRowsOfChunk = 4;
        if (rows <= kRowsOfChunk) {
            for (int64_t row = 0; row < rows; ++row) f(row, 0);
            return;
        }
        pool_.run((rows + kRowsOfChunk - 1) / kRowsOfChunk, [&](int64_t chunk, int thread) {
            for (int64_t row = chunk * kRowsOfChunk; row < std::min(rows, (chunk + 1) * kRowsOfChunk); ++row) f(row, thread);
        });
    }

   private:
    ThreadPool& pool_;
    Activations int8_inputs_, bf16_inputs_;
    bool int8_used_ = false, bf16_used_ = false;
};

}  // namespace sapwood
