#include "vector_kernels.h"

#if defined(__x86_64__)

namespace sapwood::avx2 {
const VectorOps vector_ops = kVectorOps;
}

#endif
