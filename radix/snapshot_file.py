"""The file that holds a part of a tree: portable between processes of one model, versioned, checksummed. Knows no tree.

    magic · length of the header (4 bytes) · header (JSON) · ids (int32) · records (one a token) · CRC-32 of all before

The header names the model's fingerprint and the memory's layout, and lists the nodes as (parent, tokens), each followed by what
is below it. So the tokens of a leaf that no earlier leaf has are one run of rows, and a file is read from front to back:

    nodes   A ── B ── C      rows  A A A B B C C | D D | E E E      branches  3 of them; D goes on at the end of A,
             └── D                 0             7     9                      so it begins at position 3; E at position 0
            E
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from sapwood.errors import InvalidRequest
from sapwood.radix.node import Ids

MAGIC = b"SAPWOOD-KV\n"
VERSION = 1
ROOT = -1  # as a parent: the node begins at position 0

Records = NDArray[np.uint8]  # [tokens, bytes_per_slot]


@dataclass(frozen=True, slots=True)
class Header:
    """What stands before the ids."""

    fingerprint: str
    layout: str
    bytes_per_slot: int
    namespace: str
    nodes: list[tuple[int, int]]  # the number of the parent, and how many tokens
    version: int = VERSION


@dataclass(frozen=True, slots=True)
class Branch:
    """A leaf, and those above it that no leaf before it has: rows [first, last), at positions from `start` on."""

    start: int
    first: int
    last: int


class SnapshotWriter:
    """Writes a file piece by piece. It appears under its name whole or not at all. Methods raise OSError."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self._partial = target.with_name(f"{target.name}.{os.getpid()}.partial")
        self._stream: BinaryIO | None = None
        self._checksum = 0

    def begin(self, header: Header, ids: bytes) -> None:
        """All that stands before the records. `ids`: little-endian int32."""
        self._stream = open(self._partial, "wb")  # noqa: SIM115 closed by `finish` or `abandon`
        described = json.dumps({field.name: getattr(header, field.name) for field in fields(header)}).encode()
        self._put(MAGIC + struct.pack("<I", len(described)) + described)
        self._put(ids)

    def put(self, records: Records) -> None:
        """The records of the next tokens."""
        self._put(np.ascontiguousarray(records).data)

    def finish(self) -> None:
        """The file is whole."""
        assert self._stream is not None
        self._stream.write(struct.pack("<I", self._checksum))
        self._stream.close()
        os.replace(self._partial, self._target)

    def abandon(self) -> None:
        """Leave nothing behind."""
        if self._stream is not None:
            self._stream.close()
            self._partial.unlink(missing_ok=True)

    def _put(self, data: bytes | memoryview) -> None:
        assert self._stream is not None
        self._checksum = zlib.crc32(data, self._checksum)
        self._stream.write(data)


class SnapshotReader:
    """A file that was found whole. Raises InvalidRequest where it isn't, or belongs to another model or layout."""

    def __init__(self, source: Path, fingerprint: str, layout: str) -> None:
        self._source = source
        try:
            self._stream = open(source, "rb")  # noqa: SIM115 closed by `close`
        except OSError as error:
            raise InvalidRequest(f"the snapshot {source} can't be read: {error.strerror}") from None
        try:
            self._check()
            self.header, self.ids = self._parse()
            if (self.header.fingerprint, self.header.layout) != (fingerprint, layout):
                raise InvalidRequest(f"{source} was saved by another model or backend; load it there, or save it anew")
            self._begin = self._stream.tell()
            self.branches = _branches(self.header.nodes, source)
        except OSError as error:
            self.close()
            raise InvalidRequest(f"the snapshot {source} can't be read: {error.strerror}") from None
        except BaseException:
            self.close()
            raise

    def __len__(self) -> int:
        return len(self.ids)

    def read(self, first: int, last: int) -> Records:
        """The records of rows [first, last)."""
        records = np.empty((last - first, self.header.bytes_per_slot), np.uint8)
        self._stream.seek(self._begin + first * records.shape[1])
        if self._stream.readinto(records.data) != records.nbytes:
            raise _damaged(self._source)
        return records

    def close(self) -> None:
        """Nothing more is read."""
        self._stream.close()

    def _parse(self) -> tuple[Header, Ids]:
        """What stands before the records; the stream is there then."""
        damaged = _damaged(self._source)
        self._stream.seek(len(MAGIC))
        try:
            size = struct.unpack("<I", self._stream.read(4))[0]
            found: dict[str, Any] = json.loads(self._stream.read(size))
            if found["version"] != VERSION:
                raise InvalidRequest(
                    f"{self._source} has version {found['version']}, but this is {VERSION}; save it anew"
                )
            header = Header(**found)
            total = sum(count for _, count in header.nodes)
            size = self._stream.tell() + total * (4 + header.bytes_per_slot) + 4
            if not all(count > 0 for _, count in header.nodes) or size != os.fstat(self._stream.fileno()).st_size:
                raise damaged
            return header, np.frombuffer(self._stream.read(4 * total), "<i4").astype(np.int32)
        except (KeyError, TypeError, ValueError):
            raise damaged from None

    def _check(self) -> None:
        """Whether it begins with MAGIC and its checksum is right."""
        left, checksum = os.fstat(self._stream.fileno()).st_size - 4, 0
        if left < len(MAGIC) + 4 or self._stream.read(len(MAGIC)) != MAGIC:
            raise _damaged(self._source)
        self._stream.seek(0)
        while left and (part := self._stream.read(min(left, 2**20))):
            checksum = zlib.crc32(part, checksum)
            left -= len(part)
        if self._stream.read(4) != struct.pack("<I", checksum):
            raise _damaged(self._source)


def _branches(nodes: list[tuple[int, int]], source: Path) -> list[Branch]:
    """The runs of rows that lead to each leaf."""
    branches: list[Branch] = []
    ends: dict[int, int] = {ROOT: 0}  # by the number of a node that may still get children: the position after it
    line: list[int] = [ROOT]  # these, from the root on
    start = first = row = 0
    for number, (parent, count) in enumerate(nodes):
        if parent not in ends:
            raise _damaged(source)
        if number and parent != line[-1]:  # so the one before was a leaf
            branches.append(Branch(start, first, row))
            start, first = ends[parent], row
            while line[-1] != parent:
                del ends[line.pop()]
        line.append(number)
        ends[number] = ends[parent] + count
        row += count
    return [*branches, Branch(start, first, row)] if nodes else []


def _damaged(source: Path) -> InvalidRequest:
    return InvalidRequest(f"{source} is no snapshot, or it is damaged; save it anew")
