#include "attention.h"

#include <algorithm>
#include <unordered_map>

namespace sapwood {

void AttentionWork::plan(const BatchRows& rows, int32_t window, int32_t group, int32_t heads, int32_t dim) {
    group_ = group;
    heads_ = heads;
    dim_ = dim;
    tiles_.clear();
    tile_rows_.clear();
    last_ = rows.last;
    first_.resize(size_t(rows.count));
    partial_of_.resize(size_t(rows.count));
    num_partials_ = 0;
    for (size_t r = 0; r < size_t(rows.count); ++r) {
        first_[r] = window > 0 ? std::max(0, last_[r] + 1 - window) : 0;
        partial_of_[r] = num_partials_;
        num_partials_ += last_[r] / kAttentionRange - first_[r] / kAttentionRange + 1;
    }
    add_tiles(rows);
}

void AttentionWork::add_tiles(const BatchRows& rows) {
    struct Group {
        int32_t begin;
        const int32_t* table;
        int32_t end = 0;
        std::vector<int32_t> rows;
    };
    std::vector<Group> groups;
    std::unordered_map<int64_t, size_t> shared;  // (range, slot at its end) -> group
    for (int32_t r = 0; r < int32_t(rows.count);) {
        int32_t until = r + 1;  // rows of one table follow each other
        int32_t least = first_[size_t(r)], most = last_[size_t(r)];
        while (until < rows.count && rows.table[size_t(until)] == rows.table[size_t(r)]) {
            least = std::min(least, first_[size_t(until)]);
            most = std::max(most, last_[size_t(until)]);
            ++until;
        }
        const int32_t* table = rows.table[size_t(r)];
        for (int32_t range = least / kAttentionRange; range <= most / kAttentionRange; ++range) {
            const int32_t begin = range * kAttentionRange, end = begin + kAttentionRange;
            size_t index = groups.size();
            if (end <= rows.table_len[size_t(r)]) {
                const int64_t key = int64_t(range) << 32 | uint32_t(table[end - 1]);
                index = shared.try_emplace(key, groups.size()).first->second;
            }
            if (index == groups.size()) groups.push_back({begin, table, 0, {}});
            Group& group = groups[index];
            for (int32_t row = r; row < until; ++row)
                if (first_[size_t(row)] < end && last_[size_t(row)] >= begin) {
                    group.rows.push_back(row);
                    group.end = std::max(group.end, std::min(end, last_[size_t(row)] + 1));
                    if (last_[size_t(row)] + 1 >= group.end) group.table = table;
                }
        }
        r = until;
    }
    for (const Group& group : groups)
        for (size_t at = 0; at < group.rows.size(); at += kTileRows) {
            const size_t count = std::min(size_t(kTileRows), group.rows.size() - at);
            int32_t end = 0;
            for (size_t i = at; i < at + count; ++i) end = std::max(end, std::min(group.end, last_[size_t(group.rows[i])] + 1));
            tiles_.push_back({group.begin, end, int32_t(tile_rows_.size()), int32_t(count), group.table});
            tile_rows_.insert(tile_rows_.end(), group.rows.begin() + long(at), group.rows.begin() + long(at + count));
        }
}

void AttentionWork::run(ThreadPool& pool, const Layer& layer, float* partials,
                        std::vector<std::vector<float>>& scratch) const {
    const VectorOps& ops = vector_ops();
    const int32_t kv_heads = heads_ / group_;
    const int64_t partial_size = dim_ + 2, per_range = heads_ * partial_size;
    const auto attend = [&](const Tile& tile, int32_t kv_head, int thread) {
        AttentionTile task;
        for (int32_t i = 0; i < tile.num_rows; ++i) {
            const size_t row = size_t(tile_rows_[size_t(tile.first_row + i)]);
            const int64_t number = partial_of_[row] + tile.begin / kAttentionRange - first_[row] / kAttentionRange;
            task.q[i] = layer.q + int64_t(row) * layer.q_stride + kv_head * group_ * dim_;
            task.partial[i] = partials + number * per_range + kv_head * group_ * partial_size;
            task.first[i] = first_[row];
            task.last[i] = last_[row];
        }
        task.num_rows = tile.num_rows;
        task.group = group_;
        task.dim = dim_;
        task.slots = tile.table + tile.begin;
        task.begin = tile.begin;
        task.end = tile.end;
        task.keys = layer.keys + kv_head * dim_;
        task.values = layer.values + kv_head * dim_;
        task.stride = int64_t(kv_heads) * dim_;
        task.softcap = layer.softcap;
        task.scratch = scratch[size_t(thread)].data();
        ops.attention_tile(task);
    };
    // All heads of a slot lie side by side: a thread that has enough tiles takes them together.
    constexpr int64_t kTilesOfThread = 4;
    const int64_t tiles = int64_t(tiles_.size());
    if (tiles >= kTilesOfThread * pool.size())
        pool.run(tiles, [&](int64_t tile, int thread) {
            for (int32_t head = 0; head < kv_heads; ++head) attend(tiles_[size_t(tile)], head, thread);
        });
    else
        pool.run(tiles * kv_heads, [&](int64_t item, int thread) {
            attend(tiles_[size_t(item / kv_heads)], int32_t(item % kv_heads), thread);
        });
}

void AttentionWork::merge(int64_t row, const float* partials, float* out) const {
    const int32_t first = first_[size_t(row)] / kAttentionRange, last = last_[size_t(row)] / kAttentionRange;
    const int64_t partial_size = dim_ + 2, per_range = heads_ * partial_size;
    for (int32_t head = 0; head < heads_; ++head)
        vector_ops().attention_merge(partials + partial_of_[size_t(row)] * per_range + head * partial_size, per_range,
                                     last - first + 1, dim_, out + int64_t(head) * dim_);
}

}  // namespace sapwood
