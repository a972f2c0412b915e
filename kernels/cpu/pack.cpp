#include "pack.h"

#include <sys/mman.h>

#include <cstring>
#include <new>
#include <stdexcept>
#include <thread>
#include <vector>

#include "pack_formats.h"

namespace sapwood {
namespace {

constexpr size_t kHugePage = size_t(2) << 20;

uint32_t load32(const uint8_t* at) {
    uint32_t value;
    std::memcpy(&value, at, 4);
    return value;
}

void store16(uint8_t* at, uint16_t value) { std::memcpy(at, &value, 2); }

void store_lane(uint8_t* vector, int lane, uint32_t value) { std::memcpy(vector + 4 * lane, &value, 4); }

// 32 values of one output into the planes of a group. The drawing is in pack.h.
void store_planes(uint8_t* planes, int bits, int lane, const uint8_t* q) {
    if (bits == 8) {
        for (int t = 0; t < 8; ++t) store_lane(planes + 64 * t, lane, load32(q + 4 * t));
        return;
    }
    for (int t = 0; t < 4; ++t) {
        const uint32_t low = load32(q + 4 * t) & 0x0f0f0f0f, high = load32(q + 16 + 4 * t) & 0x0f0f0f0f;
        store_lane(planes + 64 * t, lane, low | high << 4);
    }
    planes += 256;
    if (bits == 5) {
        uint32_t fifth = 0;
        for (int j = 0; j < 8; ++j) fifth |= (load32(q + 4 * j) >> 4 & 0x01010101) << j;
        store_lane(planes, lane, fifth);
    } else if (bits == 6) {
        for (int half = 0; half < 2; ++half) {
            uint32_t pairs = 0;
            for (int j = 0; j < 4; ++j) pairs |= (load32(q + 16 * half + 4 * j) >> 4 & 0x03030303) << 2 * j;
            store_lane(planes + 64 * half, lane, pairs);
        }
    }
}

uint8_t load_plane_value(const uint8_t* planes, int bits, int lane, int k) {
    const int at = 4 * lane + k % 4;
    if (bits == 8) return planes[64 * (k / 4) + at];
    const uint8_t low = planes[64 * (k % 16 / 4) + at] >> (k < 16 ? 0 : 4) & 15;
    planes += 256;
    if (bits == 5) return uint8_t(low | (planes[at] >> (k / 4) & 1) << 4);
    if (bits == 6) return uint8_t(low | (planes[64 * (k / 16) + at] >> (2 * (k % 16 / 4)) & 3) << 4);
    return low;
}

// One decoded unit of one output into its block.
void store_unit(uint8_t* target, const Layout& layout, int lane, const PlainUnit& unit) {
    if (!layout.two_level) {
        store_planes(target, layout.bits, lane, unit.q);
        uint8_t* scales = target + layout.plane_bytes();
        store16(scales + 2 * lane, unit.scale_level1);
        if (layout.has_offset) store16(scales + 32 + 2 * lane, unit.offset_level1);
        return;
    }
    store16(target + 2 * lane, unit.scale_level1);
    if (layout.has_offset) store16(target + 32 + 2 * lane, unit.offset_level1);
    target += layout.super_bytes();
    for (int group = 0; group < 8; ++group, target += layout.group_bytes()) {
        store_planes(target, layout.bits, lane, unit.q + 32 * group);
        uint8_t* scales = target + layout.plane_bytes();
        for (int s = 0; s < layout.scales(); ++s, scales += 16) {
            scales[lane] = uint8_t(unit.scale[layout.scales() * group + s]);
            if (layout.has_offset)
                scales[16 * layout.scales() + lane] = uint8_t(unit.offset[layout.scales() * group + s]);
        }
    }
}

void pack_integer_block(const PackedMatrix& matrix, uint8_t* target, Format format, const uint8_t* rows, int lanes) {
    const BlockShape shape = block_shape(format);
    const DecodeBlock decode = decoder_of(format);
    const size_t row_bytes = format_row_bytes(format, matrix.in);
    const size_t unit_bytes = matrix.layout.super_bytes() + size_t(shape.inputs / kGroup) * matrix.layout.group_bytes();
    PlainUnit unit;
    for (int64_t u = 0; u < matrix.in / shape.inputs; ++u, target += unit_bytes)
        for (int lane = 0; lane < lanes; ++lane) {
            decode(rows + lane * row_bytes + size_t(u) * shape.bytes, unit);
            store_unit(target, matrix.layout, lane, unit);
        }
}

// `count` encoded floats, rounded to bfloat16.
void round_floats(Format format, const uint8_t* from, int64_t count, uint16_t* to) {
    if (format == Format::F32) {
        for (int64_t i = 0; i < count; ++i) {
            float value;
            std::memcpy(&value, from + 4 * i, 4);
            to[i] = float_to_bf16(value);
        }
    } else if (format == Format::F16) {
        for (int64_t i = 0; i < count; ++i) {
            uint16_t half;
            std::memcpy(&half, from + 2 * i, 2);
            to[i] = float_to_bf16(half_to_float(half));
        }
    } else {
        std::memcpy(to, from, size_t(count) * 2);
    }
}

void pack_float_block(const PackedMatrix& matrix, uint8_t* target, Format format, const uint8_t* rows, int lanes) {
    constexpr int64_t kChunk = 256;
    const size_t row_bytes = format_row_bytes(format, matrix.in), value_bytes = size_t(block_shape(format).bytes);
    for (int64_t k = 0; k < matrix.in; k += kChunk, target += 64 * (kChunk / 2)) {
        const int64_t count = matrix.in - k < kChunk ? matrix.in - k : kChunk;
        for (int lane = 0; lane < lanes; ++lane) {
            uint16_t rounded[kChunk] = {};
            round_floats(format, rows + size_t(lane) * row_bytes + size_t(k) * value_bytes, count, rounded);
            const int64_t padded = (count + kGroup - 1) / kGroup * kGroup;
            for (int64_t i = 0; i < padded; i += 2) std::memcpy(target + 32 * i + 4 * lane, rounded + i, 4);
        }
    }
}

float load_half(const uint8_t* halves, int lane) {
    uint16_t bits;
    std::memcpy(&bits, halves + 2 * lane, 2);
    return half_to_float(bits);
}

float load_byte(const uint8_t* bytes, int lane) { return float(int8_t(bytes[lane])); }

void dequantize_floats(const uint8_t* block, int lane, int64_t in, float* out) {
    for (int64_t k = 0; k < in; ++k) {
        uint16_t bits;
        std::memcpy(&bits, block + 64 * (k / 2) + 4 * lane + 2 * (k % 2), 2);
        out[k] = bf16_to_float(bits);
    }
}

void dequantize_integers(const Layout& layout, const uint8_t* at, int lane, int64_t in, float* out) {
    float scale_level1 = 0, offset_level1 = 0;
    for (int64_t k = 0; k < in; k += kGroup, at += layout.group_bytes()) {
        if (layout.two_level && k % kSuperGroup == 0) {
            scale_level1 = load_half(at, lane);
            if (layout.has_offset) offset_level1 = load_half(at + 32, lane);
            at += layout.super_bytes();
        }
        const uint8_t* scales = at + layout.plane_bytes();
        for (int s = 0; s < layout.scales(); ++s) {
            float scale, offset = 0;
            if (layout.two_level) {
                scale = scale_level1 * load_byte(scales + 16 * s, lane);
                if (layout.has_offset) offset = offset_level1 * load_byte(scales + 16 * (layout.scales() + s), lane);
            } else {
                scale = load_half(scales, lane);
                if (layout.has_offset) offset = load_half(scales + 32, lane);
            }
            for (int i = s * layout.group; i < (s + 1) * layout.group; ++i) {
                const int q = load_plane_value(at, layout.bits, lane, i) - layout.zero();
                out[k + i] = scale * float(q) + offset;
            }
        }
    }
}

}  // namespace

size_t PackedMatrix::block_bytes() const {
    if (layout.is_bf16()) return size_t(num_groups()) * (kGroup / 2) * 64;
    const size_t supers = layout.two_level ? size_t(in / kSuperGroup) * layout.super_bytes() : 0;
    return size_t(in / kGroup) * layout.group_bytes() + supers;
}

WeightMemory::WeightMemory(size_t bytes) : size_(aligned_bytes(bytes)) {
    if (size_ == 0) return;
    void* memory = ::operator new(size_, std::align_val_t(kHugePage));
#if defined(MADV_HUGEPAGE)
    madvise(memory, size_, MADV_HUGEPAGE);
#endif
    base_ = static_cast<uint8_t*>(memory);
}

WeightMemory::~WeightMemory() { ::operator delete(base_, std::align_val_t(kHugePage)); }

uint8_t* WeightMemory::take(size_t bytes) {
    const size_t wanted = aligned_bytes(bytes);
    if (wanted > size_ - used_) throw std::length_error("more packed weights than memory was reserved for");
    uint8_t* part = base_ + used_;
    used_ += wanted;
    return part;
}

void pack_blocks(const PackedMatrix& matrix, uint8_t* target, Format format, const uint8_t* source, int64_t block_begin,
                 int64_t block_end) {
    const size_t row_bytes = format_row_bytes(format, matrix.in);
    for (int64_t block = block_begin; block < block_end; ++block) {
        const int64_t row = block * kBlockOutputs;
        const int lanes = int(matrix.out - row < kBlockOutputs ? matrix.out - row : kBlockOutputs);
        uint8_t* at = target + size_t(block) * matrix.block_bytes();
        if (lanes < kBlockOutputs) std::memset(at, 0, matrix.block_bytes());
        const uint8_t* rows = source + size_t(row) * row_bytes;
        if (matrix.layout.is_bf16())
            pack_float_block(matrix, at, format, rows, lanes);
        else
            pack_integer_block(matrix, at, format, rows, lanes);
    }
}

void pack(const PackedMatrix& matrix, uint8_t* target, Format format, const uint8_t* source, int threads) {
    const int64_t blocks = matrix.num_blocks();
    std::vector<std::thread> others;
    for (int t = 1; t < threads; ++t)
        others.emplace_back(pack_blocks, matrix, target, format, source, blocks * t / threads,
                            blocks * (t + 1) / threads);
    pack_blocks(matrix, target, format, source, 0, blocks / (threads > 1 ? threads : 1));
    for (std::thread& other : others) other.join();
}

void dequantize_row(const PackedMatrix& matrix, int64_t row, float* out) {
    const uint8_t* block = matrix.block(row / kBlockOutputs);
    const int lane = int(row % kBlockOutputs);
    if (matrix.layout.is_bf16())
        dequantize_floats(block, lane, matrix.in, out);
    else
        dequantize_integers(matrix.layout, block, lane, matrix.in, out);
}

}  // namespace sapwood
