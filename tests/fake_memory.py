"""A KV memory whose records can be told apart: what is written for a prefix depends on all of it."""

from __future__ import annotations

import zlib

import numpy as np
from numpy.typing import NDArray

from sapwood.radix.path import Path
from sapwood.radix.tree import RadixTree


class FakeKV:
    """Implements `KVMemory` with `width` bytes a slot."""

    layout = "fake"

    def __init__(self, num_slots: int, width: int = 8) -> None:
        self.num_slots = num_slots
        self.bytes_per_slot = width
        self.records = np.zeros((num_slots, width), np.uint8)

    def read(self, slots: NDArray[np.int32]) -> NDArray[np.uint8]:
        return self.records[slots]

    def write(self, slots: NDArray[np.int32], records: NDArray[np.uint8]) -> None:
        assert records.shape == (len(slots), self.bytes_per_slot)
        self.records[slots] = records


def record(ids: NDArray[np.int32], namespace: str, width: int) -> NDArray[np.uint8]:
    """What stands in the slot of the last of `ids`."""
    return np.resize(
        np.frombuffer(zlib.crc32(ids.tobytes(), zlib.crc32(namespace.encode())).to_bytes(4), np.uint8), width
    )


def compute(tree: RadixTree, kv: FakeKV, path: Path, until: int | None = None) -> None:
    """Fill the slots of what is not computed yet."""
    start, end = path.num_computed, len(path) if until is None else until
    for position in range(start, end):
        kv.records[path.slots[position]] = record(path.ids[: position + 1], path.space.name, kv.bytes_per_slot)
    tree.mark_computed(path.slots[start:end].copy())


def verify(kv: FakeKV, path: Path) -> None:
    """AssertionError where a computed slot holds anything but what belongs there."""
    for position in range(path.num_computed):
        expected = record(path.ids[: position + 1], path.space.name, kv.bytes_per_slot)
        assert np.array_equal(kv.records[path.slots[position]], expected)


def cache(tree: RadixTree, kv: FakeKV, ids: list[int], namespace: str = "") -> None:
    """Leave computed KV of `ids` in the tree."""
    path = tree.match(ids, namespace)
    path.extend(ids[len(path) :])
    compute(tree, kv, path)
    path.release()
