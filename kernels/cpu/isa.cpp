#include "isa.h"

#include <atomic>
#include <stdexcept>

#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace sapwood {
namespace {

constexpr Isa kAll[] = {Isa::portable, Isa::avx2, Isa::avx512, Isa::amx};

#if defined(__x86_64__)
// Linux hands out the tile registers only to processes that ask.
bool permit_amx() {
#if defined(__linux__)
    constexpr long kArchReqXcompPerm = 0x1023;
    constexpr long kXfeatureTileData = 18;
    return syscall(SYS_arch_prctl, kArchReqXcompPerm, kXfeatureTileData) == 0;
#else
    return false;
#endif
}

bool has_amx() {
    unsigned eax = 7, ebx, ecx = 0, edx;
    __asm__ volatile("cpuid" : "+a"(eax), "=b"(ebx), "+c"(ecx), "=d"(edx));
    constexpr unsigned kWanted = 1u << 22 | 1u << 24 | 1u << 25;  // bfloat16, tiles, int8
    return (edx & kWanted) == kWanted && permit_amx();
}

Isa detect() {
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return Isa::portable;
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512vnni"))
        return Isa::avx2;
    return has_amx() ? Isa::amx : Isa::avx512;
}
#else
Isa detect() { return Isa::portable; }
#endif

std::atomic<Isa>& chosen() {
    static std::atomic<Isa> isa{best_isa()};
    return isa;
}

}  // namespace

Isa best_isa() {
    static const Isa isa = detect();
    return isa;
}

Isa current_isa() { return chosen().load(std::memory_order_relaxed); }

void set_isa(Isa isa) {
    if (isa > best_isa())
        throw std::invalid_argument(std::string("this machine has no ") + isa_name(isa) +
                                    "; its best instruction set is " + isa_name(best_isa()));
    chosen().store(isa, std::memory_order_relaxed);
}

bool has_avx512_bf16() {
#if defined(__x86_64__)
    static const bool has = best_isa() >= Isa::avx512 && __builtin_cpu_supports("avx512bf16");
    return has;
#else
    return false;
#endif
}

const char* isa_name(Isa isa) {
    switch (isa) {
        case Isa::portable: return "portable";
        case Isa::avx2: return "avx2";
        case Isa::avx512: return "avx512";
        case Isa::amx: return "amx";
    }
    return "unknown";
}

Isa isa_from_name(const std::string& name) {
    for (Isa isa : kAll)
        if (name == isa_name(isa)) return isa;
    throw std::invalid_argument("unknown instruction set '" + name + "'; known: portable, avx2, avx512, amx");
}

std::vector<Isa> available_isas() {
    std::vector<Isa> found;
    for (Isa isa : kAll)
        if (isa <= best_isa()) found.push_back(isa);
    return found;
}

}  // namespace sapwood
