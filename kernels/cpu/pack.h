// Packed weight matrices: how every format of a checkpoint lies in memory for the matmul kernels.
//
// Packing is lossless for the integer formats: it only moves bits. A weight is
//     scale * (q - zero)            without offset (Q4_0, Q5_0, Q8_0, Q3_K, Q6_K)
//     scale * q + offset            with offset    (Q4_1, Q5_1, Q2_K, Q4_K, Q5_K)
// with q unsigned of `bits` bits and one scale (and offset) per `group` inputs of each output.
//
// 16 outputs are a block: the 16 lanes of a vector. Blocks follow each other, and within a block the inputs run
// linearly, so that a core reads its share of a matrix as one stream. For each 32 inputs of a block:
//
//     low plane   4 x 64 bytes   vector t, lane c, byte i: low nibble  = low 4 bits of q[input 4t + i][output c],
//                                                          high nibble = the same for input 16 + 4t + i
//                 (8 bits: 8 x 64 bytes, vector t, lane c, byte i = q[4t + i][c])
//     high plane  64 bytes for the fifth bit:           lane c, byte i, bit j        = bit 4 of q[4j + i][c]
//                 2 x 64 for the fifth and sixth:       half h, lane c, byte i, bits 2j and 2j + 1
//                                                       = bits 4 and 5 of q[16h + 4j + i][c]
//     scales      flat formats:  16 float16 scales, [16 float16 offsets]
//
// Formats with superblocks (the K family) keep their two levels: before each 256 inputs stand 16 float16 scales and
// [16 float16 offset scales], and the 32 inputs' own scales are int8: [32 / group][16] scales, [32 / group][16]
// offsets. Offset scales are negated at packing, so that offsets are added in every format.
//
// BF16 (F32, F16, BF16): vector p, lane c = inputs 2p and 2p + 1 of output c, with zeros up to a multiple of 32 inputs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace sapwood {

constexpr int kBlockOutputs = 16;  // outputs that lie side by side; ranges of outputs begin at multiples of it
constexpr int kGroup = 32;         // inputs that share an activation scale
constexpr int kSuperGroup = 256;   // inputs that share a first-level scale in the K family

enum class Format { F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K };

// GGML's name, e.g. "Q4_K". Throws std::invalid_argument.
Format format_from_name(const std::string& name);

// Bytes of one encoded row of `in` inputs. Throws std::invalid_argument when `in` is no multiple of the format's block.
size_t format_row_bytes(Format format, int64_t in);

struct Layout {
    int bits = 4;             // 4, 5, 6, 8; 16: bfloat16, and nothing below applies
    int group = 32;           // inputs per scale: 16 or 32
    bool has_offset = false;  // else zero() is subtracted
    bool two_level = false;   // scales of scales, per 256 inputs

    constexpr bool operator==(const Layout&) const = default;
    constexpr bool is_bf16() const { return bits == 16; }
    constexpr int zero() const { return has_offset ? 0 : 1 << (bits - 1); }
    constexpr int scales() const { return 32 / group; }  // per 32 inputs
    constexpr size_t plane_bytes() const { return bits == 8 ? 512 : 256 + 64 * (bits - 4); }
    constexpr size_t scale_bytes() const {  // per 32 inputs
        return size_t(kBlockOutputs) * scales() * (two_level ? 1 : 2) * (has_offset ? 2 : 1);
    }
    constexpr size_t group_bytes() const { return plane_bytes() + scale_bytes(); }           // per 32 inputs
    constexpr size_t super_bytes() const { return two_level ? (has_offset ? 64 : 32) : 0; }  // before each 256 inputs
};

Layout layout_of(Format format);

// A matrix of `out` rows and `in` columns, packed; a view of memory that someone else owns.
struct PackedMatrix {
    Layout layout;
    int64_t out = 0;
    int64_t in = 0;
    const uint8_t* data = nullptr;

    int64_t num_groups() const { return (in + kGroup - 1) / kGroup; }
    int64_t num_blocks() const { return (out + kBlockOutputs - 1) / kBlockOutputs; }
    size_t block_bytes() const;
    size_t bytes() const { return size_t(num_blocks()) * block_bytes(); }
    const uint8_t* block(int64_t index) const { return data + size_t(index) * block_bytes(); }
};

// Memory for packed matrices, in huge pages where the system gives them.
// Untouched until something is packed into it, so that the threads that pack share the work of the first touch.
class WeightMemory {
 public:
    explicit WeightMemory(size_t bytes);
    ~WeightMemory();
    WeightMemory(const WeightMemory&) = delete;
    WeightMemory& operator=(const WeightMemory&) = delete;

    // The next `bytes`, aligned to 64. Throws std::length_error beyond what was asked for at construction;
    // ask for the sum of aligned_bytes() of the parts.
    uint8_t* take(size_t bytes);
    size_t size() const { return size_; }
    static constexpr size_t aligned_bytes(size_t bytes) { return (bytes + 63) / 64 * 64; }

 private:
    uint8_t* base_ = nullptr;
    size_t size_ = 0;
    size_t used_ = 0;
};

// Pack outputs of blocks [block_begin, block_end) from encoded rows (row r at source + r * format_row_bytes(format,
// in)) into `target`, memory of matrix.bytes() bytes that starts where matrix.data points. Calls on disjoint blocks may
// run at the same time; float rows are rounded to bfloat16, to nearest even.
void pack_blocks(const PackedMatrix& matrix, uint8_t* target, Format format, const uint8_t* source, int64_t block_begin,
                 int64_t block_end);

// The same for a whole matrix, on `threads` threads of its own.
void pack(const PackedMatrix& matrix, uint8_t* target, Format format, const uint8_t* source, int threads);

// Row `row` of the matrix as float32 [in], exactly what GGML's formula for the format gives (bfloat16 for float
// formats).
void dequantize_row(const PackedMatrix& matrix, int64_t row, float* out);

}  // namespace sapwood
