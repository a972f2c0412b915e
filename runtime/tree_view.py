"""The tree as plain data, for people to look at: `Ask("tree")`. Bounded, because it is made between two steps."""

from __future__ import annotations

from typing import Any

import msgspec

from sapwood.radix.node import Node
from sapwood.radix.tree import RadixTree

HEAD, TAIL = 24, 8  # token ids of each end of a node


class TreeArgs(msgspec.Struct, forbid_unknown_fields=True):
    """How much to show."""

    max_nodes: int = 250


def describe_tree(tree: RadixTree, max_nodes: int) -> dict[str, Any]:
    """Nested nodes, the most lately used first. `idle`: matches in the whole tree since the node was last used.

    `hidden` counts the nodes below that did not fit.
    """
    left = max_nodes
    clock = max((node.last_use for node in tree.nodes()), default=0)

    def show(node: Node) -> dict[str, Any]:
        nonlocal left
        children = sorted(node.children.values(), key=lambda child: -child.last_use)
        shown = []
        hidden = 0
        for child in children:
            if left > 0:
                left -= 1
                shown.append(show(child))
            else:
                hidden += 1
        return {
            "id": id(node),
            "len": node.size,
            "locks": node.locks,
            "hits": node.hits,
            "idle": clock - node.last_use,
            "head": node.ids[:HEAD].tolist(),
            "tail": node.ids[max(node.size - TAIL, HEAD) :].tolist(),
            "hidden": hidden,
            "children": shown,
        }

    roots = [show(root) | {"namespace": name} for name, root in tree.roots().items()]
    return {"id": 0, "len": 0, "locks": 0, "hits": 0, "idle": 0, "head": [], "tail": [], "hidden": 0, "children": roots}
