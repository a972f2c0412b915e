// Python bindings of the matmul kernels, for tests and benchmarks. The native plan calls gemm.h itself.
#pragma once

#include <nanobind/nanobind.h>

namespace sapwood {

void bind_gemm(nanobind::module_& m);

}  // namespace sapwood
