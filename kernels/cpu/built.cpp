// Weights that were packed ahead of time: packing one matrix into memory of the caller's, and a plan over memory that
// holds all of them, each at the next multiple of 64 bytes, in the order of Plan::adopt. The caller maps it from a file.
#include "built.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>

#include "plan.h"
#include "pool.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace sapwood {

namespace {

size_t room_of(Format format, int64_t out, int64_t in) {
    return WeightMemory::aligned_bytes(PackedMatrix{layout_of(format), out, in}.bytes());
}

}  // namespace

void Plan::adopt(const std::vector<EncodedMatrix>& shapes, const uint8_t* data, size_t bytes) {
    const bool tied = shapes.size() == 1 + 7 * layers_.size();
    std::vector<PackedMatrix*> targets{&embed_};
    if (!tied) targets.push_back(&head_);
    for (Layer& layer : layers_)
        for (PackedMatrix* matrix : {&layer.wq, &layer.wk, &layer.wv, &layer.wo, &layer.gate, &layer.up, &layer.down})
            targets.push_back(matrix);
    if (shapes.size() != targets.size()) throw std::invalid_argument("there are not as many matrices as the plan has");
    size_t wanted = 0;
    for (const EncodedMatrix& shape : shapes) wanted += room_of(shape.format, shape.out, shape.in);
    if (wanted != bytes || reinterpret_cast<uintptr_t>(data) % 64) throw std::invalid_argument("the packed weights don't fit the plan");
    for (size_t i = 0; i < targets.size(); ++i) {
        if (targets[i]->in != shapes[i].in) throw std::invalid_argument("a matrix has another width than the plan's");
        *targets[i] = {layout_of(shapes[i].format), shapes[i].out, shapes[i].in, data};
        data += room_of(shapes[i].format, shapes[i].out, shapes[i].in);
    }
    if (tied) head_ = embed_;
}

namespace {

using Bytes1 = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using MutableBytes1 = nb::ndarray<uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Bytes2 = nb::ndarray<const uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

size_t packed_bytes(const std::string& format, int64_t out, int64_t in) {
    return room_of(format_from_name(format), out, in);
}

void pack_into(const std::string& name, Bytes2 rows, int64_t in, MutableBytes1 target, int threads) {
    const Format format = format_from_name(name);
    const PackedMatrix matrix{layout_of(format), int64_t(rows.shape(0)), in, target.data()};
    if (rows.shape(1) != format_row_bytes(format, in)) throw std::invalid_argument("rows have the wrong number of bytes");
    if (target.shape(0) < matrix.bytes()) throw std::invalid_argument("the target is too small for the packed matrix");
    nb::gil_scoped_release unlocked;
    pack(matrix, target.data(), format, rows.data(), threads > 0 ? threads : usable_cores());
}

void adopt(Plan& plan, Bytes1 data, const std::vector<std::tuple<std::string, int64_t, int64_t>>& shapes) {
    std::vector<EncodedMatrix> matrices;
    for (const auto& [format, out, in] : shapes) matrices.push_back({format_from_name(format), out, in, nullptr});
    plan.adopt(matrices, data.data(), data.shape(0));
}

}  // namespace

void bind_built(nb::module_& m) {
    m.def("packed_bytes", &packed_bytes, "format"_a, "out"_a, "in_size"_a, "Room that a packed matrix takes.");
    m.def("pack_into", &pack_into, "format"_a, "rows"_a.noconvert(), "in_size"_a, "target"_a.noconvert(), "threads"_a);
    m.def("adopt", &adopt, "plan"_a, "data"_a.noconvert(), "shapes"_a, nb::keep_alive<1, 2>(),
          "Let a plan that was made of matrices without rows read packed ones from `data`.");
}

}  // namespace sapwood
