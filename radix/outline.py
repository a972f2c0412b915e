"""The top of a tree as plain data, for people to look at. Bounded, because it is made between two steps."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from itertools import count

from sapwood.radix.node import Node
from sapwood.radix.tree import RadixTree

HEAD, TAIL = 24, 8  # token ids shown of each end of a node


@dataclass(slots=True)
class Outline:
    """A node, or above them all, with no tokens, the tree and its namespaces."""

    id: int  # the same as long as the node lives
    len: int = 0
    locks: int = 0  # paths that pass through it
    hits: int = 0
    idle: int = 0  # matches in the whole tree since it was last used
    head: list[int] = field(default_factory=list)
    tail: list[int] = field(default_factory=list)
    hidden: int = 0  # children that did not fit
    children: list[Outline] = field(default_factory=list)  # the most lately used first
    namespace: str | None = None  # of the node right below the top


def outline(tree: RadixTree, max_nodes: int) -> Outline:
    """The `max_nodes` nodes that were used last, namespaces included, each below its parent."""
    order = count()
    top = Outline(id=0)
    heap: list[tuple[int, int, Node, Outline]] = []

    def offer(node: Node, parent: Outline) -> None:
        used = node.last_use if node.parent else max((child.last_use for child in node.children.values()), default=0)
        heapq.heappush(heap, (-used, next(order), node, parent))

    for root in tree.roots().values():
        offer(root, top)
    for _ in range(min(max_nodes, tree.num_nodes + len(heap))):
        used, _, node, parent = heapq.heappop(heap)
        shown = _show(node, tree.clock + used)
        parent.children.append(shown)
        for child in node.children.values():
            offer(child, shown)
    for _, _, _, parent in heap:
        parent.hidden += 1
    return top


def _show(node: Node, idle: int) -> Outline:
    return Outline(
        id=id(node),
        len=node.size,
        locks=node.locks,
        hits=node.hits,
        idle=idle,
        head=node.ids[:HEAD].tolist(),
        tail=node.ids[max(node.size - TAIL, HEAD) :].tolist(),
        namespace=None if node.parent else node.space.name,
    )
