"""Attention over the tree's slots: many queries, keys and values gathered by slot, shared parts read once.

The work is cut along two axes that don't depend on what shares the batch:

    positions   into fixed ranges of SPLIT absolute positions; each range gives a partial softmax per row and head
    rows        into tiles; a tile may hold rows of several sequences where all of them pass through the same slots

A second kernel merges a row's partials in the order of positions. A slot belongs to one node of the tree, so two
sequences with the same slot at the end of a range share the whole range: their rows are put into one tile
(`attention_plan.py`), and the range's keys and values are read once for all of them (cascade attention).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import triton
import triton.language as tl
from numpy.typing import NDArray

from sapwood.kernels.plan import DraftTail
from sapwood.kernels.triton.attention_plan import SPLIT, TILE_ROWS, cut
from sapwood.kernels.triton.cache import Cache
from sapwood.kernels.triton.dot import dot
from sapwood.kernels.triton.tuning import Config, choose

CONFIGS: list[Config] = [
    {"BLOCK": block, "num_warps": warps, "num_stages": stages}
    for block, warps, stages in ((64, 4, 2), (32, 4, 3), (128, 4, 2), (64, 8, 2), (128, 8, 2))
]


@dataclass(slots=True)
class AttentionWork:
    """What the kernel runs over, as int32 tensors on the device."""

    tile_rows: torch.Tensor  # [tiles, TILE_ROWS] row of the batch, -1: none
    tile_table: torch.Tensor  # [tiles] where the tile's table starts in `tables`
    tile_begin: torch.Tensor  # [tiles] first position of the range
    tables: torch.Tensor  # [sum of table lengths] slots
    row_len: torch.Tensor  # [rows] positions that a row may see: below this one
    row_first: torch.Tensor  # [rows] ... and from this one on (sliding window)
    tail_start: torch.Tensor  # [rows] from here on, only entries in `ancestors` are seen
    ancestors: torch.Tensor  # [rows] int64
    num_splits: int


def plan_attention(
    positions: NDArray[np.int32],
    sequences: NDArray[np.int32],
    tables: Sequence[NDArray[np.int32]],
    drafts: Mapping[int, DraftTail],
    window: int | None,
    device: str,
) -> AttentionWork:
    """A batch's attention on its own, for layers with this window; a plan sends it with the rest of its inputs."""
    work = cut(positions, sequences, tables, drafts, window)
    names = [name for name in AttentionWork.__slots__ if name not in ("tables", "num_splits")]
    tensors = {name: torch.from_numpy(np.ascontiguousarray(getattr(work, name))).to(device) for name in names}
    tensors["ancestors"] = tensors["ancestors"].view(torch.int64).view(-1)
    joined = torch.from_numpy(np.concatenate(tables)).to(device)
    return AttentionWork(tables=joined, num_splits=work.num_splits, **tensors)


@triton.jit
def _partial_kernel(  # type: ignore[no-untyped-def]
    q_ptr, k_ptr, v_ptr, tile_rows_ptr, tile_table_ptr, tile_begin_ptr, tables_ptr, row_len_ptr, row_first_ptr,
    tail_start_ptr, ancestors_ptr, k_scale_ptr, v_scale_ptr, acc_ptr, max_ptr, sum_ptr, num_splits, scale, softcap,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, DIM: tl.constexpr, DIM_BLOCK: tl.constexpr, GROUP_BLOCK: tl.constexpr,
    TILE_ROWS: tl.constexpr, SPLIT: tl.constexpr, BLOCK: tl.constexpr, CAPPED: tl.constexpr,
    QUANTIZED: tl.constexpr,
):  # fmt: skip
    tile, kv_head = tl.program_id(0), tl.program_id(1)
    GROUP: tl.constexpr = HEADS // KV_HEADS
    m = tl.arange(0, TILE_ROWS * GROUP_BLOCK)
    d = tl.arange(0, DIM_BLOCK)
    row = tl.load(tile_rows_ptr + tile * TILE_ROWS + m // GROUP_BLOCK)
    in_group = m % GROUP_BLOCK
    real = (row >= 0) & (in_group < GROUP)
    row = tl.where(real, row, 0)
    head = kv_head * GROUP + in_group
    q = tl.load(
        q_ptr + (row * HEADS + head)[:, None] * DIM + d[None, :], mask=real[:, None] & (d < DIM)[None, :], other=0.0
    )
    length = tl.where(real, tl.load(row_len_ptr + row), 0)
    first = tl.load(row_first_ptr + row)
    tail_start = tl.load(tail_start_ptr + row)
    ancestors = tl.load(ancestors_ptr + row)
    table = tables_ptr + tl.load(tile_table_ptr + tile)
    begin = tl.load(tile_begin_ptr + tile)
    end = tl.minimum(begin + SPLIT, tl.max(length, axis=0))

    largest = tl.full((TILE_ROWS * GROUP_BLOCK,), float("-inf"), tl.float32)
    total = tl.zeros((TILE_ROWS * GROUP_BLOCK,), tl.float32)
    acc = tl.zeros((TILE_ROWS * GROUP_BLOCK, DIM_BLOCK), tl.float32)
    for start in range(begin, end, BLOCK):
        p = start + tl.arange(0, BLOCK)
        slot = tl.load(table + p, mask=p < end, other=0).to(tl.int64)
        at = slot * KV_HEADS + kv_head
        inside = (p < end)[:, None] & (d < DIM)[None, :]
        keys = tl.load(k_ptr + at[:, None] * DIM + d[None, :], mask=inside, other=0.0)
        if QUANTIZED:
            keys = keys.to(tl.float32).to(q.dtype)  # codes are exact in q's type; scales multiply the float32 scores
        scores = dot(q, tl.trans(keys), tl.zeros((TILE_ROWS * GROUP_BLOCK, BLOCK), tl.float32)) * scale
        if QUANTIZED:
            scores *= tl.load(k_scale_ptr + at, mask=p < end, other=0.0)[None, :]
        if CAPPED:
            scores = softcap * (2 * tl.sigmoid(2 * scores / softcap) - 1)
        ahead = tl.minimum(tl.maximum(p[None, :] - tail_start[:, None], 0), 63)
        drafted = ((ancestors[:, None] >> ahead.to(tl.int64)) & 1) == 1
        seen = (p[None, :] < length[:, None]) & (p[None, :] >= first[:, None])
        seen = seen & ((p[None, :] < tail_start[:, None]) | drafted)
        scores = tl.where(seen, scores, float("-inf"))
        new_largest = tl.maximum(largest, tl.max(scores, axis=1))
        anchor = tl.where(new_largest == float("-inf"), 0.0, new_largest)
        weights = tl.exp(scores - anchor[:, None])
        shrink = tl.exp(largest - anchor)
        total = total * shrink + tl.sum(weights, axis=1)
        values = tl.load(v_ptr + at[:, None] * DIM + d[None, :], mask=inside, other=0.0)
        if QUANTIZED:
            values = values.to(tl.float32).to(q.dtype)
            weights *= tl.load(v_scale_ptr + at, mask=p < end, other=0.0)[None, :]
        acc = dot(weights.to(q.dtype), values, acc * shrink[:, None])
        largest = new_largest
    out = (row.to(tl.int64) * num_splits + begin // SPLIT) * HEADS + head
    tl.store(max_ptr + out, largest, mask=real)
    tl.store(sum_ptr + out, total, mask=real)
    tl.store(acc_ptr + out[:, None] * DIM + d[None, :], acc, mask=real[:, None] & (d < DIM)[None, :])


@triton.jit
def _merge_kernel(  # type: ignore[no-untyped-def]
    acc_ptr, max_ptr, sum_ptr, row_len_ptr, row_first_ptr, out_ptr, num_splits,
    HEADS: tl.constexpr, DIM: tl.constexpr, DIM_BLOCK: tl.constexpr, SPLIT: tl.constexpr,
):  # fmt: skip
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    d = tl.arange(0, DIM_BLOCK)
    inside = d < DIM
    total, largest = 0.0, float("-inf")
    acc = tl.zeros((DIM_BLOCK,), tl.float32)
    first = tl.load(row_first_ptr + row) // SPLIT
    last = (tl.load(row_len_ptr + row) + SPLIT - 1) // SPLIT
    for split in range(first, last):
        at = (row * num_splits + split) * HEADS + head
        part_max = tl.load(max_ptr + at)
        new_largest = tl.maximum(largest, part_max)
        anchor = tl.where(new_largest == float("-inf"), 0.0, new_largest)
        shrink, grow = tl.exp(largest - anchor), tl.exp(part_max - anchor)
        total = total * shrink + tl.load(sum_ptr + at) * grow
        acc = acc * shrink + tl.load(acc_ptr + at * DIM + d, mask=inside, other=0.0) * grow
        largest = new_largest
    # The largest weight is 1, so a total below that belongs to a row that pads a batch.
    tl.store(out_ptr + (row * HEADS + head) * DIM + d, acc / tl.maximum(total, 0.5), mask=inside)


def attention(
    q: torch.Tensor,
    cache: Cache,
    work: AttentionWork,
    *,
    scale: float,
    softcap: float | None = None,
    invariant: bool = False,
) -> torch.Tensor:
    """Attend every row of q [rows, heads, dim] to what it may see. Like q in shape and type, which is the cache's.

    Ranges and tiles are the same in every batch; with `invariant`, the steps within a range are too, on every card.
    """
    rows, heads, dim = q.shape
    kv_heads = cache.keys.shape[1]
    dim_block = triton.next_power_of_2(dim)
    acc = torch.empty(rows, work.num_splits, heads, dim, dtype=torch.float32, device=q.device)
    largest = torch.empty(rows, work.num_splits, heads, dtype=torch.float32, device=q.device)
    total = torch.empty_like(largest)

    def launch(config: Config) -> None:
        _partial_kernel[(work.tile_rows.shape[0], kv_heads)](
            q, cache.keys, cache.values, work.tile_rows, work.tile_table, work.tile_begin, work.tables, work.row_len,
            work.row_first, work.tail_start, work.ancestors, cache.key_scale, cache.value_scale, acc, largest, total,
            work.num_splits, scale, softcap or 1.0, HEADS=heads, KV_HEADS=kv_heads, DIM=dim, DIM_BLOCK=dim_block,
            GROUP_BLOCK=triton.next_power_of_2(heads // kv_heads), TILE_ROWS=TILE_ROWS, SPLIT=SPLIT,
            CAPPED=softcap is not None, QUANTIZED=cache.limit > 0, **config,
        )  # fmt: skip

    tiles = triton.next_power_of_2(work.tile_rows.shape[0])
    shape = (heads, kv_heads, dim, cache.keys.dtype, tiles)
    launch(choose("attention", shape, CONFIGS, launch, fixed=invariant))
    out = torch.empty_like(q)
    _merge_kernel[(rows, heads)](
        acc, largest, total, work.row_len, work.row_first, out, work.num_splits,
        HEADS=heads, DIM=dim, DIM_BLOCK=dim_block, SPLIT=SPLIT,
    )  # fmt: skip
    return out
