"""What one namespace holds. Spaces share no nodes, so whoever uses one can't learn what is in another."""

from __future__ import annotations

import numpy as np

from sapwood.radix.eviction import EvictionQueue
from sapwood.radix.node import Node


class Space:
    """The root of a namespace and its counts, in tokens.

    `quota`: what it holds up to this is never evicted for another space's sake; None: it takes its chance with the others.
    A space with a quota has a queue of its own, the others share one.
    """

    __slots__ = ("evicted", "held", "locked", "matched", "name", "queue", "quota", "requested", "root")

    def __init__(self, name: str, queue: EvictionQueue) -> None:
        self.name = name
        self.queue = queue
        empty = np.empty(0, np.int32)
        self.root = Node(self, None, 0, empty, empty)
        self.quota: int | None = None
        self.held = 0  # slots of its nodes
        self.locked = 0  # of these, slots of nodes that a path holds
        self.requested = 0  # asked of match
        self.matched = 0  # of these, found computed
        self.evicted = 0

    @property
    def is_idle(self) -> bool:
        """Nothing would be lost with it."""
        return not self.held and not self.root.locks and self.quota is None

    def evictable(self, whom: Space | None) -> int:
        """Slots here that may be taken for `whom` now."""
        unlocked = self.held - self.locked
        return unlocked if self.quota is None or whom is self else max(0, min(unlocked, self.held - self.quota))
