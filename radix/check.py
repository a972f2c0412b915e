"""Verifies a tree from scratch. Cheap enough for each step of a debug server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sapwood.radix.node import Node

if TYPE_CHECKING:
    from sapwood.radix.tree import RadixTree


def check_tree(tree: RadixTree) -> None:
    """AssertionError where the invariant of `tree.py` is broken."""
    nodes = list(tree.nodes())
    owned = np.concatenate([*(node.slots for node in nodes), tree.pool.free_slots()])
    assert np.array_equal(np.sort(owned), np.arange(tree.num_slots)), "a slot is lost or owned twice"
    assert not tree.computed[tree.pool.free_slots()].any(), "a free slot is marked computed"
    assert tree.num_nodes == len(nodes), "nodes are miscounted"
    for node in nodes:
        _check_node(tree, node)
    for name, space in tree.spaces.items():
        mine = [node for node in nodes if node.space is space]
        assert space.name == name and not space.is_idle, "an empty namespace is kept"
        assert space.held == sum(node.size for node in mine), "a namespace's slots are miscounted"
        assert space.locked == sum(node.size for node in mine if node.locks), "locked slots are miscounted"
    assert tree.num_locked == sum(space.locked for space in tree.spaces.values()), "locked slots are miscounted"
    ends = sum(_ends(node) for node in nodes) + sum(_ends(root) for root in tree.roots().values())
    assert ends == tree.num_paths, "locks differ from the live paths"


def _check_node(tree: RadixTree, node: Node) -> None:
    parent = node.parent
    assert parent is not None and parent.children[int(node.ids[0])] is node and node.start == parent.end
    assert parent.space is node.space, "a node is below another namespace's"
    assert node.size > 0 and _ends(node) >= 0, "more paths pass through the children than through their parent"
    assert node.locks or node.children or node.is_queued, "an unlocked leaf is not in the eviction queue"
    marks = tree.computed[node.slots]
    assert not (marks[1:] > marks[:-1]).any(), "computed marks have a hole"
    assert not marks[0] or parent.parent is None or tree.computed[parent.slots[-1]], "computed marks have a hole"
    assert node.locks or marks.all(), "an unlocked node holds slots that were never computed"


def _ends(node: Node) -> int:
    """The paths whose tip it is."""
    return node.locks - sum(child.locks for child in node.children.values())
