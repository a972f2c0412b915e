"""Kernels that go row by row: norms, rotary embedding with the KV store, gated activations."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from sapwood.kernels.triton.cache import Cache


@triton.jit
def _norm_kernel(  # type: ignore[no-untyped-def]
    x_ptr, delta_ptr, delta_norm_ptr, weight_ptr, out_ptr, width, eps,
    HAS_DELTA: tl.constexpr, NORM_DELTA: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    k = tl.arange(0, BLOCK)
    inside = k < width
    x = tl.load(x_ptr + row * width + k, mask=inside, other=0.0)
    if HAS_DELTA:
        delta = tl.load(delta_ptr + row * width + k, mask=inside, other=0.0)
        if NORM_DELTA:
            delta *= tl.rsqrt(tl.sum(delta * delta, axis=0) / width + eps)
            delta *= tl.load(delta_norm_ptr + k, mask=inside, other=0.0)
        x += delta
        tl.store(x_ptr + row * width + k, x, mask=inside)
    normed = x * tl.rsqrt(tl.sum(x * x, axis=0) / width + eps)
    normed *= tl.load(weight_ptr + k, mask=inside, other=0.0)
    tl.store(out_ptr + row * width + k, normed, mask=inside)


def add_rms_norm(
    x: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    *,
    delta: torch.Tensor | None = None,
    delta_norm: torch.Tensor | None = None,
    dtype: torch.dtype = torch.bfloat16,
) -> torch.Tensor:
    """rms_norm(x + delta) * weight in one pass; x [rows, width] float32 takes the sum in place.

    With `delta_norm`, delta is normed and scaled by it first (Gemma's post norms). Returns `dtype` [rows, width].
    """
    rows, width = x.shape
    out = torch.empty(rows, width, dtype=dtype, device=x.device)
    _norm_kernel[(rows,)](
        x, x if delta is None else delta, weight if delta_norm is None else delta_norm, weight, out, width, eps,
        HAS_DELTA=delta is not None, NORM_DELTA=delta_norm is not None, BLOCK=triton.next_power_of_2(width),
    )  # fmt: skip
    return out


@triton.jit
def _store_head(  # type: ignore[no-untyped-def]
    cache_ptr, scale_ptr, slot, head, d, values, KV_HEADS: tl.constexpr, DIM: tl.constexpr, LIMIT: tl.constexpr
):  # fmt: skip
    """One head's keys or values into its slot, none into slot -1; as codes up to LIMIT with a scale where LIMIT isn't 0."""
    at = slot * KV_HEADS + head
    if LIMIT > 0:
        largest = tl.max(tl.abs(values), axis=0)
        values *= LIMIT / tl.maximum(largest, 1e-30)
        if LIMIT == 127:
            values = tl.floor(values + 0.5)
        else:  # to float8_e4m3's three bits of mantissa here: the interpreter's conversion doesn't carry
            bits = values.to(tl.int32, bitcast=True)
            values = ((bits + 0x7FFFF + ((bits >> 20) & 1)) & ~0xFFFFF).to(tl.float32, bitcast=True)
        tl.store(scale_ptr + at, largest / LIMIT, mask=slot >= 0)
    values = values.to(cache_ptr.dtype.element_ty)
    tl.store(cache_ptr + at * DIM + d, values, mask=(d < DIM) & (d * 0 + slot >= 0))


@triton.jit
def _rope_store_kernel(  # type: ignore[no-untyped-def]
    qkv_ptr, inv_freq_ptr, positions_ptr, slots_ptr, q_norm_ptr, k_norm_ptr, q_ptr, k_cache_ptr, v_cache_ptr,
    k_scale_ptr, v_scale_ptr, half, magnitude, eps, HEADS: tl.constexpr, KV_HEADS: tl.constexpr, DIM: tl.constexpr,
    INTERLEAVED: tl.constexpr, NORMED: tl.constexpr, LIMIT: tl.constexpr, DIM_BLOCK: tl.constexpr,
):  # fmt: skip
    row, head = tl.program_id(0), tl.program_id(1)
    base = qkv_ptr + row * (HEADS + 2 * KV_HEADS) * DIM + head * DIM
    slot = tl.load(slots_ptr + row).to(tl.int64)
    d = tl.arange(0, DIM_BLOCK)
    inside = d < DIM
    values = tl.load(base + d, mask=inside, other=0.0)
    if head >= HEADS + KV_HEADS:
        _store_head(v_cache_ptr, v_scale_ptr, slot, head - HEADS - KV_HEADS, d, values, KV_HEADS, DIM, LIMIT)
        return
    if INTERLEAVED:
        pair = d // 2
        other = d ^ 1
        first = d % 2 == 0
        rotated = pair < half
    else:
        rotated = d < 2 * half
        first = d < half
        pair = tl.where(first, d, d - half)
        other = tl.where(first, d + half, d - half)
    partner = tl.load(base + other, mask=inside & rotated, other=0.0)
    if NORMED:
        inverse = tl.rsqrt(tl.sum(values * values, axis=0) / DIM + eps)
        norm_ptr = q_norm_ptr if head < HEADS else k_norm_ptr
        values *= inverse * tl.load(norm_ptr + d, mask=inside, other=0.0)
        partner *= inverse * tl.load(norm_ptr + other, mask=inside & rotated, other=0.0)
    angle = tl.load(positions_ptr + row).to(tl.float32) * tl.load(inv_freq_ptr + pair, mask=rotated, other=0.0)
    turned = values * tl.cos(angle) + tl.where(first, -partner, partner) * tl.sin(angle)
    values = tl.where(rotated, turned * magnitude, values)
    if head < HEADS:
        tl.store(q_ptr + row * HEADS * DIM + head * DIM + d, values, mask=inside)
    else:
        _store_head(k_cache_ptr, k_scale_ptr, slot, head - HEADS, d, values, KV_HEADS, DIM, LIMIT)


def rope_store(
    qkv: torch.Tensor,
    inv_freq: torch.Tensor,
    positions: torch.Tensor,
    slots: torch.Tensor,
    cache: Cache,
    *,
    num_heads: int,
    interleaved: bool,
    magnitude: float = 1.0,
    q_norm: torch.Tensor | None = None,
    k_norm: torch.Tensor | None = None,
    eps: float = 1e-6,
) -> torch.Tensor:
    """Norm (where given) and rotate q and k, and store k and v in their slots.

    qkv: float32 [rows, (heads + 2 kv_heads) * dim]; a slot of -1 stores nothing. Returns q in the type that the cache
    computes in, [rows, heads, dim].
    """
    rows = qkv.shape[0]
    _, kv_heads, dim = cache.keys.shape
    q = torch.empty(rows, num_heads, dim, dtype=cache.dtype, device=qkv.device)
    half = inv_freq.shape[0]
    unused = inv_freq
    _rope_store_kernel[(rows, num_heads + 2 * kv_heads)](
        qkv, inv_freq, positions, slots, unused if q_norm is None else q_norm, unused if k_norm is None else k_norm,
        q, cache.keys, cache.values, cache.key_scale, cache.value_scale, half, magnitude, eps, HEADS=num_heads, KV_HEADS=kv_heads, DIM=dim,
        INTERLEAVED=interleaved, NORMED=q_norm is not None, LIMIT=cache.limit,
        DIM_BLOCK=triton.next_power_of_2(dim),
    )  # fmt: skip
    return q


@triton.jit
def _gate_kernel(x_ptr, out_ptr, width, GELU: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0)
    k = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = k < width
    gate = tl.load(x_ptr + row * 2 * width + k, mask=inside, other=0.0)
    up = tl.load(x_ptr + row * 2 * width + width + k, mask=inside, other=0.0)
    if GELU:
        inner = 0.7978845608028654 * (gate + 0.044715 * gate * gate * gate)
        act = gate * tl.sigmoid(2 * inner)  # 0.5 x (1 + tanh(y)) = x sigmoid(2 y)
    else:
        act = gate * tl.sigmoid(gate)
    tl.store(out_ptr + row * width + k, act * up, mask=inside)


def gated(gate_up: torch.Tensor, activation: str, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    """act(gate) * up for float32 [rows, 2 * width] (gate first). `activation`: "silu" or "gelu_tanh"."""
    rows, width = gate_up.shape[0], gate_up.shape[1] // 2
    out = torch.empty(rows, width, dtype=dtype, device=gate_up.device)
    _gate_kernel[(rows, triton.cdiv(width, 1024))](gate_up, out, width, GELU=activation == "gelu_tanh", BLOCK=1024)
    return out
