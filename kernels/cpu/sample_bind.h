#pragma once

#include <nanobind/nanobind.h>

namespace sapwood {

void bind_sample(nanobind::module_& m);

}  // namespace sapwood
