"""x @ W.T where each row has its own expert: the matmuls of mixtures of experts.

A row with its expert is a pair. Pairs are sorted by expert, stably, so a tile of them shares one expert's weights:

    pairs, sorted     0 0 0 0 0 | 1 | 3 3 3 3 | 3 3        expert of each
    tiles             tile 0..1   2   3         4          at most BLOCK_M pairs of one expert each

How many tiles there are depends on the routing, which only the card knows; so the grid has room for the worst case
(one tile begun for each expert) and tiles beyond the last have nothing to do. Nothing waits for the host.

A pair's product walks K in fixed steps, whatever else its tile holds, and `combine` adds a row's pairs in the order in
which they were chosen: a row's bits don't depend on the other rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from sapwood.kernels.triton.dot import dot
from sapwood.kernels.triton.tuning import Config, choose
from sapwood.kernels.triton.weights import GpuMatrix

BLOCK_M = 16  # pairs of a tile
CONFIGS: list[Config] = [
    {"BLOCK_N": n, "BLOCK_K": k, "num_warps": warps, "num_stages": stages}
    for n, k, warps, stages in ((64, 64, 4, 3), (32, 128, 4, 3), (64, 128, 4, 3), (128, 64, 8, 3), (128, 64, 4, 4))
]


@dataclass(frozen=True, slots=True)
class Groups:
    """Pairs sorted by expert, cut into tiles. int32, on the device."""

    pairs: torch.Tensor  # [pairs] row * choices + choice, sorted by expert
    place: torch.Tensor  # [rows, choices] where each pair stands in `pairs`
    tile_expert: torch.Tensor  # [tiles]
    tile_begin: torch.Tensor  # [tiles] first pair of the tile
    tile_end: torch.Tensor  # [tiles] one past its last; equal to begin where the tile has nothing to do


def group_rows(experts: torch.Tensor, num_experts: int) -> Groups:
    """Sort the choices `experts`, integers [rows, choices], each a number below `num_experts`."""
    flat = experts.reshape(-1)
    order = torch.argsort(flat, stable=True)
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order), device=order.device)
    count = torch.zeros(num_experts, dtype=torch.int64, device=flat.device)
    count.scatter_add_(0, flat.long(), torch.ones_like(flat, dtype=torch.int64))
    end = count.cumsum(0)
    tiles_end = ((count + BLOCK_M - 1) // BLOCK_M).cumsum(0)
    tile = torch.arange(-(-len(flat) // BLOCK_M) + num_experts, device=flat.device)
    expert = torch.searchsorted(tiles_end, tile, right=True).clamp_max(num_experts - 1)
    first_tile = tiles_end[expert] - (count[expert] + BLOCK_M - 1) // BLOCK_M
    begin = torch.minimum(end[expert] - count[expert] + (tile - first_tile) * BLOCK_M, end[expert])
    tile_end = torch.minimum(begin + BLOCK_M, end[expert])
    return Groups(order.int(), place.view(experts.shape).int(), expert.int(), begin.int(), tile_end.int())


@triton.jit
def _grouped_kernel(  # type: ignore[no-untyped-def]
    x_ptr, codes_ptr, scale_ptr, offset_ptr, y_ptr, pairs_ptr, tile_expert_ptr, tile_begin_ptr, tile_end_ptr,
    out_features, width, pairs_per_row, LAYOUT: tl.constexpr, GROUP: tl.constexpr, HAS_OFFSET: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(1)
    begin, end = tl.load(tile_begin_ptr + tile), tl.load(tile_end_ptr + tile)
    if begin >= end:
        return
    m = begin + tl.arange(0, BLOCK_M)
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    m_in, n_in = m < end, n < out_features
    row = (tl.load(pairs_ptr + m, mask=m_in, other=0) // pairs_per_row).to(tl.int64)
    weight_row = tl.load(tile_expert_ptr + tile).to(tl.int64) * out_features + n
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, width, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        inside = n_in[None, :] & (k < width)[:, None]
        x = tl.load(x_ptr + row[:, None] * width + k[None, :], mask=m_in[:, None] & (k < width)[None, :], other=0.0)
        if LAYOUT == "w4":
            byte = tl.load(
                codes_ptr + weight_row[None, :] * (width // 2) + ((k // 64) * 32 + k % 32)[:, None],
                mask=inside,
                other=0,
            )
            w = ((byte >> (((k // 32) % 2) * 4).to(tl.uint8)[:, None]) & 15).to(tl.float32)
        else:
            w = tl.load(codes_ptr + weight_row[None, :] * width + k[:, None], mask=inside, other=0.0).to(tl.float32)
        if LAYOUT == "w4" or LAYOUT == "w8":
            at = weight_row[None, :] * (width // GROUP) + (k // GROUP)[:, None]
            w *= tl.load(scale_ptr + at, mask=inside, other=0.0).to(tl.float32)
            if HAS_OFFSET:
                w += tl.load(offset_ptr + at, mask=inside, other=0.0).to(tl.float32)
        acc = dot(x, w.to(x.dtype), acc)
    if LAYOUT == "f8":
        acc *= tl.load(scale_ptr + weight_row, mask=n_in, other=0.0)[None, :]
    y = y_ptr + m.to(tl.int64)[:, None] * out_features + n[None, :]
    tl.store(y, acc, mask=m_in[:, None] & n_in[None, :])


def grouped_linear(
    x: torch.Tensor,
    experts: GpuMatrix,
    num_experts: int,
    groups: Groups,
    *,
    of_pairs: bool = False,
    invariant: bool = False,
) -> torch.Tensor:
    """Each pair's row times its expert's matrix, float32 [pairs, out], in the order of `groups.pairs`.

    `experts`: the matrices of all experts, one below the other, [num_experts * out, in]. x: bfloat16 or float16 [rows, in];
    `of_pairs`: [pairs, in] in that same order, as a mixture's second matmul finds what the first one gave.
    `invariant`: with fixed steps, so that bits don't depend on what was measured to be fast.
    """
    out_features, width = experts.out_features // num_experts, experts.in_features
    pairs = groups.pairs.shape[0]
    order = torch.arange(pairs, dtype=torch.int32, device=x.device) if of_pairs else groups.pairs
    y = torch.empty(pairs, out_features, dtype=torch.float32, device=x.device)
    scale = experts.codes if experts.scale is None else experts.scale
    offset = scale if experts.offset is None else experts.offset

    def launch(config: Config) -> None:
        _grouped_kernel[(triton.cdiv(out_features, config["BLOCK_N"]), groups.tile_expert.shape[0])](
            x, experts.codes, scale, offset, y, order, groups.tile_expert, groups.tile_begin, groups.tile_end,
            out_features, width, 1 if of_pairs else groups.place.shape[1], LAYOUT=experts.layout, GROUP=experts.group,
            HAS_OFFSET=experts.offset is not None, BLOCK_M=BLOCK_M, **config,
        )  # fmt: skip

    shape = (experts.layout, experts.group, num_experts, out_features, width)
    launch(choose("grouped", shape, CONFIGS, launch, fixed=invariant))
    return y


@triton.jit
def _combine_kernel(  # type: ignore[no-untyped-def]
    y_ptr, place_ptr, share_ptr, out_ptr, width, CHOICES: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    k = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for choice in range(CHOICES):
        pair = tl.load(place_ptr + row * CHOICES + choice).to(tl.int64)
        share = tl.load(share_ptr + row * CHOICES + choice)
        total += share * tl.load(y_ptr + pair * width + k, mask=k < width, other=0.0)
    tl.store(out_ptr + row * width + k, total, mask=k < width)


def combine(y: torch.Tensor, groups: Groups, shares: torch.Tensor) -> torch.Tensor:
    """Add up each row's pairs: y float32 [pairs, width] as of `grouped_linear`, shares float32 [rows, choices].

    float32 [rows, width].
    """
    rows, choices = shares.shape
    out = torch.empty(rows, y.shape[1], dtype=torch.float32, device=y.device)
    _combine_kernel[(rows, triton.cdiv(y.shape[1], 1024))](
        y, groups.place, shares, out, y.shape[1], CHOICES=choices, BLOCK=1024
    )  # fmt: skip
    return out
