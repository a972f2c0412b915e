// Which instruction set the kernels use, asked once per process.
#pragma once

#include <string>
#include <vector>

namespace sapwood {

// In rising order: each set includes what the ones before it need.
//   avx2:    AVX2, FMA, F16C (Haswell, Zen and later)
//   avx512:  AVX-512 F/BW/VL with VNNI (Cascade Lake, Zen 4 and later)
//   amx:     avx512 and the int8 and bfloat16 tiles of AMX, permitted by the kernel (Sapphire Rapids and later)
enum class Isa { portable, avx2, avx512, amx };

// The best set that this machine can run.
Isa best_isa();

// The set in use: best_isa() until set_isa() says otherwise (tests and benchmarks do; not while kernels run).
Isa current_isa();

// Throws std::invalid_argument when this machine can't run it.
void set_isa(Isa isa);

// Whether the machine has AVX-512's dot product of bfloat16 pairs, which some machines of the avx512 set lack.
bool has_avx512_bf16();

const char* isa_name(Isa isa);
Isa isa_from_name(const std::string& name);
std::vector<Isa> available_isas();

}  // namespace sapwood
