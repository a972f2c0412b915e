#pragma once

#include <nanobind/nanobind.h>

namespace sapwood {

// Codes and scales of encoded rows, for backends that pack them in another way.
void bind_plain(nanobind::module_& m);

}  // namespace sapwood
