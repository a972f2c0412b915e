// The bfloat16 matmul for AMX: 16 rows by 16 outputs by 32 inputs an instruction. Unlike groups of integers, which have
// scales of their own, sums of floats stay in their tile from the first input to the last. Tiles round differently from
// vectors, so here a single row goes through them too.
#include "gemm_kernels.h"

#if defined(__AMX_BF16__)

#include <immintrin.h>

namespace sapwood::amx {
namespace {

constexpr int kTileRows = 16;

// Tiles 0 to 3: sums, two row tiles by two blocks; 4 and 5: rows; 6 and 7: weights.
void configure_tiles(int rows) {
    TileConfig config;
    for (int tile = 0; tile < 6; ++tile) config.rows[tile] = uint8_t(rows), config.row_bytes[tile] = 64;
    for (int tile = 6; tile < 8; ++tile) config.rows[tile] = kTileRows, config.row_bytes[tile] = 64;
    _tile_loadconfig(&config);
}

// The sums of one or two tiles of rows with one or two blocks. `stride`: rows of the panel.
template <int row_tiles, int blocks>
void tiles(const uint8_t* block, size_t block_bytes, int64_t groups, const Bf16Group* acts, int64_t stride,
           float* sums) {
    constexpr int kSumsPerTile = kTileRows * kBlockOutputs;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t g = 0; g < groups; ++g, acts += stride, block += kTileRows * 64) {
        for (int line = 0; line < kTileRows; ++line) {
            _mm_prefetch(reinterpret_cast<const char*>(block + kPrefetchBytes + 64 * line), _MM_HINT_T1);
            if constexpr (blocks > 1)
                _mm_prefetch(reinterpret_cast<const char*>(block + block_bytes + kPrefetchBytes + 64 * line),
                             _MM_HINT_T1);
        }
        _tile_loadd(6, block, 64);
        _tile_loadd(4, acts, sizeof(Bf16Group));
        _tile_dpbf16ps(0, 4, 6);
        if constexpr (blocks > 1) {
            _tile_loadd(7, block + block_bytes, 64);
            _tile_dpbf16ps(1, 4, 7);
        }
        if constexpr (row_tiles > 1) {
            _tile_loadd(5, acts + kTileRows, sizeof(Bf16Group));
            _tile_dpbf16ps(2, 5, 6);
            if constexpr (blocks > 1) _tile_dpbf16ps(3, 5, 7);
        }
    }
    _tile_stored(0, sums, 64);
    if constexpr (blocks > 1) _tile_stored(1, sums + kSumsPerBlock, 64);
    if constexpr (row_tiles > 1) _tile_stored(2, sums + kSumsPerTile, 64);
    if constexpr (row_tiles > 1 && blocks > 1) _tile_stored(3, sums + kSumsPerBlock + kSumsPerTile, 64);
}

// All rows of a panel. Where a tile has more rows than are left, what stands behind them is computed too.
template <int blocks>
void panel_rows(const uint8_t* block, size_t block_bytes, int64_t groups, const Bf16Group* panel, int rows,
                float* sums) {
    int row = 0;
    for (; rows - row > kTileRows; row += 2 * kTileRows)
        tiles<2, blocks>(block, block_bytes, groups, panel + row, rows, sums + row * kBlockOutputs);
    if (row < rows) tiles<1, blocks>(block, block_bytes, groups, panel + row, rows, sums + row * kBlockOutputs);
}

}  // namespace

void bf16_blocks(const PackedMatrix& weights, int64_t first, int count, const Bf16Group* panel, int rows, float* sums) {
    const size_t block_bytes = weights.block_bytes();
    const int64_t groups = weights.num_groups();
    configure_tiles(rows < kTileRows ? rows : kTileRows);
    int b = 0;
    for (; b + 2 <= count; b += 2)
        panel_rows<2>(weights.block(first + b), block_bytes, groups, panel, rows, sums + b * kSumsPerBlock);
    if (b < count) panel_rows<1>(weights.block(first + b), 0, groups, panel, rows, sums + b * kSumsPerBlock);
    _tile_release();
}

}  // namespace sapwood::amx

#endif
