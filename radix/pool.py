"""The free list of KV slots. A slot that isn't on it belongs to exactly one node of the tree."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Slots = NDArray[np.int32]


class SlotPool:
    """Slots 0 .. num_slots - 1, handed out lowest first while the pool is fresh."""

    def __init__(self, num_slots: int) -> None:
        self.num_slots = num_slots
        self.num_free = num_slots
        self.num_taken = 0  # in all
        self._stack = np.arange(num_slots - 1, -1, -1, dtype=np.int32)  # the top is at num_free - 1

    def take(self, count: int) -> Slots:
        """`count` free slots, int32 [count]; the caller made sure that there are as many."""
        assert count <= self.num_free
        self.num_free -= count
        self.num_taken += count
        return self._stack[self.num_free : self.num_free + count][::-1].copy()

    def take_one(self) -> int:
        """One free slot; the caller made sure that there is one."""
        self.num_free -= 1
        self.num_taken += 1
        return self._stack.item(self.num_free)

    def give(self, slots: Slots) -> None:
        self._stack[self.num_free : self.num_free + len(slots)] = slots[::-1]
        self.num_free += len(slots)

    def free_slots(self) -> Slots:
        """A view of the free slots, in no particular order."""
        return self._stack[: self.num_free]
