"""Safetensors files, memory-mapped; copies no tensor. Formats: F32, F16, BF16.

8 bytes of header length, a JSON header with each tensor's dtype, shape and place, then the tensors' bytes
(github.com/huggingface/safetensors). Knows the container only.
"""

from __future__ import annotations

import json
import math
import mmap
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sapwood.errors import ModelError
from sapwood.kernels.decoder import Format

# dtype -> format, bytes of a value
_FORMATS = {"F32": (Format.F32, 4), "F16": (Format.F16, 2), "BF16": (Format.BF16, 2)}


class Tensor(NamedTuple):
    """As in `Weight`, without the name."""

    format: Format
    shape: tuple[int, ...]
    data: NDArray[np.uint8]  # [out, bytes_per_row]


class _Entry(NamedTuple):
    """A tensor as the header announces it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def read(path: Path) -> dict[str, Tensor]:
    """The tensors of a file, by name. ModelError where it is damaged or holds what isn't supported."""
    tensors = {}
    for name, (dtype, shape, data) in read_raw(path, {name: size for name, (_, size) in _FORMATS.items()}).items():
        tensors[name] = Tensor(_FORMATS[dtype][0], shape, data.reshape(math.prod(shape[:-1]), -1))
    return tensors


def read_raw(path: Path, sizes: dict[str, int]) -> dict[str, tuple[str, tuple[int, ...], NDArray[np.uint8]]]:
    """The dtype, shape and bytes of each tensor. `sizes`: bytes of a value of the dtypes that may occur."""
    damaged = ModelError(f"{path} is damaged: its header can't be read. Download it again.")
    try:
        with open(path, "rb") as stream:
            data = np.frombuffer(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
        length = int(data[:8].view("<u8")[0])
        entries = _entries(json.loads(bytes(data[8 : 8 + length])))
    except (OSError, ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
        raise damaged from error
    tensors = {}
    for entry in entries:
        if entry.dtype not in sizes:
            known = ", ".join(sizes)
            raise ModelError(f"{path}: tensor '{entry.name}' is {entry.dtype}; supported are {known}")
        sound = bool(entry.shape) and min(entry.shape) > 0 and entry.begin >= 0
        if not sound or entry.end - entry.begin != math.prod(entry.shape) * sizes[entry.dtype]:
            raise damaged
        begin, end = 8 + length + entry.begin, 8 + length + entry.end
        if end > len(data):
            raise ModelError(f"{path} is truncated at tensor '{entry.name}'. Download it again.")
        tensors[entry.name] = entry.dtype, entry.shape, data[begin:end]
    return tensors


def _entries(header: dict[str, dict[str, Any]]) -> list[_Entry]:
    """Raises one of the built-in errors where the header has another form than it should."""
    entries = []
    for name, entry in header.items():
        if name != "__metadata__":
            shape, (begin, end) = entry["shape"], entry["data_offsets"]
            entries.append(_Entry(name, str(entry["dtype"]), tuple(map(int, shape)), int(begin), int(end)))
    return entries
