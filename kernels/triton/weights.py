"""How weights lie in GPU memory: three layouts, as on the CPU, but for tensor cores.

W4    codes uint8 [out, in / 2]    byte j of a 64-wide block holds column j (low nibble) and column j + 32 (high)
      scale, offset fp16 [out, in / 32]            value = code * scale + offset
W8    codes int8  [out, in]
      scale, offset fp16 [out, in / group]         value = code * scale + offset
dense bfloat16 [out, in], for torch's matmul; float8_e4m3 with one scale a row is W8's sibling, F8.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

GROUP = 32  # columns that share a scale in W4


@dataclass(frozen=True, slots=True, eq=False)
class GpuMatrix:
    """One weight matrix [out, in] on the device, packed."""

    layout: Literal["w4", "w8", "f8", "dense"]
    codes: torch.Tensor
    scale: torch.Tensor | None = None  # fp16 [out, groups]; f8: float32 [out]
    offset: torch.Tensor | None = None  # like scale, or None where every offset is zero
    group: int = GROUP

    @property
    def out_features(self) -> int:
        return int(self.codes.shape[0])

    @property
    def in_features(self) -> int:
        return int(self.codes.shape[1]) * (2 if self.layout == "w4" else 1)

    @property
    def nbytes(self) -> int:
        """Bytes that one pass over the matrix reads."""
        parts = (self.codes, self.scale, self.offset)
        return sum(t.numel() * t.element_size() for t in parts if t is not None)


def pack_w4(codes: torch.Tensor, scale: torch.Tensor, offset: torch.Tensor) -> GpuMatrix:
    """From codes 0..15, uint8 [out, in] (in a multiple of 64), and scale, offset [out, in / 32]."""
    out, width = codes.shape
    if width % 64:
        raise ValueError(f"W4 needs a width that 64 divides, not {width}")
    halves = codes.view(out, width // 64, 2, 32)
    packed = (halves[:, :, 0] | (halves[:, :, 1] << 4)).reshape(out, width // 2)
    return GpuMatrix("w4", packed.contiguous(), scale.half().contiguous(), offset.half().contiguous())


def pack_w8(codes: torch.Tensor, scale: torch.Tensor, offset: torch.Tensor | None = None) -> GpuMatrix:
    """From int8 codes [out, in] and scale (and offset) [out, in / group], group 16 or 32."""
    group = codes.shape[1] // scale.shape[1]
    if group not in (16, 32) or group * scale.shape[1] != codes.shape[1]:
        raise ValueError(f"W8 needs groups of 16 or 32 columns, not {codes.shape[1]} / {scale.shape[1]}")
    return GpuMatrix(
        "w8",
        codes.contiguous(),
        scale.half().contiguous(),
        None if offset is None else offset.half().contiguous(),
        group,
    )


def pack_f8(values: torch.Tensor) -> GpuMatrix:
    """Round float [out, in] to float8_e4m3 with one float32 scale a row (largest value of a row: 448)."""
    scale = values.abs().amax(dim=1).clamp_min(1e-12).float() / 448.0
    return GpuMatrix("f8", (values.float() / scale[:, None]).to(torch.float8_e4m3fn), scale)


def unpack(weight: GpuMatrix) -> torch.Tensor:
    """The matrix as float32 [out, in]: the specification of every kernel that reads it."""
    if weight.layout == "dense":
        return weight.codes.float()
    assert weight.scale is not None
    if weight.layout == "f8":
        return weight.codes.float() * weight.scale[:, None]
    codes = weight.codes
    if weight.layout == "w4":
        blocks = codes.view(codes.shape[0], -1, 1, 32)
        codes = torch.cat([blocks & 15, blocks >> 4], dim=2).reshape(codes.shape[0], -1)
    values = codes.float() * weight.scale.float().repeat_interleave(weight.group, dim=1)
    if weight.offset is not None:
        values += weight.offset.float().repeat_interleave(weight.group, dim=1)
    return values
