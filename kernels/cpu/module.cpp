// Python bindings of the CPU backend.
#include <nanobind/nanobind.h>

#include "built.h"
#include "eagle_bind.h"
#include "gemm_bind.h"
#include "plain_bind.h"
#include "plan_bind.h"
#include "sample_bind.h"

namespace nb = nanobind;

NB_MODULE(_cpu, m) {
    m.doc() = "Sapwood's CPU kernels.";
    sapwood::bind_gemm(m);
    sapwood::bind_plain(m);
    sapwood::bind_plan(m);
    sapwood::bind_built(m);
    sapwood::bind_eagle(m);
    sapwood::bind_sample(m);
}
