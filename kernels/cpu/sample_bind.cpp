#include "sample_bind.h"

#include <nanobind/ndarray.h>

#include <stdexcept>

#include "sample.h"
#include "vector_ops.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace sapwood {
namespace {

using Floats = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using FloatsOut = nb::ndarray<float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Bits = nb::ndarray<const uint32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

void check_mask(size_t words, size_t n) {
    if (words * 32 < n) throw std::invalid_argument("the mask has fewer bits than there are tokens");
}

int64_t masked_argmax(Floats values, Bits mask) {
    check_mask(mask.shape(0), values.shape(0));
    return vector_ops().masked_argmax(values.data(), mask.data(), int64_t(values.shape(0)));
}

void forbid(FloatsOut values, Bits mask) {
    check_mask(mask.shape(0), values.shape(0));
    vector_ops().forbid(values.data(), mask.data(), int64_t(values.shape(0)));
}

int64_t draw_kept(Floats weights, double top_p, float min_p, double number) {
    if (weights.shape(0) == 0) throw std::invalid_argument("there is nothing to draw from");
    return draw(weights.data(), int64_t(weights.shape(0)), {top_p, min_p}, number);
}

}  // namespace

void bind_sample(nb::module_& m) {
    m.def("masked_argmax", &masked_argmax, "values"_a.noconvert(), "mask"_a.noconvert(),
          "The first of the largest values whose bits are set; 0 where none is.");
    m.def("forbid", &forbid, "values"_a.noconvert(), "mask"_a.noconvert(), "Minus infinity where bits are not set, in place.");
    m.def("draw", &draw_kept, "weights"_a.noconvert(), "top_p"_a, "min_p"_a, "number"_a,
          "The token on which a number in [0, 1) falls among those that top-p and min-p leave.");
}

}  // namespace sapwood
