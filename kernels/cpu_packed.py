"""The CPU's packed weights in a file: written ahead of time, mapped by any number of processes afterwards.

    each matrix as kernels/cpu/pack.h draws it, at the next multiple of 64 bytes; the embedding, the head if it isn't
    the embedding, then wq wk wv wo gate up down of each layer

What the file holds follows from the decoder alone, so it says nothing about itself. How matrices are packed is the same
for all instruction sets of one version of the kernels; `packing_mark` tells versions apart.
"""

from __future__ import annotations

import hashlib
import mmap
from itertools import accumulate
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sapwood.kernels import _cpu
from sapwood.kernels.decoder import Decoder, Format, Weight
from sapwood.kernels.formats import row_bytes

MATRICES = ("wq", "wk", "wv", "wo", "gate", "up", "down")
_MARK_WIDTH, _MARK_ROWS = 512, 19  # two superblocks; one whole block of outputs and a part of one


def matrices_of(decoder: Decoder) -> list[Weight]:
    """All matrices, in the file's order."""
    ends = [decoder.embed] if decoder.head is decoder.embed else [decoder.embed, decoder.head]
    return ends + [getattr(layer, name) for layer in decoder.layers for name in MATRICES]


def places_of(decoder: Decoder) -> list[tuple[Weight, int]]:
    """All matrices with the bytes of the file at which they begin."""
    weights = matrices_of(decoder)
    return list(zip(weights, [0, *accumulate(map(_size, weights))], strict=False))


def packed_size(decoder: Decoder) -> int:
    """Bytes of the file."""
    return sum(_size(weight) for weight in matrices_of(decoder))


def write_packed(decoder: Decoder, path: Path, threads: int | None = None) -> None:
    """Pack every matrix into the file, one at a time: only one of them is in memory. `threads`: None for one on each core."""
    with open(path, "wb") as file:
        for weight in matrices_of(decoder):
            packed = np.zeros(_size(weight), np.uint8)
            _cpu.pack_into(
                weight.format.value, np.ascontiguousarray(weight.data), weight.shape[1], packed, threads or 0
            )
            file.write(packed.data)


def map_packed(path: Path) -> NDArray[np.uint8]:
    """The file's bytes, read when they are needed and shared with other processes that map them."""
    with open(path, "rb") as file:
        return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)


def packing_mark(decoder: Decoder) -> str:
    """Differs where these kernels would pack one of the decoder's formats differently: a hash of packed samples."""
    digest = hashlib.sha256()
    for name in sorted({weight.format.value for weight in matrices_of(decoder)}):
        width = row_bytes(Format(name), _MARK_WIDTH)
        rows = (np.arange(_MARK_ROWS * width, dtype=np.uint64) * 2654435761 >> 13).astype(np.uint8)
        packed = np.zeros(_cpu.packed_bytes(name, _MARK_ROWS, _MARK_WIDTH), np.uint8)
        _cpu.pack_into(name, rows.reshape(_MARK_ROWS, width), _MARK_WIDTH, packed, 1)
        digest.update(name.encode() + packed.tobytes())
    return digest.hexdigest()[:32]


def _size(weight: Weight) -> int:
    return _cpu.packed_bytes(weight.format.value, *weight.shape)
