"""The top of a tree as a picture: who shares what, how warm it is, and who holds it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from html import escape
from typing import Literal

from sapwood.radix.outline import Outline, outline
from sapwood.radix.tree import RadixTree

Spell = Callable[[list[int]], str]

COLUMN, ROW, WIDTH, HEIGHT = 230, 46, 200, 36  # of the SVG, in pixels
SHOWN = 26  # characters of a node
COOL = 50  # matches after which a node that nobody uses looks cold


def draw(
    tree: RadixTree, form: Literal["svg", "mermaid"] = "svg", *, max_nodes: int = 40, spell: Spell | None = None
) -> str:
    """The most lately used nodes as SVG or Mermaid. `spell`: turns ids into text; None shows the ids."""
    top = outline(tree, max_nodes)
    return (_svg if form == "svg" else _mermaid)(top, spell or (lambda ids: " ".join(map(str, ids))))


def _walk(node: Outline, depth: int = 0) -> Iterator[tuple[Outline, Outline, int]]:
    """Each node with its parent and its depth, parents first."""
    for child in node.children:
        yield node, child, depth
        yield from _walk(child, depth + 1)


def _lines(node: Outline, spell: Spell) -> tuple[str, str]:
    """What is written on a node: its text, its numbers."""
    hidden = [f"{node.hidden} more"] if node.hidden else []
    if node.namespace is not None:
        return f"namespace {node.namespace!r}" if node.namespace else "default namespace", "".join(hidden)
    text = "".join(c if c.isprintable() else "¶" if c == "\n" else "·" for c in spell(node.head))
    numbers = [f"{node.len} tokens", *([f"{node.locks} held"] if node.locks else []), *hidden]
    whole = len(text) <= SHOWN and node.len == len(node.head)
    return text if whole else text[: SHOWN - 1] + "…", " · ".join(numbers)


def _mermaid(top: Outline, spell: Spell) -> str:
    out = ["flowchart LR"]
    for parent, node, depth in _walk(top):
        label = "<br/>".join(
            "".join(f"#{ord(c)};" if c in '#"<>&`' else c for c in line) for line in _lines(node, spell) if line
        )
        out.append(f'    n{node.id}["{label}"]')
        if depth:
            out.append(f"    n{parent.id} {'==>' if node.locks else '-->'} n{node.id}")
    return "\n".join(out) + "\n"


def _svg(top: Outline, spell: Spell) -> str:
    """Columns by depth, one row for each leaf; a parent stands beside its first child. Held nodes have a thick border."""
    places: dict[int, tuple[int, int]] = {}
    boxes: list[str] = []
    row = column = 0
    previous = -1
    for parent, node, depth in _walk(top):
        row += depth <= previous
        previous, column = depth, max(column, depth)
        x, y = places[node.id] = 10 + COLUMN * depth, 10 + ROW * row
        if depth:
            u, v = places[parent.id][0] + WIDTH, places[parent.id][1] + HEIGHT // 2
            w, middle = y + HEIGHT // 2, (u + x) // 2
            boxes.append(f'<path d="M{u} {v}C{middle} {v} {middle} {w} {x} {w}" fill="none" stroke="#999"/>')
        heat = 0.12 + 0.88 * math.exp(-node.idle / COOL)
        border = 'stroke="#2d4a22" stroke-width="2.5"' if node.locks else 'stroke="#777"'
        boxes.append(
            f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="5" fill="#8fbf7a" fill-opacity="{heat:.2f}" {border}/>'
        )
        for line, text in enumerate(_lines(node, spell)):
            boxes.append(f'<text x="{x + 8}" y="{y + 15 + 14 * line}" xml:space="preserve">{escape(text)}</text>')
    size = f'width="{20 + COLUMN * column + WIDTH}" height="{20 + ROW * (row + 1)}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="monospace" font-size="11">'
    return "\n".join([head, *boxes, "</svg>"]) + "\n"
