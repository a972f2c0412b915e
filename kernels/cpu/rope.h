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
inline void rotate_head(float* x, int64_t half, bool interleaved, const float* cos, const float* sin) {
    const int64_t step = interleaved ? 2 : 1, apart = interleaved ? 1 : half;
    for (int64_t k = 0; k < half; ++k) {
        float &a = x[k * step], &b = x[k * step + apart];
        const float first = a, second = b;
        a = first * cos[k] - second * sin[k];
        b = second * cos[k] + first * sin[k];
    }
}

}  // namespace sapwood
