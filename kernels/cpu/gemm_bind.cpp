#include "gemm_bind.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>

#include "gemm.h"
#include "gemm_probe.h"
#include "isa.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace sapwood {
namespace {

using Floats2 = nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using ConstFloats2 = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Floats1 = nb::ndarray<float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Bytes1 = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Bytes2 = nb::ndarray<const uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

// A packed matrix that owns its memory.
class OwnedMatrix {
 public:
    OwnedMatrix(const std::string& format_name, Bytes2 rows, int64_t in, int threads)
        : format_(format_from_name(format_name)),
          matrix_{layout_of(format_), int64_t(rows.shape(0)), in},
          memory_(matrix_.bytes()) {
        if (rows.shape(1) != format_row_bytes(format_, in))
            throw std::invalid_argument("rows have the wrong number of bytes");
        uint8_t* target = memory_.take(matrix_.bytes());
        matrix_.data = target;
        nb::gil_scoped_release unlocked;
        pack(matrix_, target, format_, rows.data(), threads);
    }
    const PackedMatrix& matrix() const { return matrix_; }

 private:
    Format format_;
    PackedMatrix matrix_;
    WeightMemory memory_;
};

void check_row(const OwnedMatrix& weights, int64_t row, size_t length) {
    if (row < 0 || row >= weights.matrix().out) throw std::out_of_range("the matrix has no such row");
    if (int64_t(length) != weights.matrix().in) throw std::invalid_argument("out must have one place per input");
}

void checked_gemm(const OwnedMatrix& weights, const Activations& rows, Floats2 out, int64_t begin, int64_t end,
                  bool accumulate) {
    const PackedMatrix& matrix = weights.matrix();
    if (rows.in() != matrix.in || rows.kind() != Activations::kind_for(matrix.layout))
        throw std::invalid_argument("the activations were not made for this matrix");
    if (int64_t(out.shape(0)) != rows.rows() || int64_t(out.shape(1)) < end || end > matrix.out || begin < 0 ||
        begin > end || begin % kBlockOutputs != 0 || (end % kBlockOutputs != 0 && end != matrix.out))
        throw std::invalid_argument("the range of columns does not fit");
    nb::gil_scoped_release unlocked;
    gemm(matrix, rows, out.data(), int64_t(out.shape(1)), begin, end, accumulate);
}

Activations* activations_for(const OwnedMatrix& weights, ConstFloats2 x) {
    auto made = std::make_unique<Activations>(int64_t(x.shape(0)), int64_t(x.shape(1)));
    made->reset(Activations::kind_for(weights.matrix().layout), int64_t(x.shape(0)), int64_t(x.shape(1)));
    for (size_t row = 0; row < x.shape(0); ++row) made->set_row(int64_t(row), x.data() + row * x.shape(1));
    return made.release();
}

}  // namespace

void bind_gemm(nb::module_& m) {
    nb::class_<OwnedMatrix>(m, "PackedMatrix", "A weight matrix [out, in], packed for the matmul kernels.")
        .def(nb::init<const std::string&, Bytes2, int64_t, int>(), "format"_a, "rows"_a.noconvert(), "in_size"_a,
             "threads"_a = 1)
        .def_prop_ro("nbytes", [](const OwnedMatrix& self) { return self.matrix().bytes(); })
        .def_prop_ro("shape",
                     [](const OwnedMatrix& self) { return nb::make_tuple(self.matrix().out, self.matrix().in); })
        .def(
            "dequantize_row",
            [](const OwnedMatrix& self, int64_t row, Floats1 out) {
                check_row(self, row, out.shape(0));
                dequantize_row(self.matrix(), row, out.data());
            },
            "row"_a, "out"_a.noconvert(), "Write row `row` as float32 into out [in].");
    nb::class_<Activations>(m, "Activations", "Rows of float32, quantized or rounded as a packed matrix wants them.")
        .def_static("of", &activations_for, "weights"_a, "x"_a.noconvert(), nb::rv_policy::take_ownership);
    m.def("gemm", &checked_gemm, "weights"_a, "rows"_a, "out"_a.noconvert(), "col_begin"_a, "col_end"_a,
          "accumulate"_a = false, "out[:, col_begin:col_end] (+)= rows @ weights.T for that range of outputs.");
    m.def(
        "read_once",
        [](Bytes1 data) {
            nb::gil_scoped_release unlocked;
            read_once(data.data(), data.shape(0));
        },
        "data"_a.noconvert(), "Read an array once, linearly: what memory gives one thread.");
    m.def("do_dots", &do_dots, "operations"_a, nb::call_guard<nb::gil_scoped_release>(),
          "Multiply and add 8-bit integers in registers; returns the number of operations done, 0 where there is no "
          "probe.");
    m.def("available_isas", [] {
        std::vector<std::string> names;
        for (Isa isa : available_isas()) names.emplace_back(isa_name(isa));
        return names;
    });
    m.def("current_isa", [] { return std::string(isa_name(current_isa())); });
    m.def("set_isa", [](const std::string& name) { set_isa(isa_from_name(name)); }, "name"_a);
}

}  // namespace sapwood
