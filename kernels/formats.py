"""What the bytes of a weight mean: every format as float32. The specification of all packed layouts.

Formats and formulas are GGML's (ggml-common.h and ggml-quants.c of llama.cpp). A block of a K format holds 256 values.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from sapwood.errors import ModelError
from sapwood.kernels.decoder import Format, Weight

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]

# format -> (values of a block, bytes of a block)
BLOCKS: dict[Format, tuple[int, int]] = {
    Format.F32: (1, 4),
    Format.F16: (1, 2),
    Format.BF16: (1, 2),
    Format.Q4_0: (32, 18),
    Format.Q4_1: (32, 20),
    Format.Q5_0: (32, 22),
    Format.Q5_1: (32, 24),
    Format.Q8_0: (32, 34),
    Format.Q2_K: (256, 84),
    Format.Q3_K: (256, 110),
    Format.Q4_K: (256, 144),
    Format.Q5_K: (256, 176),
    Format.Q6_K: (256, 210),
}


def row_bytes(fmt: Format, width: int) -> int:
    """Bytes of one encoded row of `width` values. ModelError when the width is no multiple of the format's block."""
    values, size = BLOCKS[fmt]
    if width % values:
        raise ModelError(f"a row of {width} values can't be stored as {fmt.value}: {values} doesn't divide it")
    return width // values * size


def dequantize(weight: Weight) -> Floats:
    """The weight as float32, in its own shape."""
    blocks = weight.data.reshape(-1, BLOCKS[weight.format][1])
    return _DECODERS[weight.format](blocks).reshape(weight.shape)


def _half(blocks: Bytes, at: int) -> Floats:
    """The float16 at byte `at` of each block, [n, 1]."""
    return blocks[:, at : at + 2].copy().view(np.float16).astype(np.float32)


def _nibbles(packed: Bytes) -> Bytes:
    """[n, b] bytes -> [n, 2b]: all low nibbles, then all high ones."""
    return np.concatenate([packed & 15, packed >> 4], axis=1)


def _bits(packed: Bytes) -> Bytes:
    """[n, b] bytes -> [n, 8b] bits, lowest first."""
    return np.unpackbits(packed, axis=1, bitorder="little")


def _float32(blocks: Bytes) -> Floats:
    return np.ascontiguousarray(blocks).view(np.float32)


def _float16(blocks: Bytes) -> Floats:
    return np.ascontiguousarray(blocks).view(np.float16).astype(np.float32)


def _bfloat16(blocks: Bytes) -> Floats:
    return (np.ascontiguousarray(blocks).view(np.uint16).astype(np.uint32) << 16).view(np.float32)


def _q4_0(blocks: Bytes) -> Floats:
    return _half(blocks, 0) * (_nibbles(blocks[:, 2:]).astype(np.float32) - 8)


def _q4_1(blocks: Bytes) -> Floats:
    return _half(blocks, 0) * _nibbles(blocks[:, 4:]).astype(np.float32) + _half(blocks, 2)


def _q5_0(blocks: Bytes) -> Floats:
    codes = _nibbles(blocks[:, 6:]) | (_bits(blocks[:, 2:6]) << 4)
    return _half(blocks, 0) * (codes.astype(np.float32) - 16)


def _q5_1(blocks: Bytes) -> Floats:
    codes = _nibbles(blocks[:, 8:]) | (_bits(blocks[:, 4:8]) << 4)
    return _half(blocks, 0) * codes.astype(np.float32) + _half(blocks, 2)


def _q8_0(blocks: Bytes) -> Floats:
    return _half(blocks, 0) * blocks[:, 2:].view(np.int8).astype(np.float32)


def _pairs(packed: Bytes, count: int) -> Bytes:
    """2-bit codes of a K block: 32 bytes hold 4 runs of 32 values. [n, 64] -> [n, count]."""
    halves = packed.reshape(len(packed), 2, 1, 32) >> np.array([0, 2, 4, 6], np.uint8).reshape(1, 1, 4, 1)
    codes: Bytes = (halves & 3).astype(np.uint8).reshape(len(packed), count)
    return codes


def _q2_k(blocks: Bytes) -> Floats:
    scales = blocks[:, :16]
    step = _half(blocks, 80) * (scales & 15).astype(np.float32)
    least = _half(blocks, 82) * (scales >> 4).astype(np.float32)
    codes = _pairs(blocks[:, 16:80], 256).astype(np.float32)
    return codes * step.repeat(16, axis=1) - least.repeat(16, axis=1)


def _q3_k(blocks: Bytes) -> Floats:
    packed = blocks[:, 96:108]
    low = np.concatenate([packed[:, :8] & 15, packed[:, :8] >> 4], axis=1)
    shifts = np.array([0, 2, 4, 6], np.uint8).reshape(1, 4, 1)
    high = ((packed[:, None, 8:12] >> shifts) & 3).reshape(-1, 16)
    scales = (low | (high << 4)).astype(np.int8) - 32
    low_bits = _pairs(blocks[:, 32:96], 256)
    masks = blocks[:, None, :32] >> np.arange(8, dtype=np.uint8).reshape(1, 8, 1)
    codes = low_bits.astype(np.int8) - 4 * (1 - (masks & 1).reshape(-1, 256).astype(np.int8))
    step = _half(blocks, 108) * scales.astype(np.float32)
    values: Floats = step.repeat(16, axis=1) * codes.astype(np.float32)
    return values


def _k_scales(packed: Bytes) -> tuple[Bytes, Bytes]:
    """The 8 scales and 8 minima of 6 bits each that Q4_K and Q5_K keep in 12 bytes. [n, 8] each."""
    low, mid, high = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    scales = np.concatenate([low & 63, (high & 15) | ((low >> 6) << 4)], axis=1)
    minima = np.concatenate([mid & 63, (high >> 4) | ((mid >> 6) << 4)], axis=1)
    return scales, minima


def _k_affine(blocks: Bytes, codes: Bytes) -> Floats:
    """codes [n, 8, 32] with the two-level scales and minima at the start of a Q4_K or Q5_K block."""
    scales, minima = _k_scales(blocks[:, 4:16])
    step = (_half(blocks, 0) * scales.astype(np.float32))[:, :, None]
    least = (_half(blocks, 2) * minima.astype(np.float32))[:, :, None]
    return codes.astype(np.float32) * step - least


def _k_nibbles(packed: Bytes) -> Bytes:
    """[n, 128] -> [n, 8, 32]: each 32 bytes hold a run in their low nibbles and the next in the high ones."""
    runs = packed.reshape(-1, 4, 1, 32) >> np.array([0, 4], np.uint8).reshape(1, 1, 2, 1)
    codes: Bytes = (runs & 15).astype(np.uint8).reshape(-1, 8, 32)
    return codes


def _q4_k(blocks: Bytes) -> Floats:
    return _k_affine(blocks, _k_nibbles(blocks[:, 16:]))


def _q5_k(blocks: Bytes) -> Floats:
    fifth: Bytes = ((blocks[:, None, 16:48] >> np.arange(8, dtype=np.uint8).reshape(1, 8, 1)) & 1).astype(np.uint8)
    return _k_affine(blocks, _k_nibbles(blocks[:, 48:]) | (fifth << np.uint8(4)))


def _q6_k(blocks: Bytes) -> Floats:
    low = (blocks[:, :128].reshape(-1, 2, 1, 64) >> np.array([0, 4], np.uint8).reshape(1, 1, 2, 1)) & 15
    shifts = np.array([0, 2, 4, 6], np.uint8).reshape(1, 1, 4, 1)
    high = (blocks[:, 128:192].reshape(-1, 2, 1, 32) >> shifts) & 3
    codes = (low.reshape(-1, 256) | (high.reshape(-1, 256) << 4)).astype(np.int8) - 32
    step = _half(blocks, 208) * blocks[:, 192:208].view(np.int8).astype(np.float32)
    return step.repeat(16, axis=1) * codes.astype(np.float32)


_DECODERS: dict[Format, Callable[[Bytes], Floats]] = {
    Format.F32: _float32,
    Format.F16: _float16,
    Format.BF16: _bfloat16,
    Format.Q4_0: _q4_0,
    Format.Q4_1: _q4_1,
    Format.Q5_0: _q5_0,
    Format.Q5_1: _q5_1,
    Format.Q8_0: _q8_0,
    Format.Q2_K: _q2_k,
    Format.Q3_K: _q3_k,
    Format.Q4_K: _q4_k,
    Format.Q5_K: _q5_k,
    Format.Q6_K: _q6_k,
}
