"""Which cache goes first when slots run out. A policy is a function from a node to a sortable key: lowest goes first.

Keys of a node only ever grow, so a stale entry of the queue comes up too early, never too late, and is put back then.
"""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

from sapwood.radix.node import Node

Key = tuple[float, ...]
Policy = Callable[[Node], Key]

POLICIES: dict[str, Policy] = {
    "lru": lambda node: (node.last_use,),
    "lfu": lambda node: (node.hits, node.last_use),
    "priority": lambda node: (node.priority, node.last_use),
}


class EvictionQueue:
    """Unlocked leaves by the policy's key, one entry a node at most. Entries are checked when they come up."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._heap: list[tuple[Key, int, Node]] = []
        self._order = count()
        self._num_dead = 0

    def push(self, node: Node) -> None:
        """An unlocked leaf may be evicted from now on."""
        if not node.is_queued:
            node.is_queued = True
            heapq.heappush(self._heap, (self._policy(node), next(self._order), node))

    def forget(self, node: Node) -> None:
        """The node is out of the tree."""
        if node.is_queued:
            self._num_dead += 1
            if self._num_dead > len(self._heap) // 2 + 64:
                self._heap = [entry for entry in self._heap if self._owns(entry[2])]
                heapq.heapify(self._heap)
                self._num_dead = 0

    def first(self) -> tuple[Key, Node] | None:
        """The leaf that goes first, and its key; it stays in the queue. None if there is none."""
        while self._heap:
            key, _, node = self._heap[0]
            fresh = self._owns(node)
            if fresh and not node.locks and not node.children:
                now = self._policy(node)
                if key == now:
                    return key, node
                heapq.heapreplace(self._heap, (now, next(self._order), node))
                continue
            heapq.heappop(self._heap)
            if fresh:
                node.is_queued = False
            elif self._num_dead:
                self._num_dead -= 1
        return None

    def _owns(self, node: Node) -> bool:
        return node.parent is not None and node.space.queue is self


class Expiry:
    """Turns an age in seconds into a value of the tree's clock, which counts uses. `now`: seconds, never going back.

    Uses of a sixteenth of that age are kept as one and expire together, with the last of them: late by that much at most, never early.
    """

    def __init__(self, seconds: float, now: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._now = now
        self._ages: deque[_Age] = deque()  # the oldest first

    @property
    def due(self) -> float | None:
        """When something becomes too old, in the seconds of `now`; None: there is nothing that ages."""
        return self._ages[0].last + self._seconds if self._ages else None

    def used(self, clock: int) -> None:
        """Something was used now, and the clock says so."""
        now = self._now()
        if self._ages and now - self._ages[-1].first < self._seconds / 16:
            self._ages[-1].last, self._ages[-1].clock = now, clock
        else:
            self._ages.append(_Age(now, now, clock))

    def deadline(self) -> int | None:
        """What was last used when the clock said this, or before, is too old. None: nothing new is."""
        now, found = self._now(), None
        while self._ages and self._ages[0].last + self._seconds <= now:
            found = self._ages.popleft().clock
        return found


@dataclass(slots=True)
class _Age:
    """Uses that expire together."""

    first: float  # seconds
    last: float
    clock: int  # at the last
