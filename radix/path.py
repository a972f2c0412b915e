"""A request's hold on the tree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from sapwood.radix.node import Ids, Node, grown
from sapwood.radix.pool import Slots
from sapwood.radix.space import Space

if TYPE_CHECKING:
    from sapwood.radix.tree import RadixTree

NEAR = 4  # positions that are looked at one by one before numpy looks at the others


class Path:
    """A locked walk from the root to a tip. Owns its lock; releasing it keeps the KV as cache."""

    __slots__ = ("_is_released", "_len", "_slots", "_tree", "computed_until", "priority", "space", "tip")

    def __init__(self, tree: RadixTree, space: Space, tip: Node, slots: Slots, priority: int) -> None:
        self._tree = tree
        self.tip = tip
        self._slots = slots
        self._len = len(slots)
        self._is_released = False
        self.space = space
        self.priority = priority  # of what it adds to the tree
        self.computed_until = 0  # a position up to which everything is known to be computed

    def __len__(self) -> int:
        return self._len

    @property
    def ids(self) -> Ids:
        """Its token ids, int32 [len]; a copy. Walks to the root."""
        return self.tip.walk()[0]

    @property
    def slots(self) -> Slots:
        """The slot of each position, int32 [len]; a contiguous view, valid until the path changes."""
        return self._slots[: self._len]

    @property
    def num_computed(self) -> int:
        """Leading positions whose keys and values are in memory."""
        at, end = self.computed_until, self._len
        marks, slots = self._tree.marks, self._slots
        near = min(at + NEAR, end)
        while at < near and marks[slots.item(at)]:
            at += 1
        if at == near < end:
            rest = self._tree.computed.take(slots[at:end])
            at = end if rest.all() else at + int(rest.argmin())
        self.computed_until = at
        return at

    def extend(self, ids: Sequence[int] | Ids) -> Slots:
        """Append `ids`, sharing what the tree holds already (also what is not computed yet), taking slots for the rest.

        Slots come from the free list and, when that is empty, from unlocked leaves. Returns the slots of the new
        positions, int32 [len(ids)]. Raises OutOfSlots (nothing changed) when even eviction can't free enough.
        """
        if len(ids) != 1:
            return self._tree.extend(self, np.asarray(ids, np.int32))
        self.push(int(ids[0]))
        return self._slots[self._len - 1 : self._len]

    def push(self, id: int) -> None:
        """`extend` by one token, as decoding does: a path that shares its tip with nobody grows it in place."""
        tree, tip, size = self._tree, self.tip, self._len
        slots = self._slots
        if tip.locks != 1 or tip.children or not size or size == len(slots) or not tree.pool.num_free:
            tree.extend(self, np.array([id], np.int32))
            return
        slot = tree.pool.take_one()
        tip.append_one(id, slot)
        slots[size] = slot
        self._len = size + 1
        self.space.held += 1
        self.space.locked += 1
        tree.num_locked += 1

    def fork(self) -> Path:
        """A second path on the same nodes; nothing is copied but the walk."""
        tree = self._tree
        tree.lock(self.tip)
        tree.num_paths += 1
        twin = Path(tree, self.space, self.tip, self.slots.copy(), self.priority)
        twin.computed_until = self.computed_until
        return twin

    def truncate(self, length: int, *, discard: bool = False) -> None:
        """Go back to the first `length` positions. What is left behind stays as cache, or with `discard` is freed where
        nobody else holds it (rejected drafts)."""
        assert 0 <= length <= self._len
        self._tree.truncate(self, length, discard)
        self._len = length
        self.computed_until = min(self.computed_until, length)

    def release(self) -> None:
        """Unlock. Computed KV stays as cache; slots that were never computed are free again, unless others wait for them."""
        assert not self._is_released
        tree, tip = self._tree, self.tip
        tree.unlock(tip)
        tree.trim(tip)
        tree.forget_if_idle(self.space)
        tree.num_paths -= 1
        self._len = self.computed_until = 0
        self.tip = self.space.root
        self._is_released = True

    def append(self, slots: Slots) -> None:
        """For the tree: these positions are part of the walk now."""
        need = self._len + len(slots)
        if need > len(self._slots):
            self._slots = grown(self._slots, self._len, need)
        self._slots[self._len : need] = slots
        self._len = need
