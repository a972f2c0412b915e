#include "plan_bind.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <stdexcept>

#include "batch_view.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace sapwood {
namespace {

using Bytes2 = nb::ndarray<const uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using MutableBytes2 = nb::ndarray<uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Floats2 = nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Masks = nb::ndarray<const uint64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

EncodedMatrix encoded(const std::string& format_name, Bytes2 rows, int64_t in) {
    const EncodedMatrix matrix{format_from_name(format_name), int64_t(rows.shape(0)), in, rows.data()};
    if (rows.shape(1) != format_row_bytes(matrix.format, in)) throw std::invalid_argument("rows have the wrong number of bytes");
    return matrix;
}

// What a kernel would read or write out of bounds must be refused here: the plan itself doesn't look.
BatchView checked_view(const Plan& plan, Ints ids, Ints positions, Ints slots, Ints sequences, const std::vector<Ints>& tables,
                       Ints output_rows, const std::vector<std::tuple<int32_t, int32_t, Masks>>& drafts) {
    BatchView view = checked_rows(plan, ids, positions, slots, sequences, tables);
    const size_t rows = ids.shape(0);
    std::vector<int32_t> draft_of(tables.size(), -1);
    for (const auto& [sequence, start, ancestors] : drafts) {
        check(sequence >= 0 && size_t(sequence) < tables.size(), "a draft is of no sequence");
        draft_of[size_t(sequence)] = int32_t(view.drafts.size());
        view.drafts.push_back({sequence, start, ancestors.data()});
    }
    std::vector<size_t> seen(tables.size(), 0);
    std::vector<int32_t> needed(tables.size(), 0);  // entries of each table that its rows read
    for (size_t row = 0; row < rows; ++row) {
        const int32_t sequence = sequences.data()[row], position = positions.data()[row];
        const int32_t length = view.table_lens[size_t(sequence)];
        if (const int32_t draft = draft_of[size_t(sequence)]; draft >= 0) {
            const auto& [_, start, ancestors] = drafts[size_t(draft)];
            check(seen[size_t(sequence)] < ancestors.shape(0), "a draft has fewer ancestor masks than rows");
            const uint64_t mask = ancestors.data()[seen[size_t(sequence)]++];
            check(mask && start >= 0 && start + 64 - __builtin_clzll(mask) <= length, "a draft's tail is longer than its table");
            needed[size_t(sequence)] = std::max(needed[size_t(sequence)], start + 64 - __builtin_clzll(mask));
            check(position == start + __builtin_popcountll(mask) - 1, "a draft row's position is not its depth");
        } else {
            check(position >= 0 && position < length, "a row's position is beyond its table");
            needed[size_t(sequence)] = std::max(needed[size_t(sequence)], position + 1);
        }
    }
    for (size_t sequence = 0; sequence < tables.size(); ++sequence) {
        uint32_t largest = 0;  // negative slots are the largest of all
        for (int32_t at = 0; at < needed[sequence]; ++at) largest = std::max(largest, uint32_t(view.tables[sequence][at]));
        check(needed[sequence] == 0 || int64_t(largest) < plan.num_slots(), "a table holds a slot that is out of range");
    }
    view.outputs = int64_t(output_rows.shape(0));
    view.output_rows = output_rows.data();
    check(view.outputs <= plan.max_rows(), "more outputs than rows");
    for (int64_t i = 0; i < view.outputs; ++i)
        check(view.output_rows[i] >= 0 && view.output_rows[i] < view.rows, "an output is of no row");
    return view;
}

void run(Plan& plan, Ints ids, Ints positions, Ints slots, Ints sequences, const std::vector<Ints>& tables, Ints output_rows,
         const std::vector<std::tuple<int32_t, int32_t, Masks>>& drafts, Floats2 logits, std::optional<Floats2> hidden,
         std::optional<Floats2> features) {
    const BatchView view = checked_view(plan, ids, positions, slots, sequences, tables, output_rows, drafts);
    check(int64_t(logits.shape(0)) >= view.outputs && int64_t(logits.shape(1)) == plan.vocab(), "logits have the wrong shape");
    check(!hidden || (int64_t(hidden->shape(0)) >= view.outputs && int64_t(hidden->shape(1)) == plan.hidden_size()),
          "hidden has the wrong shape");
    check(!features || (int64_t(features->shape(0)) >= view.rows &&
                        int64_t(features->shape(1)) == plan.num_captures() * plan.hidden_size()),
          "features have the wrong shape");
    nb::gil_scoped_release unlocked;
    plan.run(view, logits.data(), hidden ? hidden->data() : nullptr, features ? features->data() : nullptr);
}

void check_records(const Plan& plan, const Ints& slots, size_t rows, size_t bytes) {
    check(slots.shape(0) == rows && int64_t(bytes) == plan.record_bytes(), "records have the wrong shape");
    for (size_t i = 0; i < rows; ++i)
        check(slots.data()[i] >= 0 && slots.data()[i] < plan.num_slots(), "a slot is out of range");
}

}  // namespace

void bind_plan(nb::module_& m) {
    nb::class_<EncodedMatrix>(m, "EncodedMatrix", "A matrix of the checkpoint; keep its bytes alive until the plan is made.")
        .def("__init__", [](EncodedMatrix* self, const std::string& format, Bytes2 rows, int64_t in) {
            new (self) EncodedMatrix(encoded(format, rows, in));
        }, "format"_a, "rows"_a.noconvert(), "in_size"_a);
    nb::class_<RopeSource>(m, "RopeSource")
        .def(nb::init<>())
        .def_rw("inv_freq", &RopeSource::inv_freq)
        .def_rw("interleaved", &RopeSource::interleaved)
        .def_rw("magnitude", &RopeSource::magnitude);
    nb::class_<LayerSource>(m, "LayerSource")
        .def(nb::init<>())
        .def_rw("wq", &LayerSource::wq)
        .def_rw("wk", &LayerSource::wk)
        .def_rw("wv", &LayerSource::wv)
        .def_rw("wo", &LayerSource::wo)
        .def_rw("gate", &LayerSource::gate)
        .def_rw("up", &LayerSource::up)
        .def_rw("down", &LayerSource::down)
        .def_rw("attn_norm", &LayerSource::attn_norm)
        .def_rw("ffn_norm", &LayerSource::ffn_norm)
        .def_rw("post_attn_norm", &LayerSource::post_attn_norm)
        .def_rw("post_ffn_norm", &LayerSource::post_ffn_norm)
        .def_rw("q_norm", &LayerSource::q_norm)
        .def_rw("k_norm", &LayerSource::k_norm)
        .def_rw("bq", &LayerSource::q_bias)
        .def_rw("bk", &LayerSource::k_bias)
        .def_rw("bv", &LayerSource::v_bias)
        .def_rw("window", &LayerSource::window)
        .def_rw("rope", &LayerSource::rope);
    nb::class_<DecoderSource>(m, "DecoderSource")
        .def(nb::init<>())
        .def_rw("num_heads", &DecoderSource::num_heads)
        .def_rw("num_kv_heads", &DecoderSource::num_kv_heads)
        .def_rw("head_dim", &DecoderSource::head_dim)
        .def_rw("hidden_size", &DecoderSource::hidden)
        .def_rw("vocab_size", &DecoderSource::vocab)
        .def_rw("norm_eps", &DecoderSource::norm_eps)
        .def_rw("attn_scale", &DecoderSource::attn_scale)
        .def_rw("embed_scale", &DecoderSource::embed_scale)
        .def_rw("attn_softcap", &DecoderSource::attn_softcap)
        .def_rw("logit_softcap", &DecoderSource::logit_softcap)
        .def_rw("gelu", &DecoderSource::gelu)
        .def_rw("embed", &DecoderSource::embed)
        .def_rw("head", &DecoderSource::head)
        .def_rw("final_norm", &DecoderSource::final_norm)
        .def_rw("ropes", &DecoderSource::ropes)
        .def_rw("layers", &DecoderSource::layers);
    nb::class_<Plan>(m, "Plan", "A decoder compiled for this CPU; see kernels/cpu/plan.h.")
        .def(nb::init<const DecoderSource&, int64_t, int64_t, int, std::vector<int32_t>>(), "source"_a, "num_slots"_a,
             "max_rows"_a, "threads"_a, "captures"_a, nb::call_guard<nb::gil_scoped_release>())
        .def_prop_ro("threads", &Plan::threads)
        .def_prop_ro("weight_bytes", &Plan::weight_bytes)
        .def_prop_ro("record_bytes", &Plan::record_bytes)
        .def("run", &run, "ids"_a.noconvert(), "positions"_a.noconvert(), "slots"_a.noconvert(), "sequences"_a.noconvert(),
             "tables"_a, "output_rows"_a.noconvert(), "drafts"_a, "logits"_a.noconvert(), "hidden"_a.none().noconvert(),
             "features"_a.none().noconvert())
        .def("read", [](const Plan& plan, Ints slots, MutableBytes2 records) {
            check_records(plan, slots, records.shape(0), records.shape(1));
            plan.read(slots.data(), int64_t(slots.shape(0)), records.data());
        }, "slots"_a.noconvert(), "records"_a.noconvert())
        .def("write", [](Plan& plan, Ints slots, Bytes2 records) {
            check_records(plan, slots, records.shape(0), records.shape(1));
            plan.write(slots.data(), int64_t(slots.shape(0)), records.data());
        }, "slots"_a.noconvert(), "records"_a.noconvert());
}

}  // namespace sapwood
