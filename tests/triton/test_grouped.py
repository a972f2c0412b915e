"""Matmuls by expert equal one matmul for each pair of row and expert."""

from __future__ import annotations

import pytest
import torch

from sapwood.kernels.triton.grouped import BLOCK_M, combine, group_rows, grouped_linear
from sapwood.kernels.triton.rows import gated
from sapwood.kernels.triton.weights import GpuMatrix, pack_f8, pack_w4, pack_w8, unpack

LAYOUTS = ["dense", "w4", "w8", "w8-16", "f8"]


def make(layout: str, experts: int, out: int, width: int, device: str) -> GpuMatrix:
    gen = torch.Generator().manual_seed(experts * out * width)
    if layout in ("dense", "f8"):
        values = torch.randn(experts * out, width, generator=gen).to(device)
        return GpuMatrix("dense", values.to(torch.bfloat16)) if layout == "dense" else pack_f8(values)
    scale = torch.rand(experts * out, width // 32, generator=gen).to(device) * 0.1
    codes = torch.randint(0, 16, (experts * out, width), generator=gen).to(device)
    if layout == "w4":
        return pack_w4(codes.to(torch.uint8), scale, -8 * scale)
    return pack_w8((codes * 8 - 60).to(torch.int8), scale.repeat_interleave(2, 1) if layout == "w8-16" else scale)


def choose(rows: int, choices: int, experts: int, device: str) -> torch.Tensor:
    """Different experts for each row; the first is everyone's favourite, the last nobody's."""
    gen = torch.Generator().manual_seed(rows)
    liking = torch.rand(rows, experts, generator=gen)
    liking[:, 0] += 0.5
    liking[:, -1] = -1
    return liking.topk(choices, dim=1).indices.to(device)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("rows", "choices", "experts", "out", "width"), [(1, 1, 2, 33, 64), (5, 2, 4, 70, 128), (45, 3, 5, 16, 192)]
)
def test_each_pair_meets_its_expert(
    layout: str, rows: int, choices: int, experts: int, out: int, width: int, device: str
) -> None:
    weight = make(layout, experts, out, width, device)
    chosen = choose(rows, choices, experts, device)
    x = torch.randn(rows, width, generator=torch.Generator().manual_seed(1)).to(device, torch.bfloat16)
    groups = group_rows(chosen, experts)
    got = grouped_linear(x, weight, experts, groups)
    dense = unpack(weight).to(torch.bfloat16 if layout != "f8" else torch.float32).float().view(experts, out, width)
    expected = torch.einsum("rd,rcod->rco", x.float(), dense[chosen])
    tolerance = 2e-2 * float(expected.abs().max())
    torch.testing.assert_close(got[groups.place.long()], expected, rtol=1e-2, atol=tolerance)


@pytest.mark.parametrize("rows", [1, 16, 17, 100])
def test_tiles_hold_every_pair_once_and_one_expert_each(rows: int, device: str) -> None:
    chosen = choose(rows, 2, 6, device)
    groups = group_rows(chosen, 6)
    held = []
    for expert, begin, end in zip(
        groups.tile_expert.tolist(), groups.tile_begin.tolist(), groups.tile_end.tolist(), strict=True
    ):
        assert 0 <= end - begin <= BLOCK_M
        pairs = groups.pairs[begin:end].tolist()
        assert all(int(chosen.flatten()[pair]) == expert for pair in pairs)
        held += pairs
    assert sorted(held) == list(range(2 * rows))


def mixture(
    x: torch.Tensor, chosen: torch.Tensor, shares: torch.Tensor, gate_up: GpuMatrix, down: GpuMatrix, experts: int
) -> torch.Tensor:
    groups = group_rows(chosen, experts)
    act = gated(grouped_linear(x, gate_up, experts, groups), "silu", x.dtype)
    return combine(grouped_linear(act, down, experts, groups, of_pairs=True), groups, shares)


@pytest.mark.parametrize("choices", [1, 2])
def test_a_whole_mixture_and_a_row_s_bits_in_any_batch(choices: int, device: str) -> None:
    experts, width, inner = 4, 64, 128
    gate_up, down = make("w4", experts, 2 * inner, width, device), make("w8", experts, width, inner, device)
    chosen = choose(20, choices, experts, device)
    shares = torch.rand(20, choices, generator=torch.Generator().manual_seed(2)).to(device)
    x = torch.randn(20, width, generator=torch.Generator().manual_seed(3)).to(device, torch.bfloat16)
    got = mixture(x, chosen, shares, gate_up, down, experts)
    first, second = unpack(gate_up).view(experts, 2 * inner, width), unpack(down).view(experts, width, inner)
    halves = torch.einsum("rd,rcod->rco", x.float(), first[chosen])
    act = torch.nn.functional.silu(halves[..., :inner]) * halves[..., inner:]
    expected = torch.einsum("rci,rcoi,rc->ro", act, second[chosen], shares)
    torch.testing.assert_close(got, expected, rtol=2e-2, atol=2e-2 * float(expected.abs().max()))
    for begin, end in ((0, 1), (3, 11), (11, 20)):
        part = slice(begin, end)
        alone = mixture(x[part].contiguous(), chosen[part], shares[part].contiguous(), gate_up, down, experts)
        assert torch.equal(alone, got[part])
