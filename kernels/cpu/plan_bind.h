#pragma once

#include <nanobind/nanobind.h>

namespace sapwood {

// The native plan.
void bind_plan(nanobind::module_& m);

}  // namespace sapwood
