// Attention of a whole batch, cut into tiles of rows and ranges of positions.
//
//                 range 0      range 1      range 2          a range is kAttentionRange absolute positions
//   sequence A   [ shared  ]  [ shared  ]  [ A's rows ]
//   sequence B   [ shared  ]  [ shared  ]  [ B's rows ]
//
// A slot belongs to one node of the tree, so tables that agree on the last slot of a range agree on all of it and before:
// the rows of A and B go into one tile there, and its keys and values are read once for both. Each row's partial softmaxes
// are merged in the order of the ranges, so its bits are the same whatever it shares.
#pragma once

#include <cstdint>
#include <vector>

#include "pool.h"
#include "vector_ops.h"

namespace sapwood {

struct BatchRows {
    int64_t count = 0;
    std::vector<const int32_t*> table;  // per row: slots of positions 0 .. last
    std::vector<int32_t> table_len;     // entries of that table that are real
    std::vector<int32_t> last;          // the row's own position
};

class AttentionWork {
   public:
    // Lay out a batch for layers with this window (0: none).
    void plan(const BatchRows& rows, int32_t window, int32_t group, int32_t heads, int32_t dim);

    struct Layer {
        const float* q;  // [rows][q_stride], scaled already, heads of dim
        int64_t q_stride;
        const uint16_t* keys;  // float16 [slots][kv_heads * dim]
        const uint16_t* values;
        float softcap;  // 0: none
    };
    // partials [partial_floats()]; scratch: one for each thread.
    void run(ThreadPool& pool, const Layer& layer, float* partials, std::vector<std::vector<float>>& scratch) const;
    // After run(), from any thread: what one row's partials come to, out [heads * dim].
    void merge(int64_t row, const float* partials, float* out) const;

    int64_t partial_floats() const { return num_partials_ * heads_ * (dim_ + 2); }

   private:
    struct Tile {
        int32_t begin;
        int32_t end;
        int32_t first_row;  // index into rows_
        int32_t num_rows;
        const int32_t* table;
    };

    void add_tiles(const BatchRows& rows);

    std::vector<Tile> tiles_;
    std::vector<int32_t> tile_rows_;
    std::vector<int32_t> first_;         // per row: first position it sees
    std::vector<int32_t> last_;
    std::vector<int64_t> partial_of_;    // per row: number of its first partial
    int64_t num_partials_ = 0;
    int32_t group_ = 1, heads_ = 1, dim_ = 64;
};

}  // namespace sapwood
