// The matmul kernels for AVX2. Lanes are outputs, 8 a vector: a block is two vectors wide.
//
// Bytes are multiplied in pairs into 16-bit sums (vpmaddubsw), which are widened before they can overflow:
// |q * x| <= (2^bits - 1) * 127, so 8 steps for 4 bits, 4 for 5, 2 for 6. Eight bits are two nibbles, 16 * high + low.
#include "gemm_kernels.h"

#if defined(__AVX2__)

#include <immintrin.h>

#include <cstring>

namespace sapwood::avx2 {
namespace {

// 32 inputs of a block, unpacked: vector j holds inputs 4j .. 4j + 3; with 8 bits, vectors 8 + j hold the high nibbles.
struct alignas(64) WeightGroup {
    uint8_t q[16][64];
    float scale[2][kBlockOutputs];
    float offset[2][kBlockOutputs];
};

struct SuperScales {
    __m256 scale[2];
    __m256 offset[2];
};

inline __m256i load(const uint8_t* at) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)); }

inline __m256 load_halves(const uint8_t* at) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
}

inline __m256 load_bytes(const uint8_t* at) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(at))));
}

inline __m256i moved(__m256i plane, int right) {
    return right >= 0 ? _mm256_srl_epi16(plane, _mm_cvtsi32_si128(right))
                      : _mm256_sll_epi16(plane, _mm_cvtsi32_si128(-right));
}

template <Layout L>
inline void unpack_planes(const uint8_t* at, WeightGroup& group) {
    const __m256i nibble = _mm256_set1_epi8(15);
    const auto store = [&group](int j, int half, __m256i value) {
        _mm256_store_si256(reinterpret_cast<__m256i*>(group.q[j] + 32 * half), value);
    };
    constexpr int kVectors = L.bits == 8 ? 8 : 4;
    for (int half = 0; half < 2; ++half) {
        for (int j = 0; j < kVectors; ++j) {
            const __m256i both = load(at + 64 * j + 32 * half);
            store(j, half, _mm256_and_si256(both, nibble));
            store(kVectors + j, half, _mm256_and_si256(_mm256_srli_epi16(both, 4), nibble));
        }
        if constexpr (L.bits == 5 || L.bits == 6) {
            constexpr int kWide = L.bits - 4, kPerPlane = 8 / kWide;  // bits a value, values a byte
            const __m256i mask = _mm256_set1_epi8(L.bits == 5 ? 0x10 : 0x30);
            for (int j = 0; j < 8; ++j) {
                const __m256i plane = load(at + 256 + 64 * (j / kPerPlane) + 32 * half);
                const __m256i high = _mm256_and_si256(moved(plane, kWide * (j % kPerPlane) - 4), mask);
                store(j, half, _mm256_or_si256(load(group.q[j] + 32 * half), high));
            }
        }
    }
}

template <Layout L>
inline void unpack_scales(const uint8_t* at, const SuperScales& super, WeightGroup& group) {
    for (int half = 0; half < 2; ++half) {
        if constexpr (L.two_level) {
            for (int s = 0; s < L.scales(); ++s) {
                const uint8_t* scales = at + 16 * s + 8 * half;
                _mm256_store_ps(group.scale[s] + 8 * half, _mm256_mul_ps(super.scale[half], load_bytes(scales)));
                if constexpr (L.has_offset)
                    _mm256_store_ps(group.offset[s] + 8 * half,
                                    _mm256_mul_ps(super.offset[half], load_bytes(scales + 16 * L.scales())));
            }
        } else {
            _mm256_store_ps(group.scale[0] + 8 * half, load_halves(at + 16 * half));
            if constexpr (L.has_offset) _mm256_store_ps(group.offset[0] + 8 * half, load_halves(at + 32 + 16 * half));
        }
    }
}

// The dot products of vectors [begin, end) of one half of the block with the row's bytes.
template <int steps>
inline __m256i dot_nibbles(const uint8_t (*q)[64], int half, const int8_t* x, int begin, int end) {
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i dot = _mm256_setzero_si256();
    for (int first = begin; first < end; first += steps) {
        __m256i pairs = _mm256_setzero_si256();
        for (int j = first; j < first + steps; ++j) {
            int32_t four;
            std::memcpy(&four, x + 4 * j, 4);
            pairs = _mm256_add_epi16(pairs, _mm256_maddubs_epi16(load(q[j] + 32 * half), _mm256_set1_epi32(four)));
        }
        dot = _mm256_add_epi32(dot, _mm256_madd_epi16(pairs, ones));
    }
    return dot;
}

template <Layout L>
inline __m256 add_group(const WeightGroup& group, int half, const ActivationGroup& row, __m256 sum) {
    constexpr int kPerScale = 8 / L.scales();
    constexpr int kSteps = L.bits == 6 ? 2 : L.bits == 5 ? 4 : kPerScale;
    for (int s = 0; s < L.scales(); ++s) {
        const int begin = kPerScale * s, end = begin + kPerScale;
        __m256i dot = dot_nibbles<kSteps>(group.q, half, row.q, begin, end);
        if constexpr (L.bits == 8) {
            const __m256i high = dot_nibbles<kSteps>(group.q + 8, half, row.q, begin, end);
            dot = _mm256_add_epi32(dot, _mm256_slli_epi32(high, 4));
        }
        if constexpr (!L.has_offset) {
            const int32_t zero8 = L.scales() == 1 ? row.zero8 : row.half_zero8[s];
            dot = _mm256_add_epi32(dot, _mm256_set1_epi32(zero8 * (1 << (L.bits - 4))));
        }
        const __m256 scale = _mm256_mul_ps(_mm256_load_ps(group.scale[s] + 8 * half), _mm256_set1_ps(row.scale));
        sum = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), scale, sum);
        if constexpr (L.has_offset) {
            const float row_sum = L.scales() == 1 ? row.sum : row.half_sum[s];
            sum = _mm256_fmadd_ps(_mm256_load_ps(group.offset[s] + 8 * half), _mm256_set1_ps(row_sum), sum);
        }
    }
    return sum;
}

template <Layout L>
void run_block(const uint8_t* at, int64_t in, const ActivationGroup* panel, int rows, float* sums) {
    std::memset(sums, 0, size_t(rows) * kBlockOutputs * sizeof(float));
    WeightGroup group;
    SuperScales super{};
    for (int64_t g = 0; g < in / kGroup; ++g, at += L.group_bytes(), panel += rows) {
        if constexpr (L.two_level) {
            if (g % (kSuperGroup / kGroup) == 0) {
                for (int half = 0; half < 2; ++half) {
                    super.scale[half] = load_halves(at + 16 * half);
                    if constexpr (L.has_offset) super.offset[half] = load_halves(at + 32 + 16 * half);
                }
                at += L.super_bytes();
            }
        }
        for (size_t line = 0; line < L.group_bytes(); line += 64)
            _mm_prefetch(reinterpret_cast<const char*>(at + kPrefetchBytes + line), _MM_HINT_T1);
        unpack_planes<L>(at, group);
        unpack_scales<L>(at + L.plane_bytes(), super, group);
        for (int row = 0; row < rows; ++row)
            for (int half = 0; half < 2; ++half) {
                float* sum = sums + row * kBlockOutputs + 8 * half;
                _mm256_store_ps(sum, add_group<L>(group, half, panel[row], _mm256_load_ps(sum)));
            }
    }
}

template <Layout L>
struct Blocks {
    static void run(const PackedMatrix& weights, int64_t first, int count, const ActivationGroup* panel, int rows,
                    float* sums) {
        for (int b = 0; b < count; ++b)
            run_block<L>(weights.block(first + b), weights.in, panel, rows, sums + b * kSumsPerBlock);
    }
};

constexpr int kBf16Rows = 4;

inline __m256 first_of_pairs(__m256i pairs) { return _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16)); }

inline __m256 second_of_pairs(__m256i pairs) {
    return _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32(int(0xffff0000))));
}

// Up to kBf16Rows rows of one block. `stride`: rows of the panel.
void bf16_rows(const uint8_t* block, int64_t groups, const Bf16Group* acts, int64_t stride, int rows, float* sums) {
    __m256 sum[kBf16Rows][2];
    for (auto& row : sum) row[0] = row[1] = _mm256_setzero_ps();
    for (int64_t g = 0; g < groups; ++g, acts += stride)
        for (int p = 0; p < kGroup / 2; ++p, block += 64) {
            const __m256i w[2] = {load(block), load(block + 32)};
            for (int row = 0; row < rows; ++row) {
                int32_t pair;
                std::memcpy(&pair, acts[row].x + 2 * p, 4);
                const __m256i x = _mm256_set1_epi32(pair);
                for (int half = 0; half < 2; ++half) {
                    sum[row][half] = _mm256_fmadd_ps(second_of_pairs(w[half]), second_of_pairs(x), sum[row][half]);
                    sum[row][half] = _mm256_fmadd_ps(first_of_pairs(w[half]), first_of_pairs(x), sum[row][half]);
                }
            }
        }
    for (int row = 0; row < rows; ++row)
        for (int half = 0; half < 2; ++half) _mm256_store_ps(sums + row * kBlockOutputs + 8 * half, sum[row][half]);
}

inline float largest_lane(__m256 x) {
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_shuffle_ps(m, m, 1)));
}

}  // namespace

Int8Kernel int8_kernel(const Layout& layout) { return pick_int8_kernel<Blocks>(layout); }

void bf16_blocks(const PackedMatrix& weights, int64_t first, int count, const Bf16Group* panel, int rows, float* sums) {
    for (int b = 0; b < count; ++b, sums += kSumsPerBlock)
        for (int row = 0; row < rows; row += kBf16Rows) {
            const int left = rows - row < kBf16Rows ? rows - row : kBf16Rows;
            bf16_rows(weights.block(first + b), weights.num_groups(), panel + row, rows, left,
                      sums + row * kBlockOutputs);
        }
}

void quantize(const float* x, int64_t in, ActivationGroup* groups, int64_t stride) {
    const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
    for (int64_t g = 0; g < in / kGroup; ++g, x += kGroup, groups += stride) {
        __m256 largest_lanes = _mm256_setzero_ps();
        for (int i = 0; i < 4; ++i)
            largest_lanes = _mm256_max_ps(largest_lanes, _mm256_and_ps(_mm256_loadu_ps(x + 8 * i), magnitude));
        const float largest = largest_lane(largest_lanes);
        const __m256 inverse = _mm256_set1_ps(inverse_scale(largest));
        alignas(32) int32_t q[kGroup];
        for (int i = 0; i < 4; ++i)
            _mm256_store_si256(reinterpret_cast<__m256i*>(q + 8 * i),
                               _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8 * i), inverse)));
        int32_t half[2] = {0, 0};
        for (int k = 0; k < kGroup; ++k) {
            groups->q[k] = int8_t(q[k]);
            half[k / 16] += q[k];
        }
        finish_group(*groups, largest / 127.0f, half[0], half[1]);
    }
}

}  // namespace sapwood::avx2

#endif
