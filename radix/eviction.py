"""Which cache goes first when slots run out. A policy is a function from a node to a sortable key: lowest goes first."""

from __future__ import annotations

import heapq
from collections.abc import Callable
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
    """The unlocked leaves by the policy's key. Entries may be stale: they are checked when they come up."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._heap: list[tuple[Key, int, Node]] = []
        self._order = count()

    def push(self, node: Node) -> None:
        heapq.heappush(self._heap, (self._policy(node), next(self._order), node))

    def pop(self) -> Node | None:
        """The leaf that goes first, None if there is none."""
        while self._heap:
            key, _, node = heapq.heappop(self._heap)
            if node.parent is None or node.locks or node.children:
                continue
            if key != self._policy(node):
                self.push(node)
                continue
            return node
        return None

    def compact(self, live: int) -> None:
        """Drop stale entries when they outnumber the `live` nodes of the tree."""
        if len(self._heap) > 4 * live + 64:
            latest = {
                id(node): node
                for _, _, node in self._heap
                if node.parent is not None and not node.locks and not node.children
            }
            self._heap = []
            for node in latest.values():
                self.push(node)
