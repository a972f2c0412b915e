#include "vector_kernels.h"


namespace sapwood::portable {
const VectorOps vector_ops = kVectorOps;
}


#include "isa.h"

namespace sapwood {

const VectorOps& vector_ops() {
    switch (current_isa()) {
#if defined(__x86_64__)
        case Isa::amx:
        case Isa::avx512: return avx512::vector_ops;
        case Isa::avx2: return avx2::vector_ops;
#endif
        default: return portable::vector_ops;
    }
}

}  // namespace sapwood
