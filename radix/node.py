"""A node of the tree: a run of tokens and the slots that hold their keys and values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sapwood.radix.pool import Slots

if TYPE_CHECKING:
    from sapwood.radix.space import Space

Ids = NDArray[np.int32]


class Node:
    """Token ids and slots from position `start` on. Roots hold none.

    `locks` counts the paths that pass through or end here, and the pins; a node without locks has no locked descendants
    and is cache. Arrays have room to grow: the valid part is `ids` and `slots`.
    """

    __slots__ = (
        "_bytes", "_ids", "_slots", "children", "demoted", "hits", "is_queued", "last_use", "locks", "parent", "priority", "size",
        "space", "start",
    )  # fmt: skip

    def __init__(self, space: Space, parent: Node | None, start: int, ids: Ids, slots: Slots) -> None:
        self.space = space
        self.parent = parent
        self.start = start
        self.size = len(ids)
        self._ids = ids
        self._slots = slots
        self._bytes: bytes | None = None  # of the ids, once somebody compared them
        self.children: dict[int, Node] = {}
        self.locks = 0
        self.last_use = 0  # the tree's clock
        self.hits = 0  # matches that went through here
        self.priority = 0  # the highest of the matches that went through here
        self.is_queued = False  # in the eviction queue
        self.demoted = (0, 0)  # positions between these are in a lower tier too

    @property
    def ids(self) -> Ids:
        return self._ids[: self.size]

    @property
    def slots(self) -> Slots:
        return self._slots[: self.size]

    @property
    def end(self) -> int:
        """The position after its last token."""
        return self.start + self.size

    def walk(self) -> tuple[Ids, Slots]:
        """All ids and slots from position 0 to the end of this node."""
        ids, slots = np.empty(self.end, np.int32), np.empty(self.end, np.int32)
        node = self
        while node.parent is not None:
            ids[node.start : node.end], slots[node.start : node.end] = node.ids, node.slots
            node = node.parent
        return ids, slots

    def append_one(self, id: int, slot: int) -> None:
        """`append` for one token, several times as fast."""
        size = self.size
        if size == len(self._ids):
            self._ids, self._slots = grown(self._ids, size, size + 1), grown(self._slots, size, size + 1)
        self._ids[size] = id
        self._slots[size] = slot
        self._bytes = None
        self.size = size + 1

    def append(self, ids: Ids, slots: Slots) -> None:
        """Grow at the end, in amortised constant time a token."""
        need = self.size + len(ids)
        if need > len(self._ids):
            self._ids = grown(self._ids, self.size, need)
            self._slots = grown(self._slots, self.size, need)
        self._ids[self.size : need] = ids
        self._slots[self.size : need] = slots
        self._bytes = None
        self.size = need

    def cut(self, size: int) -> Slots:
        """Keep the first `size` tokens; returns the slots of the others (a copy)."""
        gone = self._slots[size : self.size].copy()
        self._bytes = None
        self.size = size
        return gone

    def split(self, size: int) -> Node:
        """Put the first `size` tokens into a new node above this one; whoever ends here still ends here."""
        assert self.parent is not None and 0 < size < self.size
        upper = Node(self.space, self.parent, self.start, self._ids[:size].copy(), self._slots[:size].copy())
        upper.locks, upper.last_use, upper.hits, upper.priority = self.locks, self.last_use, self.hits, self.priority
        self.parent.children[int(upper._ids[0])] = upper
        upper.children[int(self._ids[size])] = self
        self.parent = upper
        self.start += size
        self._ids = self._ids[size : self.size].copy()
        self._slots = self._slots[size : self.size].copy()
        self._bytes = None
        self.size -= size
        return upper

    def stands_in(self, content: bytes, position: int) -> bool:
        """Whether all of it stands in `content`, the bytes of some ids, from `position` on."""
        if self._bytes is None:
            self._bytes = self._ids[: self.size].tobytes()
        return content.startswith(self._bytes, 4 * position)

    def common(self, ids: Ids) -> int:
        """How many of the first tokens here are also the first of `ids`."""
        limit = min(self.size, len(ids))
        differs = self._ids[:limit] != ids[:limit]
        first = int(differs.argmax()) if limit else 0
        return first if limit and differs[first] else limit


def grown(values: NDArray[np.int32], size: int, need: int) -> NDArray[np.int32]:
    """The first `size` values in an array with room for `need` and as many again."""
    larger = np.empty(max(need, 2 * size, 16), np.int32)
    larger[:size] = values[:size]
    return larger
