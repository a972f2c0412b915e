"""Parts of the tree in a file: portable between processes of one model, versioned, checksummed.

    magic · length of the header (4 bytes) · header (JSON) · ids (int32) · records (one a token) · CRC-32 of all before

The header names the model's fingerprint and the memory's layout, and lists the nodes, parents first. A file appears under its
name whole or not at all.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path as FilePath
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from sapwood.errors import InvalidRequest
from sapwood.kernels.plan import KVMemory
from sapwood.radix.node import Ids, Node
from sapwood.radix.path import Path
from sapwood.radix.tree import RadixTree

MAGIC = b"SAPWOOD-KV\n"
VERSION = 1
CHUNK = 512  # tokens whose records are read or written at once
ROOT = -1  # as a parent: the node begins at position 0


def save(
    tree: RadixTree,
    kv: KVMemory,
    file: str | FilePath,
    *,
    fingerprint: str,
    namespace: str = "",
    ids: Sequence[int] | Ids | None = None,
) -> int:
    """Write what a namespace holds, or only the cached prefix of `ids` in it; returns the number of tokens."""
    if ids is None:
        nodes = _nodes(tree, namespace)
    else:
        path = tree.match(ids, namespace)
        count = path.num_computed
        nodes = [(ROOT, path.ids[:count].copy(), path.slots[:count].copy())] if count else []
        path.release()
    header = {
        "version": VERSION,
        "fingerprint": fingerprint,
        "layout": kv.layout,
        "bytes_per_slot": kv.bytes_per_slot,
        "namespace": namespace,
        "nodes": [[parent, len(part)] for parent, part, _ in nodes],
    }
    target = FilePath(file)
    partial = target.with_name(f"{target.name}.{os.getpid()}.partial")
    try:
        with open(partial, "wb") as stream:
            _write(stream, header, [part for _, part, _ in nodes], [slots for *_, slots in nodes], kv)
        os.replace(partial, target)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise InvalidRequest(f"the snapshot can't be written to {target}: {error.strerror}") from None
    return sum(len(part) for _, part, _ in nodes)


def load(tree: RadixTree, kv: KVMemory, file: str | FilePath, *, fingerprint: str) -> int:
    """Bring a snapshot back as cache; returns the number of tokens that are in memory now because of it.

    What doesn't fit is left out. Raises InvalidRequest for a file that is damaged, or of another model; the tree is
    unchanged then.
    """
    source = FilePath(file)
    try:
        content = np.memmap(source, np.uint8, "r") if source.stat().st_size else np.empty(0, np.uint8)
    except OSError as error:
        raise InvalidRequest(f"the snapshot {source} can't be read: {error.strerror}") from None
    header, ids, records = _parse(content, source)
    if header["fingerprint"] != fingerprint or header["layout"] != kv.layout:
        raise InvalidRequest(f"{source} was saved by another model or backend; load it there, or save it anew")
    starts = np.cumsum([0, *(size for _, size in header["nodes"])])
    lines: list[NDArray[np.intp]] = []  # for each node, where in the file its tokens from the root on are
    for index, (parent, _) in enumerate(header["nodes"]):
        own = np.arange(starts[index], starts[index + 1])
        lines.append(own if parent == ROOT else np.concatenate([lines[parent], own]))
    parents = {parent for parent, _ in header["nodes"]}
    paths: list[Path] = []  # held until the end, so that what comes later can't evict what came before
    count = 0
    for line in (line for index, line in enumerate(lines) if index not in parents):
        path = _begin(tree, header["namespace"], ids[line])
        paths.append(path)
        count += _fill(tree, kv, path, records, line)
    for path in paths:
        path.release()
    return count


def _nodes(tree: RadixTree, namespace: str) -> list[tuple[int, Ids, NDArray[np.int32]]]:
    """(parent, ids, slots) of a namespace's computed nodes, parents first."""
    root = tree.roots().get(namespace)
    found: list[tuple[int, Ids, NDArray[np.int32]]] = []
    stack: list[tuple[int, Node]] = [(ROOT, child) for child in root.children.values()] if root else []
    while stack:
        parent, node = stack.pop()
        count = int(np.count_nonzero(tree.computed[node.slots]))
        if count:
            found.append((parent, node.ids[:count], node.slots[:count]))
        if count == node.size:
            stack += [(len(found) - 1, child) for child in node.children.values()]
    return found


def _write(
    stream: BinaryIO, header: dict[str, Any], ids: list[Ids], slots: list[NDArray[np.int32]], kv: KVMemory
) -> None:
    checksum = 0

    def put(data: bytes | memoryview) -> None:
        nonlocal checksum
        checksum = zlib.crc32(data, checksum)
        stream.write(data)

    described = json.dumps(header).encode()
    put(MAGIC + struct.pack("<I", len(described)) + described)
    for part in ids:
        put(part.astype("<i4").tobytes())
    everything = np.concatenate([*slots, np.empty(0, np.int32)])
    for first in range(0, len(everything), CHUNK):
        put(kv.read(everything[first : first + CHUNK]).data)
    stream.write(struct.pack("<I", checksum))


def _parse(content: NDArray[np.uint8], source: FilePath) -> tuple[dict[str, Any], Ids, NDArray[np.uint8]]:
    """Header, ids and records of a file that is whole."""
    damaged = InvalidRequest(f"{source} is no snapshot, or it is damaged; save it anew")
    if content[: len(MAGIC)].tobytes() != MAGIC or len(content) < len(MAGIC) + 8:
        raise damaged
    body, stored = content[:-4], struct.unpack("<I", content[-4:].tobytes())[0]
    if zlib.crc32(body.data) != stored:
        raise damaged
    at = len(MAGIC) + 4
    size = struct.unpack("<I", content[len(MAGIC) : at].tobytes())[0]
    try:
        header: dict[str, Any] = json.loads(content[at : at + size].tobytes())
        if header["version"] != VERSION:
            raise InvalidRequest(f"{source} has version {header['version']}, but this is {VERSION}; save it anew")
        nodes, width, at = header["nodes"], header["bytes_per_slot"], at + size
        if not all(ROOT <= parent < index and count > 0 for index, (parent, count) in enumerate(nodes)):
            raise damaged
        count = sum(count for _, count in nodes)
        ids = np.frombuffer(body[at : at + 4 * count].tobytes(), "<i4").astype(np.int32)
        return header, ids, body[at + 4 * count :].reshape(count, width)
    except (KeyError, TypeError, ValueError):
        raise damaged from None


def _begin(tree: RadixTree, namespace: str, ids: Ids) -> Path:
    """A path of as many of `ids` as there is room for."""
    path = tree.match(ids, namespace)
    path.extend(ids[len(path) : len(path) + tree.available(namespace)])
    return path


def _fill(tree: RadixTree, kv: KVMemory, path: Path, records: NDArray[np.uint8], line: NDArray[np.intp]) -> int:
    """Write what a path lacks; returns how many tokens those are."""
    start = path.num_computed
    missing = path.slots[start:].copy()
    for first in range(0, len(missing), CHUNK):
        rows = line[start + first : start + first + CHUNK][: len(missing) - first]
        kv.write(missing[first : first + CHUNK], records[rows])
    tree.mark_computed(missing)
    return len(missing)
