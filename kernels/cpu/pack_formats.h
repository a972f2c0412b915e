// GGML's encoded blocks, taken apart: one unit of inputs as plain integers, before they are packed.
#pragma once

#include <cstdint>

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

float half_to_float(uint16_t half);
uint16_t float_to_bf16(float value);  // to nearest even; NaN stays NaN
inline float bf16_to_float(uint16_t bits) {
    const uint32_t wide = uint32_t(bits) << 16;
    float value;
    __builtin_memcpy(&value, &wide, 4);
    return value;
}

}  // namespace sapwood
