"""GGUF files, memory-mapped. Reads version 2 and 3, little-endian; copies no tensor.

    magic "GGUF", version, number of tensors, number of keys
    keys      name, type, value; arrays and strings with a length before them
    tensors   name, dimensions (innermost first), type, offset
    ... up to the alignment, then the tensors' bytes

Knows the container only: what keys and tensors mean is the architectures' business. Format: ggml's docs/gguf.md.
"""

from __future__ import annotations

import math
import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sapwood.errors import ModelError
from sapwood.kernels.decoder import Format, Weight
from sapwood.kernels.formats import row_bytes

# GGML's type numbers of the formats that are supported.
_FORMATS = {
    0: Format.F32, 1: Format.F16, 2: Format.Q4_0, 3: Format.Q4_1, 6: Format.Q5_0, 7: Format.Q5_1, 8: Format.Q8_0,
    10: Format.Q2_K, 11: Format.Q3_K, 12: Format.Q4_K, 13: Format.Q5_K, 14: Format.Q6_K, 30: Format.BF16,
}  # fmt: skip
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9


@dataclass(frozen=True, slots=True)
class TensorInfo:
    format: Format
    shape: tuple[int, ...]  # outermost first: (out, in)
    start: int  # byte in the file
    size: int  # bytes


class GgufFile:
    """An open GGUF file: `metadata` by key, tensors by name. The mapping lives as long as any weight taken from it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with open(path, "rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise ModelError(f"can't read the model file {path}: {error or 'it is empty'}") from error
        self._bytes = np.frombuffer(self._map, np.uint8)
        try:
            self.metadata, self.tensors = _Header(self._map, path).read()
        except (struct.error, OverflowError) as error:  # lengths beyond the file
            raise ModelError(f"{path} is damaged: its header can't be read ({error}). Download it again.") from error
        parts = self.metadata.get("split.count")
        if isinstance(parts, int) and parts > 1:
            raise ModelError(f"{path} is one part of a split model; join the parts with llama.cpp's gguf-split --merge")

    def weight(self, name: str) -> Weight:
        """A tensor, still encoded, as a view of the file. ModelError when it isn't there."""
        info = self.tensors.get(name)
        if info is None:
            raise ModelError(f"{self.path} has no tensor '{name}'; is it a complete model of a supported architecture?")
        data = self._bytes[info.start : info.start + info.size]
        return Weight(name, info.format, info.shape, data.reshape(math.prod(info.shape[:-1]), -1))

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a metadata key. Without a default, ModelError when it is missing."""
        value = self.metadata.get(key, default)
        if value is None:
            raise ModelError(f"{self.path} lacks the key '{key}'; it is no complete model file")
        return value


class _Header:
    """One pass over the header."""

    def __init__(self, data: mmap.mmap, path: Path) -> None:
        self._data = data
        self._at = 0
        self._path = path

    def read(self) -> tuple[dict[str, Any], dict[str, TensorInfo]]:
        if self._data[:4] != b"GGUF":
            raise ModelError(f"{self._path} is no GGUF file (it doesn't start with 'GGUF')")
        self._at = 4
        version = self._scalar("I")
        if version not in (2, 3):
            raise ModelError(f"{self._path} has GGUF version {version}; 2 and 3 are supported. Convert it again.")
        num_tensors, num_keys = self._scalar("Q"), self._scalar("Q")
        metadata = {self._string(): self._value(self._scalar("I")) for _ in range(self._count(num_keys, 13))}
        infos = [self._tensor() for _ in range(self._count(num_tensors, 24))]
        alignment = metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or not 0 < alignment <= 1 << 20:
            raise ModelError(f"{self._path} is damaged: an alignment of {alignment!r}. Download it again.")
        start = -(-self._at // alignment) * alignment
        return metadata, {name: self._placed(name, info, start) for name, info in infos}

    def _placed(self, name: str, info: TensorInfo, start: int) -> TensorInfo:
        end = start + info.start + info.size
        if end > len(self._data):
            raise ModelError(
                f"{self._path} is truncated: tensor '{name}' ends at byte {end:,}, the file at {len(self._data):,}. "
                "Download it again."
            )
        return TensorInfo(info.format, info.shape, start + info.start, info.size)

    def _tensor(self) -> tuple[str, TensorInfo]:
        name = self._string()
        num_dims = self._scalar("I")
        if not 1 <= num_dims <= 4:
            raise ModelError(f"{self._path} is damaged: tensor '{name}' has {num_dims} dimensions. Download it again.")
        shape = tuple(reversed([self._scalar("Q") for _ in range(num_dims)]))
        if 0 in shape:
            raise ModelError(f"{self._path} is damaged: tensor '{name}' has the shape {shape}. Download it again.")
        kind, offset = self._scalar("I"), self._scalar("Q")
        if kind not in _FORMATS:
            known = ", ".join(f.value for f in _FORMATS.values())
            raise ModelError(f"{self._path}: tensor '{name}' has GGML type {kind}; supported are {known}")
        size = math.prod(shape[:-1]) * row_bytes(_FORMATS[kind], shape[-1])
        return name, TensorInfo(_FORMATS[kind], shape, offset, size)

    def _count(self, count: int, least_bytes: int) -> int:
        """A count of things that take at least so many bytes each, refused before anything is allocated for it."""
        if count * least_bytes > len(self._data) - self._at:
            raise ModelError(
                f"{self._path} is damaged or truncated: it announces {count:,} entries. Download it again."
            )
        return count

    def _scalar(self, code: str) -> Any:
        (value,) = struct.unpack_from("<" + code, self._data, self._at)
        self._at += struct.calcsize("<" + code)
        return value

    def _string(self) -> str:
        length = self._count(self._scalar("Q"), 1)
        self._at += length
        return self._data[self._at - length : self._at].decode("utf-8", "replace")

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._string()
        if kind == _ARRAY:
            return self._array(self._scalar("I"), self._scalar("Q"))
        if kind not in _SCALARS:
            raise ModelError(f"{self._path} is damaged: a key of type {kind}. Download it again.")
        return self._scalar(_SCALARS[kind])

    def _array(self, kind: int, length: int) -> Any:
        if kind == _STRING:
            return self._strings(self._count(length, 8))
        if kind not in _SCALARS:  # arrays of arrays are allowed by the format; no model has them
            raise ModelError(f"{self._path} is damaged: an array of type {kind}. Download it again.")
        dtype = np.dtype("<" + _SCALARS[kind]) if kind != 7 else np.dtype(np.bool_)
        values = np.frombuffer(self._data, dtype, self._count(length, dtype.itemsize), self._at)
        self._at += values.nbytes
        return values

    def _strings(self, count: int) -> list[str]:
        """Many strings at once: vocabularies have hundreds of thousands."""
        data, at, read, strings = self._data, self._at, struct.Struct("<Q").unpack_from, []
        for _ in range(count):
            (length,) = read(data, at)
            at += 8 + length
            strings.append(data[at - length : at])
        self._at = at
        if at > len(data):
            raise ModelError(f"{self._path} is truncated in its vocabulary. Download it again.")
        return [s.decode("utf-8", "replace") for s in strings]
