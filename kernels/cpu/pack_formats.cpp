// Layouts of the encoded blocks: ggml-common.h of llama.cpp; numpy twins in the `gguf` package (quants.py).
#include "pack_formats.h"

#include <cstring>
#include <stdexcept>

namespace sapwood {
namespace {

uint16_t load16(const uint8_t* at) {
    uint16_t value;
    std::memcpy(&value, at, 2);
    return value;
}

uint32_t load32(const uint8_t* at) {
    uint32_t value;
    std::memcpy(&value, at, 4);
    return value;
}

uint16_t negated_half(uint16_t half) { return half ^ 0x8000; }

// 16 bytes -> 32 values: low nibbles, then high nibbles.
void split_nibbles(const uint8_t* bytes, uint8_t* q) {
    for (int i = 0; i < 16; ++i) {
        q[i] = bytes[i] & 15;
        q[16 + i] = bytes[i] >> 4;
    }
}

// Bit i of `bits` becomes bit 4 of q[i].
void add_fifth_bits(uint32_t bits, uint8_t* q) {
    for (int i = 0; i < 32; i += 4, bits >>= 4) {
        const uint32_t spread = (bits & 15) * 0x00204081 & 0x01010101;  // bit j to byte j
        const uint32_t four = load32(q + i) | spread << 4;
        std::memcpy(q + i, &four, 4);
    }
}

void decode_q4_0(const uint8_t* block, PlainUnit& unit) {  // d, 16 bytes
    unit.scale_level1 = load16(block);
    split_nibbles(block + 2, unit.q);
}

void decode_q4_1(const uint8_t* block, PlainUnit& unit) {  // d, m, 16 bytes
    unit.scale_level1 = load16(block);
    unit.offset_level1 = load16(block + 2);
    split_nibbles(block + 4, unit.q);
}

void decode_q5_0(const uint8_t* block, PlainUnit& unit) {  // d, 4 bytes of fifth bits, 16 bytes
    unit.scale_level1 = load16(block);
    split_nibbles(block + 6, unit.q);
    add_fifth_bits(load32(block + 2), unit.q);
}

void decode_q5_1(const uint8_t* block, PlainUnit& unit) {  // d, m, 4 bytes of fifth bits, 16 bytes
    unit.scale_level1 = load16(block);
    unit.offset_level1 = load16(block + 2);
    split_nibbles(block + 8, unit.q);
    add_fifth_bits(load32(block + 4), unit.q);
}

void decode_q8_0(const uint8_t* block, PlainUnit& unit) {  // d, 32 signed bytes
    unit.scale_level1 = load16(block);
    for (int i = 0; i < 32; ++i) unit.q[i] = block[2 + i] ^ 0x80;
}

// Four 2-bit fields a byte, 32 bytes for 128 values: field f of byte i is value 32 f + i.
void split_pairs_of_bits(const uint8_t* bytes, uint8_t* q) {
    for (int half = 0; half < 2; ++half)
        for (int field = 0; field < 4; ++field)
            for (int i = 0; i < 32; ++i) q[128 * half + 32 * field + i] = bytes[32 * half + i] >> (2 * field) & 3;
}

void decode_q2_k(const uint8_t* block, PlainUnit& unit) {  // 16 bytes of scales and mins, 64 bytes, d, dmin
    split_pairs_of_bits(block + 16, unit.q);
    for (int i = 0; i < 16; ++i) {
        unit.scale[i] = int8_t(block[i] & 15);
        unit.offset[i] = int8_t(block[i] >> 4);
    }
    unit.scale_level1 = load16(block + 80);
    unit.offset_level1 = negated_half(load16(block + 82));
}

void decode_q3_k(const uint8_t* block, PlainUnit& unit) {  // 32 bytes of third bits, 64 bytes, 12 of scales, d
    split_pairs_of_bits(block + 32, unit.q);
    // Values are -4..3, third bit set for 0..3; our zero point is 8.
    for (int group = 0; group < 8; ++group)
        for (int i = 0; i < 32; ++i) unit.q[32 * group + i] += uint8_t(4 + (block[i] >> group & 1) * 4);
    const uint8_t* scales = block + 96;
    for (int i = 0; i < 16; ++i) {
        const int low = i < 8 ? scales[i] & 15 : scales[i - 8] >> 4;
        const int high = scales[8 + i % 4] >> (2 * (i / 4)) & 3;
        unit.scale[i] = int8_t((low | high << 4) - 32);
    }
    unit.scale_level1 = load16(block + 108);
}

// Q4_K and Q5_K: eight 6-bit scales and mins in 12 bytes.
void split_scales_and_mins(const uint8_t* bytes, PlainUnit& unit) {
    for (int i = 0; i < 4; ++i) {
        unit.scale[i] = int8_t(bytes[i] & 63);
        unit.offset[i] = int8_t(bytes[4 + i] & 63);
        unit.scale[4 + i] = int8_t((bytes[8 + i] & 15) | (bytes[i] >> 6 << 4));
        unit.offset[4 + i] = int8_t((bytes[8 + i] >> 4) | (bytes[4 + i] >> 6 << 4));
    }
}

// 128 bytes -> 256 values: of each 32 bytes, low nibbles, then high nibbles.
void split_wide_nibbles(const uint8_t* bytes, uint8_t* q) {
    for (int chunk = 0; chunk < 4; ++chunk)
        for (int i = 0; i < 32; ++i) {
            q[64 * chunk + i] = bytes[32 * chunk + i] & 15;
            q[64 * chunk + 32 + i] = bytes[32 * chunk + i] >> 4;
        }
}

void decode_q4_k(const uint8_t* block, PlainUnit& unit) {  // d, dmin, 12 bytes of scales and mins, 128 bytes
    unit.scale_level1 = load16(block);
    unit.offset_level1 = negated_half(load16(block + 2));
    split_scales_and_mins(block + 4, unit);
    split_wide_nibbles(block + 16, unit.q);
}

void decode_q5_k(const uint8_t* block, PlainUnit& unit) {  // like Q4_K, with 32 bytes of fifth bits before the 128
    unit.scale_level1 = load16(block);
    unit.offset_level1 = negated_half(load16(block + 2));
    split_scales_and_mins(block + 4, unit);
    split_wide_nibbles(block + 48, unit.q);
    for (int group = 0; group < 8; ++group)
        for (int i = 0; i < 32; ++i) unit.q[32 * group + i] |= uint8_t((block[16 + i] >> group & 1) << 4);
}

void decode_q6_k(const uint8_t* block, PlainUnit& unit) {  // 128 bytes of nibbles, 64 of high bits, 16 scales, d
    for (int half = 0; half < 2; ++half) {
        const uint8_t* low = block + 64 * half;
        const uint8_t* high = block + 128 + 32 * half;
        uint8_t* q = unit.q + 128 * half;
        for (int i = 0; i < 32; ++i) {
            q[i] = uint8_t((low[i] & 15) | (high[i] & 3) << 4);
            q[32 + i] = uint8_t((low[32 + i] & 15) | (high[i] >> 2 & 3) << 4);
            q[64 + i] = uint8_t(low[i] >> 4 | (high[i] >> 4 & 3) << 4);
            q[96 + i] = uint8_t(low[32 + i] >> 4 | high[i] >> 6 << 4);
        }
    }
    std::memcpy(unit.scale, block + 192, 16);
    unit.scale_level1 = load16(block + 208);
}

struct FormatInfo {
    const char* name;
    BlockShape shape;
    Layout layout;
    DecodeBlock decode;
};

const FormatInfo& info(Format format) {
    constexpr Layout bf16{.bits = 16};
    static const FormatInfo table[] = {
        {"F32", {4, 1}, bf16, nullptr},
        {"F16", {2, 1}, bf16, nullptr},
        {"BF16", {2, 1}, bf16, nullptr},
        {"Q4_0", {18, 32}, {.bits = 4}, decode_q4_0},
        {"Q4_1", {20, 32}, {.bits = 4, .has_offset = true}, decode_q4_1},
        {"Q5_0", {22, 32}, {.bits = 5}, decode_q5_0},
        {"Q5_1", {24, 32}, {.bits = 5, .has_offset = true}, decode_q5_1},
        {"Q8_0", {34, 32}, {.bits = 8}, decode_q8_0},
        {"Q2_K", {84, 256}, {.bits = 4, .group = 16, .has_offset = true, .two_level = true}, decode_q2_k},
        {"Q3_K", {110, 256}, {.bits = 4, .group = 16, .two_level = true}, decode_q3_k},
        {"Q4_K", {144, 256}, {.bits = 4, .has_offset = true, .two_level = true}, decode_q4_k},
        {"Q5_K", {176, 256}, {.bits = 5, .has_offset = true, .two_level = true}, decode_q5_k},
        {"Q6_K", {210, 256}, {.bits = 6, .group = 16, .two_level = true}, decode_q6_k},
    };
    return table[int(format)];
}

}  // namespace

Format format_from_name(const std::string& name) {
    for (int i = 0; i <= int(Format::Q6_K); ++i)
        if (name == info(Format(i)).name) return Format(i);
    throw std::invalid_argument("unknown weight format '" + name + "'");
}

BlockShape block_shape(Format format) { return info(format).shape; }

Layout layout_of(Format format) { return info(format).layout; }

DecodeBlock decoder_of(Format format) { return info(format).decode; }

size_t format_row_bytes(Format format, int64_t in) {
    const BlockShape shape = block_shape(format);
    if (in <= 0 || in % shape.inputs != 0)
        throw std::invalid_argument(std::string("a row of ") + info(format).name + " holds a multiple of " +
                                    std::to_string(shape.inputs) + " values, not " + std::to_string(in));
    return size_t(in / shape.inputs) * shape.bytes;
}

}  // namespace sapwood
