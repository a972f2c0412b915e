"""x @ W.T for packed weights.

Two ways, by the number of rows. Few rows (decode, verification): one fused kernel that unpacks a block of W and uses it
for all rows; it reads W once, and that is its floor. Many rows (prefill): W is unpacked to bfloat16 in a scratch buffer
and torch multiplies; unpacking costs one pass over W, which many rows pay for easily.

The fused kernel walks K in fixed steps and never splits it by batch, so a row's bits don't depend on the other rows;
`invariant=True` uses it for every number of rows, for dense matrices too, whose order of sums torch doesn't promise.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from sapwood.kernels.triton.dot import dot
from sapwood.kernels.triton.tuning import Config, choose
from sapwood.kernels.triton.weights import GpuMatrix

MANY_ROWS = 96  # from here on unpack + matmul is faster


def _configs(**blocks: list[int]) -> list[Config]:
    """Block sizes, each with several depths of pipeline."""
    shapes = [dict(zip(blocks, sizes, strict=True)) for sizes in zip(*blocks.values(), strict=True)]
    return [s | {"num_warps": w, "num_stages": n} for s in shapes for w, n in ((4, 3), (4, 4), (8, 3))]


W4_CONFIGS = _configs(BLOCK_N=[32, 16, 64, 128])
ROWS_CONFIGS = _configs(BLOCK_N=[32, 16, 64, 128], BLOCK_K=[64, 256, 128, 64])


@triton.jit
def _w4_kernel(  # type: ignore[no-untyped-def]
    x_ptr, codes_ptr, scale_ptr, offset_ptr, y_ptr, rows, out_features, width,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    m = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    n_in, m_in = n < out_features, m < rows
    lane = tl.arange(0, 32)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for block in range(0, width // 64):
        k = block * 64 + lane
        x_lo = tl.load(x_ptr + m[:, None] * width + k[None, :], mask=m_in[:, None], other=0.0)
        x_hi = tl.load(x_ptr + m[:, None] * width + k[None, :] + 32, mask=m_in[:, None], other=0.0)
        packed = tl.load(
            codes_ptr + n[None, :] * (width // 2) + block * 32 + lane[:, None], mask=n_in[None, :], other=0
        )
        at = n * (width // 32) + block * 2
        scale_lo = tl.load(scale_ptr + at, mask=n_in, other=0.0).to(tl.float32)
        scale_hi = tl.load(scale_ptr + at + 1, mask=n_in, other=0.0).to(tl.float32)
        offset_lo = tl.load(offset_ptr + at, mask=n_in, other=0.0).to(tl.float32)
        offset_hi = tl.load(offset_ptr + at + 1, mask=n_in, other=0.0).to(tl.float32)
        # Codes are exact in x's type; scales multiply the float32 sums.
        zero = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        acc += dot(x_lo, (packed & 15).to(x_lo.dtype), zero) * scale_lo[None, :]
        acc += tl.sum(x_lo.to(tl.float32), axis=1)[:, None] * offset_lo[None, :]
        acc += dot(x_hi, (packed >> 4).to(x_hi.dtype), zero) * scale_hi[None, :]
        acc += tl.sum(x_hi.to(tl.float32), axis=1)[:, None] * offset_hi[None, :]
    tl.store(y_ptr + m[:, None] * out_features + n[None, :], acc, mask=m_in[:, None] & n_in[None, :])


@triton.jit
def _rows_kernel(  # type: ignore[no-untyped-def]
    x_ptr, codes_ptr, scale_ptr, offset_ptr, y_ptr, rows, out_features, width,
    GROUP: tl.constexpr, HAS_OFFSET: tl.constexpr, LAYOUT: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    n = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    m = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    n_in, m_in = n < out_features, m < rows
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, width, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        k_in = k < width
        x = tl.load(x_ptr + m[:, None] * width + k[None, :], mask=m_in[:, None] & k_in[None, :], other=0.0)
        inside = n_in[None, :] & k_in[:, None]
        w = tl.load(codes_ptr + n[None, :] * width + k[:, None], mask=inside, other=0.0).to(tl.float32)
        if LAYOUT == "w8":
            at = n[None, :] * (width // GROUP) + k[:, None] // GROUP
            w *= tl.load(scale_ptr + at, mask=inside, other=0.0).to(tl.float32)
            if HAS_OFFSET:
                w += tl.load(offset_ptr + at, mask=inside, other=0.0).to(tl.float32)
        acc = dot(x, w.to(x.dtype), acc)
    if LAYOUT == "f8":
        acc *= tl.load(scale_ptr + n, mask=n_in, other=0.0)[None, :]
    tl.store(y_ptr + m[:, None] * out_features + n[None, :], acc, mask=m_in[:, None] & n_in[None, :])


@triton.jit
def _unpack_kernel(  # type: ignore[no-untyped-def]
    codes_ptr, scale_ptr, offset_ptr, w_ptr, width, GROUP: tl.constexpr, HAS_OFFSET: tl.constexpr,
    IS_W4: tl.constexpr, PER_ROW: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    n = tl.program_id(0)
    k = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = k < width
    if IS_W4:
        byte = tl.load(codes_ptr + n * (width // 2) + (k // 64) * 32 + k % 32, mask=inside, other=0)
        value = ((byte >> (((k // 32) % 2) * 4).to(tl.uint8)) & 15).to(tl.float32)
    else:
        value = tl.load(codes_ptr + n * width + k, mask=inside, other=0.0).to(tl.float32)
    if PER_ROW:
        value *= tl.load(scale_ptr + n)
    else:
        at = n * (width // GROUP) + k // GROUP
        value *= tl.load(scale_ptr + at, mask=inside, other=0.0).to(tl.float32)
        if HAS_OFFSET:
            value += tl.load(offset_ptr + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(w_ptr + n * width + k, value, mask=inside)


def unpack_to(weight: GpuMatrix, out: torch.Tensor) -> None:
    """Write the matrix as floats into `out` [out, in] (bfloat16 or float16)."""
    grid = (weight.out_features, triton.cdiv(weight.in_features, 1024))
    _unpack_kernel[grid](
        weight.codes, weight.scale, weight.scale if weight.offset is None else weight.offset, out, weight.in_features,
        GROUP=weight.group, HAS_OFFSET=weight.offset is not None, IS_W4=weight.layout == "w4",
        PER_ROW=weight.layout == "f8", BLOCK=1024,
    )  # fmt: skip


def linear(
    x: torch.Tensor, weight: GpuMatrix, *, scratch: torch.Tensor | None = None, invariant: bool = False
) -> torch.Tensor:
    """x @ W.T, float32 [rows, out].

    x: bfloat16 or float16 [rows, in], contiguous. `scratch`: room for at least out * in values of x's type, for many
    rows; without it, or with `invariant`, the fused kernel serves every number of rows.
    """
    rows = x.shape[0]
    if weight.layout == "dense" and not invariant:
        return (x @ weight.codes.to(x.dtype).T).float()
    if scratch is not None and rows >= MANY_ROWS and not invariant:
        dense = scratch.view(-1)[: weight.out_features * weight.in_features].view(
            weight.out_features, weight.in_features
        )
        unpack_to(weight, dense)
        return (x @ dense.T).float()
    y = torch.empty(rows, weight.out_features, dtype=torch.float32, device=x.device)
    block_m = 16 if rows <= 16 and not invariant else 64

    scale = weight.codes if weight.scale is None else weight.scale
    offset = scale if weight.offset is None else weight.offset
    sizes = (rows, weight.out_features, weight.in_features)

    def launch(config: Config) -> None:
        grid = (triton.cdiv(weight.out_features, config["BLOCK_N"]), triton.cdiv(rows, block_m))
        if weight.layout == "w4":
            _w4_kernel[grid](x, weight.codes, scale, offset, y, *sizes, BLOCK_M=block_m, **config)
        else:
            _rows_kernel[grid](
                x, weight.codes, scale, offset, y, *sizes, GROUP=weight.group, HAS_OFFSET=weight.offset is not None,
                LAYOUT=weight.layout, BLOCK_M=block_m, **config,
            )  # fmt: skip

    configs = W4_CONFIGS if weight.layout == "w4" else ROWS_CONFIGS
    shape = (weight.layout, weight.group, *sizes[1:], block_m)
    launch(choose("linear", shape, configs, launch, fixed=invariant))
    return y
