// Python bindings of the CPU backend.
#include <nanobind/nanobind.h>

namespace nb = nanobind;

NB_MODULE(_cpu, m) {
    m.doc() = "Sapwood's CPU kernels.";
    m.def("ping", [] { return 1; });
}
