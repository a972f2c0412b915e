#pragma once

#include <nanobind/nanobind.h>

namespace sapwood {

void bind_eagle(nanobind::module_& m);

}  // namespace sapwood
