// Ceilings of this machine, to measure kernels against.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sapwood {

// Read `bytes` once, linearly, on this thread.
void read_once(const uint8_t* data, size_t bytes);

// Do at least `operations` multiplications and additions of 8-bit integers on registers, as fast as the instruction
// set in use can; returns how many were done (0: this set has no such probe).
int64_t do_dots(int64_t operations);

}  // namespace sapwood
