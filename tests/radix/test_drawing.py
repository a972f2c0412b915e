"""Pictures and outlines show the warm top of the tree, whatever its texts contain."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from hypothesis import given, strategies as st

from sapwood.radix import RadixTree, draw
from sapwood.radix.outline import outline


@pytest.fixture
def tree() -> RadixTree:
    """Two conversations that share a beginning, one of them held, and a cold one."""
    tree = RadixTree(1000)
    for ids in ([7] * 30, [1, 2, 3, 4], [1, 2, 3, 5, 6]):
        path = tree.match(ids)
        path.extend(ids[len(path) :])
        tree.mark_computed(path.slots)
        if ids[-1] != 6:
            path.release()
    return tree


def test_an_outline_keeps_the_warmest_and_counts_what_it_hides(tree: RadixTree) -> None:
    (root,) = outline(tree, 100).children
    assert [(child.len, child.head[:3]) for child in root.children] == [(3, [1, 2, 3]), (30, [7, 7, 7])]
    assert [(child.len, child.locks) for child in root.children[0].children] == [(2, 1), (1, 0)]
    (root,) = outline(tree, 3).children
    assert [child.len for child in root.children] == [3] and root.hidden == 1
    assert [child.len for child in root.children[0].children] == [2] and root.children[0].hidden == 1
    assert outline(RadixTree(1), 10).children == []


def test_mermaid_names_every_node_and_marks_held_ones(tree: RadixTree) -> None:
    drawing = draw(tree, "mermaid", spell=lambda ids: '"<b>#' + str(len(ids)))
    assert drawing.startswith("flowchart LR\n") and drawing.count("[") == 5
    assert drawing.count("==>") == 2 and drawing.count("-->") == 2
    assert "#60;b#62;" in drawing and "30 tokens" in drawing


@given(st.text())
def test_svg_is_well_formed_whatever_the_text(text: str) -> None:
    tree = RadixTree(10)
    tree.match([1], "<tenant>&").extend([1, 2, 3])
    picture = ElementTree.fromstring(draw(tree, spell=lambda ids: text))
    assert len([part for part in picture if part.tag.endswith("rect")]) == 2


def test_boxes_do_not_overlap(tree: RadixTree) -> None:
    picture = ElementTree.fromstring(draw(tree))
    corners = [(part.get("x"), part.get("y")) for part in picture if part.tag.endswith("rect")]
    assert len(corners) == 5 == len(set(corners))
