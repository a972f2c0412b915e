// Rotary position embedding (arXiv 2104.09864) of one head.
#pragma once

#include <cmath>
#include <cstdint>

namespace sapwood {

// cos and sin [half] of one position.
inline void rope_angles(const float* inv_freq, int64_t half, int32_t position, float magnitude, float* cos, float* sin) {
    for (int64_t k = 0; k < half; ++k) {
        const float angle = float(position) * inv_freq[k];
        cos[k] = std::cos(angle) * magnitude;
        sin[k] = std::sin(angle) * magnitude;
    }
}

// Pairs are (2k, 2k + 1) when interleaved, else (k, k + half).
inline void rotate_head(float* x, int64_t half, bool interleaved, const float* __restrict cos, const float* __restrict sin) {
    const auto rotate = [=](int64_t k, float* __restrict a, float* __restrict b) {
        const float first = *a, second = *b;
        *a = first * cos[k] - second * sin[k];
        *b = second * cos[k] + first * sin[k];
    };
    if (interleaved)  // two loops: each alone is one that compilers make vectors of
        for (int64_t k = 0; k < half; ++k) rotate(k, x + 2 * k, x + 2 * k + 1);
    else
        for (int64_t k = 0; k < half; ++k) rotate(k, x + k, x + half + k);
}

}  // namespace sapwood
