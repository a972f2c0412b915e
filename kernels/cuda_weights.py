"""From a checkpoint's encoded weights to GPU memory. Knows formats and layouts, not what a matrix is for."""

from __future__ import annotations

import numpy as np
import torch

from sapwood.kernels import _cpu
from sapwood.kernels.decoder import Format, Weight
from sapwood.kernels.formats import dequantize
from sapwood.kernels.triton.weights import GpuMatrix, pack_w4, pack_w8

_FLOAT = (Format.F32, Format.F16, Format.BF16)


def load_matrix(weight: Weight, device: str) -> GpuMatrix:
    """Pack one matrix: 4-bit formats with groups of 32 as W4, other integer formats as W8, floats as bfloat16."""
    if weight.format in _FLOAT:
        return GpuMatrix("dense", torch.from_numpy(dequantize(weight)).to(device, torch.bfloat16))
    out, width = weight.shape
    bits, group, has_offset = _cpu.code_layout(weight.format.value)
    codes = np.empty((out, width), np.int8)
    scale, offset = np.empty((2, out, width // group), np.float32)
    _cpu.plain_codes(weight.format.value, np.ascontiguousarray(weight.data), codes, scale, offset)
    on_device = torch.from_numpy(codes).to(device)
    scales, offsets = torch.from_numpy(scale).to(device), torch.from_numpy(offset).to(device)
    if bits == 4 and group == 32 and width % 64 == 0:
        if not has_offset:  # codes are centred: shift them to 0..15 and let the offset take it back
            on_device, offsets = on_device + 8, -8 * scales
        return pack_w4(on_device.view(torch.uint8), scales, offsets)
    return pack_w8(on_device, scales, offsets if has_offset else None)


def load_vector(weight: Weight, device: str) -> torch.Tensor:
    """A norm's weights or a bias, float32 [n]."""
    return torch.from_numpy(dequantize(weight).reshape(-1)).to(device)


def stack(matrices: list[GpuMatrix]) -> list[GpuMatrix]:
    """One matrix of all outputs where the layouts agree (one kernel, not several), else the matrices as they are."""
    first = matrices[0]
    alike = all(
        m.layout == first.layout and m.group == first.group and (m.offset is None) == (first.offset is None)
        for m in matrices
    )
    if not alike:
        return matrices

    def joined(parts: list[torch.Tensor | None]) -> torch.Tensor | None:
        there = [p for p in parts if p is not None]
        return torch.cat(there) if there else None

    codes = torch.cat([m.codes for m in matrices])
    scale, offset = joined([m.scale for m in matrices]), joined([m.offset for m in matrices])
    return [GpuMatrix(first.layout, codes, scale, offset, first.group)]


def rows_of(weight: GpuMatrix, rows: torch.Tensor) -> torch.Tensor:
    """The chosen rows as float32 [n, in]: the embedding of tokens."""
    if weight.layout == "dense":
        return weight.codes[rows].float()
    assert weight.scale is not None
    codes, scale = weight.codes[rows], weight.scale[rows].float()
    if weight.layout == "w4":
        blocks = codes.view(len(rows), -1, 1, 32)
        codes = torch.cat([blocks & 15, blocks >> 4], dim=2).view(len(rows), -1)
    values = codes.float() * scale.repeat_interleave(weight.group, dim=1)
    if weight.offset is not None:
        values += weight.offset[rows].float().repeat_interleave(weight.group, dim=1)
    return values
