"""Packed matmuls equal float32 matmuls of what was packed, over odd shapes."""

from __future__ import annotations

import pytest
import torch

from sapwood.kernels.triton.linear import linear, unpack_to
from sapwood.kernels.triton.weights import GpuMatrix, pack_f8, pack_w4, pack_w8, unpack


def make(layout: str, out: int, width: int, device: str) -> GpuMatrix:
    gen = torch.Generator().manual_seed(out * width)
    scale32 = torch.rand(out, width // 32, generator=gen) * 0.1
    if layout == "w4":
        codes = torch.randint(0, 16, (out, width), generator=gen, dtype=torch.uint8)
        return pack_w4(codes.to(device), scale32.to(device), (-8 * scale32).to(device))
    if layout in ("w8", "w8-16", "w8-offset"):
        codes = torch.randint(-128, 128, (out, width), generator=gen, dtype=torch.int8)
        scale = scale32.repeat_interleave(2, 1) if layout == "w8-16" else scale32
        return pack_w8(codes.to(device), scale.to(device), scale.to(device) if layout == "w8-offset" else None)
    if layout == "dense":
        return GpuMatrix("dense", torch.randn(out, width, generator=gen).to(device, torch.bfloat16))
    return pack_f8(torch.randn(out, width, generator=gen).to(device))


LAYOUTS = ["w4", "w8", "w8-16", "w8-offset", "f8"]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("rows", "out", "width"), [(1, 33, 64), (3, 100, 192), (16, 64, 576), (17, 40, 128), (70, 48, 64)]
)
def test_linear_equals_the_product_with_the_unpacked_matrix(
    layout: str, rows: int, out: int, width: int, device: str
) -> None:
    weight = make(layout, out, width, device)
    x = torch.randn(rows, width, generator=torch.Generator().manual_seed(rows)).half().to(device)
    expected = x.float() @ unpack(weight).T
    got = linear(x, weight)
    assert torch.isfinite(got).all()
    torch.testing.assert_close(got, expected, rtol=2e-3, atol=2e-3 * float(expected.abs().max()))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_many_rows_go_through_the_unpacked_scratch(layout: str, device: str) -> None:
    weight = make(layout, 40, 128, device)
    x = torch.randn(100, 128).half().to(device)
    scratch = torch.full((40 * 128,), float("nan"), dtype=torch.float16, device=device)
    got = linear(x, weight, scratch=scratch)
    expected = x.float() @ unpack(weight).T
    torch.testing.assert_close(got, expected, rtol=4e-3, atol=4e-3 * float(expected.abs().max()))
    assert torch.isfinite(scratch).all()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_unpacking_gives_the_packed_values(layout: str, device: str) -> None:
    weight = make(layout, 5, 192, device)
    out = torch.full((5, 192), float("nan"), dtype=torch.float16, device=device)
    unpack_to(weight, out)
    torch.testing.assert_close(out.float(), unpack(weight), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("layout", [*LAYOUTS, "dense"])
def test_a_row_has_the_same_bits_in_any_batch(layout: str, device: str) -> None:
    weight = make(layout, 50, 192, device)
    x = torch.randn(130, 192, generator=torch.Generator().manual_seed(0)).half().to(device)
    whole = linear(x, weight, invariant=True)
    expected = x.float() @ unpack(weight).T
    torch.testing.assert_close(whole, expected, rtol=2e-3, atol=2e-3 * float(expected.abs().max()))
    for rows in (1, 7, 64, 100):
        assert torch.equal(linear(x[:rows].contiguous(), weight, invariant=True), whole[:rows])
