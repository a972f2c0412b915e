"""Random encoded weights of every GGUF format, and an independent reading of them by the `gguf` package."""

from __future__ import annotations

import gguf
import numpy as np
from numpy.typing import NDArray

FLOAT_FORMATS = ["F32", "F16", "BF16"]
INTEGER_FORMATS = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"]

# Byte offsets of the float16 scales in a block; every other byte may hold anything.
_HALVES = {
    "Q4_0": [0],
    "Q4_1": [0, 2],
    "Q5_0": [0],
    "Q5_1": [0, 2],
    "Q8_0": [0],
    "Q2_K": [80, 82],
    "Q3_K": [108],
    "Q4_K": [0, 2],
    "Q5_K": [0, 2],
    "Q6_K": [208],
}


def block_inputs(name: str) -> int:
    """How many inputs one block of the format holds; the size of a row is a multiple of it."""
    return gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]][0]


def random_weight(name: str, out: int, in_size: int, seed: int = 0) -> NDArray[np.uint8]:
    """Encoded rows [out, bytes_per_row], uniformly random but for finite scales."""
    rng = np.random.default_rng(seed)
    if name in FLOAT_FORMATS:
        values = rng.standard_normal((out, in_size), dtype=np.float32)
        if name == "F16":
            return values.astype(np.float16).view(np.uint8)
        if name == "BF16":
            return np.ascontiguousarray((values.view(np.uint32) >> 16).astype(np.uint16)).view(np.uint8)
        return values.view(np.uint8)
    inputs, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]]
    blocks = rng.integers(0, 256, (out * in_size // inputs, size), dtype=np.uint8)
    for at in _HALVES[name]:
        scales = rng.uniform(-0.02, 0.02, len(blocks)).astype(np.float16)
        blocks[:, at : at + 2] = scales.view(np.uint8).reshape(-1, 2)
    return blocks.reshape(out, -1)


def dequantized(name: str, rows: NDArray[np.uint8]) -> NDArray[np.float32]:
    """The weights as float32 [out, in]."""
    values = gguf.dequantize(rows.reshape(-1), gguf.GGMLQuantizationType[name])
    return values.astype(np.float32).reshape(len(rows), -1)
