// Choosing a token among many without sorting them all. The meaning is that of kernels/sampling.py.
#pragma once

#include <cstdint>

namespace sapwood {

// What may be drawn: the fewest of the likeliest that have `top_p` of the weight, of these those with at least `min_p`.
struct Kept {
    double top_p;
    float min_p;
};

// The token on which `number` in [0, 1) falls when the kept ones, likeliest first and equal ones by index, have a share by
// their weight. Weights lie in 0 .. 1 and the largest is 1.
int64_t draw(const float* weights, int64_t n, const Kept& kept, double number);

}  // namespace sapwood
