#include "gemm_probe.h"

#include <cstring>

#include "gemm_kernels.h"
#include "isa.h"

namespace sapwood {

void read_once(const uint8_t* data, size_t bytes) {
    uint64_t sum = 0;
    for (size_t at = 0; at + 64 <= bytes; at += 64) {  // one word of each line brings all of it
        __builtin_prefetch(data + at + 2048, 0, 2);
        uint64_t word;
        std::memcpy(&word, data + at, 8);
        sum += word;
    }
    __asm__ volatile("" ::"r"(sum));
}

int64_t do_dots([[maybe_unused]] int64_t operations) {
#if defined(__x86_64__)
    if (current_isa() >= Isa::avx512) return avx512::do_dots(operations);
#endif
    return 0;
}

}  // namespace sapwood
