// Batches as they come from Python, checked: what a kernel would read or write out of bounds must be refused here.
#pragma once

#include <nanobind/ndarray.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>
#include <vector>

#include "plan.h"

namespace sapwood {

using Ints = nanobind::ndarray<const int32_t, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;

inline void check(bool holds, const char* what) {
    if (!holds) throw std::invalid_argument(what);
}

// Everything but what positions, drafts and tables say of each other.
inline BatchView checked_rows(const Plan& plan, const Ints& ids, const Ints& positions, const Ints& slots, const Ints& sequences,
                              const std::vector<Ints>& tables) {
    BatchView view;
    const size_t rows = ids.shape(0);
    check(int64_t(rows) <= plan.max_rows(), "the batch has more rows than the plan was made for");
    check(positions.shape(0) == rows && slots.shape(0) == rows && sequences.shape(0) == rows,
          "ids, positions, slots and sequences must be equally long");
    view.rows = int64_t(rows);
    view.ids = ids.data();
    view.positions = positions.data();
    view.slots = slots.data();
    view.sequences = sequences.data();
    for (const Ints& table : tables) {
        view.tables.push_back(table.data());
        view.table_lens.push_back(int32_t(table.shape(0)));
    }
    for (size_t row = 0; row < rows; ++row) {
        check(sequences.data()[row] >= 0 && size_t(sequences.data()[row]) < tables.size(), "a row is of no sequence");
        check(ids.data()[row] >= 0 && ids.data()[row] < plan.vocab(), "a token id is out of range");
        check(slots.data()[row] >= -1 && slots.data()[row] < plan.num_slots(), "a slot is out of range");
    }
    return view;
}

}  // namespace sapwood
