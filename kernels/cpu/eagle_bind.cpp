#include "eagle_bind.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "batch_view.h"
#include "eagle.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace sapwood {
namespace {

using Floats2 = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Floats1 = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using MutableInts2 = nb::ndarray<int32_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using MutableFloats2 = nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

void observe(Eagle& eagle, Ints ids, Ints positions, Ints slots, Ints sequences, const std::vector<Ints>& tables,
             Floats2 features) {
    const Plan& target = eagle.target();
    BatchView view = checked_rows(target, ids, positions, slots, sequences, tables);
    for (int64_t row = 0; row < view.rows; ++row)
        check(view.positions[row] >= 0 && view.positions[row] < view.table_lens[size_t(view.sequences[row])],
              "a row's position is beyond its table");
    check(int64_t(features.shape(0)) == view.rows &&
              int64_t(features.shape(1)) == target.num_captures() * target.hidden_size(),
          "features have the wrong shape");
    nb::gil_scoped_release unlocked;
    eagle.observe(view, features.data());
}

void draft(Eagle& eagle, const std::vector<Ints>& tables, Ints last_ids, float least, Floats1 worth, MutableInts2 ids, MutableFloats2 chances) {
    const size_t count = tables.size(), depth = ids.shape(1);
    check(count <= size_t(Eagle::kMostRequests) && depth <= size_t(Eagle::kDeepest), "more requests or tokens than one call drafts");
    check(worth.shape(0) == size_t(Eagle::kBins), "worth has the wrong shape");
    check(last_ids.shape(0) == count && ids.shape(0) == count && chances.shape(0) == count && chances.shape(1) == depth,
          "tables, ids and chances must be equally long");
    std::vector<Eagle::Request> requests;
    for (size_t r = 0; r < count; ++r) {
        const Ints& table = tables[r];
        check(table.shape(0) >= 2, "nothing can be drafted before the second token");
        check(last_ids.data()[r] >= 0 && last_ids.data()[r] < eagle.target().vocab(), "a token id is out of range");
        for (size_t i = 0; i < table.shape(0); ++i)
            check(table.data()[i] >= 0 && table.data()[i] < eagle.target().num_slots(), "a slot is out of range");
        requests.push_back({table.data(), int32_t(table.shape(0)), last_ids.data()[r]});
    }
    nb::gil_scoped_release unlocked;
    eagle.draft(requests, int(depth), least, worth.data(), ids.data(), chances.data());
}

}  // namespace

void bind_eagle(nb::module_& m) {
    nb::class_<EagleSource>(m, "EagleSource", "An EAGLE head as it is in the checkpoint; keep its bytes until the head is made.")
        .def(nb::init<>())
        .def_rw("version", &EagleSource::version)
        .def_rw("num_heads", &EagleSource::num_heads)
        .def_rw("num_kv_heads", &EagleSource::num_kv_heads)
        .def_rw("head_dim", &EagleSource::head_dim)
        .def_rw("norm_eps", &EagleSource::norm_eps)
        .def_rw("fc", &EagleSource::fc)
        .def_rw("wq", &EagleSource::wq)
        .def_rw("wk", &EagleSource::wk)
        .def_rw("wv", &EagleSource::wv)
        .def_rw("wo", &EagleSource::wo)
        .def_rw("gate", &EagleSource::gate)
        .def_rw("up", &EagleSource::up)
        .def_rw("down", &EagleSource::down)
        .def_rw("head", &EagleSource::head)
        .def_rw("fc_bias", &EagleSource::fc_bias)
        .def_rw("target_norm", &EagleSource::target_norm)
        .def_rw("input_norm", &EagleSource::input_norm)
        .def_rw("hidden_norm", &EagleSource::hidden_norm)
        .def_rw("post_norm", &EagleSource::post_norm)
        .def_rw("final_norm", &EagleSource::final_norm)
        .def_rw("norm_before_residual", &EagleSource::norm_before_residual)
        .def_rw("rope", &EagleSource::rope)
        .def_rw("vocab", &EagleSource::vocab);
    nb::class_<Eagle>(m, "Eagle", "An EAGLE head beside a plan; see kernels/cpu/eagle.h.")
        .def(nb::init<Plan&, const EagleSource&>(), "target"_a, "source"_a, nb::keep_alive<1, 2>())
        .def_prop_ro("weight_bytes", &Eagle::weight_bytes)
        .def("observe", &observe, "ids"_a.noconvert(), "positions"_a.noconvert(), "slots"_a.noconvert(),
             "sequences"_a.noconvert(), "tables"_a, "features"_a.noconvert())
        .def("draft", &draft, "tables"_a, "last_ids"_a.noconvert(), "least"_a, "worth"_a.noconvert(), "ids"_a.noconvert(), "chances"_a.noconvert());
}

}  // namespace sapwood
