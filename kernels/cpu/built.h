#pragma once

#include <nanobind/nanobind.h>

namespace sapwood {

void bind_built(nanobind::module_& m);

}  // namespace sapwood
