"""Row kernels equal their plain torch versions."""

from __future__ import annotations

import pytest
import torch

from sapwood.kernels.triton.cache import CacheKind, dequantized, make_cache
from sapwood.kernels.triton.rows import add_rms_norm, gated, rope_store


def rms(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight


@pytest.mark.parametrize("width", [1, 7, 64, 576])
@pytest.mark.parametrize("kind", ["plain", "add", "add_normed"])
def test_add_rms_norm(width: int, kind: str, device: str) -> None:
    x, delta = torch.randn(5, width, device=device), torch.randn(5, width, device=device)
    weight, delta_norm = torch.rand(width, device=device), torch.rand(width, device=device)
    total = x if kind == "plain" else x + (rms(delta, delta_norm) if kind == "add_normed" else delta)
    got = add_rms_norm(
        x_in := x.clone(),
        weight,
        1e-6,
        delta=None if kind == "plain" else delta,
        delta_norm=delta_norm if kind == "add_normed" else None,
        dtype=torch.float32,
    )
    torch.testing.assert_close(x_in, total)
    torch.testing.assert_close(got, rms(total, weight), rtol=1e-5, atol=1e-5)


def rotate(x: torch.Tensor, positions: torch.Tensor, inv_freq: torch.Tensor, interleaved: bool) -> torch.Tensor:
    angle = positions[:, None, None].float() * inv_freq
    cos, sin, half = angle.cos(), angle.sin(), len(inv_freq)
    out = x.clone()
    at = (slice(0, 2 * half, 2), slice(1, 2 * half, 2)) if interleaved else (slice(0, half), slice(half, 2 * half))
    a, b = x[..., at[0]], x[..., at[1]]
    out[..., at[0]], out[..., at[1]] = a * cos - b * sin, b * cos + a * sin
    return out


@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize("normed", [True, False])
@pytest.mark.parametrize(("dim", "half"), [(64, 32), (64, 16), (80, 40)])
def test_rope_store(interleaved: bool, normed: bool, dim: int, half: int, device: str) -> None:
    heads, kv_heads, rows = 6, 2, 4
    qkv = torch.randn(rows, (heads + 2 * kv_heads) * dim, device=device)
    inv_freq = torch.rand(half, device=device)
    positions = torch.tensor([0, 3, 500, 9], dtype=torch.int32, device=device)
    slots = torch.tensor([5, 0, -1, 2], dtype=torch.int32, device=device)
    cache = make_cache(7, kv_heads, dim, torch.float32, device)
    k_cache, v_cache = cache.keys.fill_(float("nan")), cache.values.fill_(float("nan"))
    q_norm, k_norm = (torch.rand(dim, device=device), torch.rand(dim, device=device)) if normed else (None, None)
    q = rope_store(
        qkv, inv_freq, positions, slots, cache,
        num_heads=heads, interleaved=interleaved, q_norm=q_norm, k_norm=k_norm,
    )  # fmt: skip
    split = qkv.view(rows, -1, dim)
    want_q, want_k, want_v = split[:, :heads], split[:, heads : heads + kv_heads], split[:, heads + kv_heads :]
    if q_norm is not None and k_norm is not None:
        want_q, want_k = rms(want_q, q_norm), rms(want_k, k_norm)
    torch.testing.assert_close(q, rotate(want_q, positions, inv_freq, interleaved), rtol=1e-4, atol=1e-4)
    want_k = rotate(want_k, positions, inv_freq, interleaved)
    for row, slot in enumerate(slots.tolist()):
        if slot >= 0:
            torch.testing.assert_close(k_cache[slot], want_k[row], rtol=1e-4, atol=1e-4)
            torch.testing.assert_close(v_cache[slot], want_v[row])
    untouched = [slot for slot in range(7) if slot not in slots.tolist()]
    assert k_cache[untouched].isnan().all() and v_cache[untouched].isnan().all()


@pytest.mark.parametrize(("kind", "step"), [("int8", 0.5 / 127), ("fp8", 1 / 16)])
def test_rope_store_in_codes(kind: CacheKind, step: float, device: str) -> None:
    """What is read back differs by half a step of the codes at most: of the largest value, or (fp8) of each value."""
    heads, kv_heads, rows, dim = 3, 2, 4, 48
    gen = torch.Generator().manual_seed(4)
    qkv = torch.randn(rows, (heads + 2 * kv_heads) * dim, generator=gen).to(device)
    qkv.view(rows, -1, dim)[3, heads:] = 0  # a vector of zeros has a scale of 0
    inv_freq = torch.rand(dim // 2, generator=gen).to(device)
    positions = torch.tensor([0, 3, 500, 9], dtype=torch.int32, device=device)
    slots = torch.tensor([5, 0, -1, 2], dtype=torch.int32, device=device)
    plain, coded = (make_cache(7, kv_heads, dim, torch.float32, device, k) for k in ("same", kind))
    queries = [
        rope_store(qkv, inv_freq, positions, slots, cache, num_heads=heads, interleaved=False)
        for cache in (plain, coded)
    ]
    assert torch.equal(*queries)
    for exact, got in zip(dequantized(plain), dequantized(coded), strict=True):
        assert got.isfinite().all() and (got[3] == 0).all() and (got[2] == 0).all()  # slot 3 is nobody's
        largest = exact.abs().amax(-1, keepdim=True)
        bound = step * (largest if kind == "int8" else exact.abs() + largest / 448) + 1e-6
        assert ((got - exact).abs() <= bound).all()


@pytest.mark.parametrize("activation", ["silu", "gelu_tanh"])
@pytest.mark.parametrize("width", [1, 100, 1500])
def test_gated(activation: str, width: int, device: str) -> None:
    x = torch.randn(3, 2 * width, device=device)
    gate, up = x[:, :width], x[:, width:]
    act = torch.nn.functional.silu(gate) if activation == "silu" else torch.nn.functional.gelu(gate, approximate="tanh")
    torch.testing.assert_close(gated(x, activation, torch.float32), act * up, rtol=1e-5, atol=1e-5)
