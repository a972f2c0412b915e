"""The top of the radix tree as plain data, for people to look at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sapwood.radix.node import Node
from sapwood.radix.tree import RadixTree

MAX_NODES = 400
TEXT_LEN = 48  # tokens of a long node that are shown, half of them from each end

Decode = Callable[[Sequence[int]], str]


def describe_tree(tree: RadixTree, decode: Decode, max_nodes: int = MAX_NODES) -> dict[str, Any]:
    """Nested nodes: id, len (tokens), locks, hits, idle (matches since it was used), text, children, hidden (left out below).

    The roots of the namespaces are children of one empty root. Nodes nearest to the root are kept, in the order of their
    last use.
    """
    now = max((node.last_use for node in tree.nodes()), default=0)
    top: dict[str, Any] = {"id": 0, "len": 0, "locks": 0, "hits": 0, "idle": 0, "text": "", "children": []}
    level: list[tuple[Node, dict[str, Any]]] = [(root, top) for root in tree.roots().values()]
    left = max_nodes
    while level:
        deeper: list[tuple[Node, dict[str, Any]]] = []
        for node, parent in level:
            for child in sorted(node.children.values(), key=lambda n: -n.last_use):
                if left <= 0:
                    parent["hidden"] = parent.get("hidden", 0) + 1
                    continue
                left -= 1
                shown = _describe(child, now, decode)
                parent["children"].append(shown)
                deeper.append((child, shown))
        level = deeper
    return top


def _describe(node: Node, now: int, decode: Decode) -> dict[str, Any]:
    ids, half = node.ids.tolist(), TEXT_LEN // 2
    whole = len(ids) <= TEXT_LEN
    return {
        "id": id(node),
        "len": len(ids),
        "locks": node.locks,
        "hits": node.hits,
        "idle": max(0, now - node.last_use),
        "text": decode(ids) if whole else f"{decode(ids[:half])} ... {decode(ids[-half:])}",
        "children": [],
    }
