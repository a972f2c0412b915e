// GGML's encoded blocks, taken apart: one unit of inputs as plain integers, before they are packed.
#pragma once

#include <cstdint>
#include <cstring>

#include "pack.h"

namespace sapwood {

// Inputs that share first-level scales: 32 in the flat formats, 256 in the K family.
// weight = scale_level1 * scale[k / group] * (q - zero) or scale_level1 * scale * q + offset_level1 * offset;
// in the flat formats `scale` and `offset` are not used (1).
struct PlainUnit {
    uint8_t q[kSuperGroup];
    int8_t scale[16];
    int8_t offset[16];
    uint16_t scale_level1;   // float16
    uint16_t offset_level1;  // float16, negated where the format subtracts it
};

// Bytes and inputs of one encoded block. For float formats a block is one value.
struct BlockShape {
    int bytes;
    int inputs;
};
BlockShape block_shape(Format format);

// Decode one block of an integer format.
using DecodeBlock = void (*)(const uint8_t* block, PlainUnit& unit);
DecodeBlock decoder_of(Format format);

inline float float_of_bits(uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
}

inline uint32_t bits_of_float(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    return bits;
}

inline float bf16_to_float(uint16_t bits) { return float_of_bits(uint32_t(bits) << 16); }

// To nearest even; NaN stays NaN. Without branches, like its neighbour below, so that loops over it become vectors.
inline uint16_t float_to_bf16(float value) {
    const uint32_t bits = bits_of_float(value);
    const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    const bool is_nan = (bits & 0x7fffffff) > 0x7f800000;
    return uint16_t(is_nan ? bits >> 16 | 0x40 : rounded);
}

inline float half_to_float(uint16_t half) {
    const uint32_t sign = uint32_t(half & 0x8000) << 16;
    const uint32_t rest = uint32_t(half & 0x7fff) << 13;
    // The exponent's bias moves from 15 to 127 by a multiplication, which is exact, subnormal numbers included.
    const uint32_t finite = bits_of_float(float_of_bits(rest) * 0x1p112f);
    const bool is_special = rest >= 0x0f800000;  // infinity and NaN
    return float_of_bits(sign | (is_special ? rest | 0x7f800000 : finite));
}

}  // namespace sapwood
