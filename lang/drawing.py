"""Graphs of programs as Mermaid text and as SVG. Knows nothing but nodes with a kind, a label and parents."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Protocol

WIDTH, HEIGHT, GAP = 220, 36, 24  # of a box, and between boxes, in pixels
COLOURS = {"text": "#eef1f4", "gen": "#cfe8d5", "select": "#fbe3b6", "join": "#dcd6f0"}


class Drawable(Protocol):
    @property
    def kind(self) -> str: ...
    @property
    def label(self) -> str: ...
    @property
    def parents(self) -> Sequence[Drawable]: ...


def mermaid(nodes: Sequence[Drawable]) -> str:
    """A flowchart: text in boxes, generations rounded, choices in diamonds."""
    number = {id(node): index for index, node in enumerate(nodes)}
    shapes = {"text": '["{}"]', "gen": '(["{}"])', "select": '{{"{}"}}', "join": '[["{}"]]'}
    lines = ["flowchart TD"]
    for node in nodes:
        label = _short(node.label).replace('"', "'")
        lines.append(
            f"    n{number[id(node)]}" + shapes[node.kind].replace("{}", label).replace("{{", "{").replace("}}", "}")
        )
        lines += [f"    n{number[id(parent)]} --> n{number[id(node)]}" for parent in node.parents]
    return "\n".join(lines)


def svg(nodes: Sequence[Drawable]) -> str:
    """Boxes in rows by their distance from the start."""
    row: dict[int, int] = {}
    column: dict[int, int] = {}
    taken: dict[int, int] = {}
    for node in nodes:
        row[id(node)] = 1 + max((row[id(parent)] for parent in node.parents), default=-1)
        column[id(node)] = taken.get(row[id(node)], 0)
        taken[row[id(node)]] = column[id(node)] + 1

    def place(node: Drawable) -> tuple[int, int]:
        return GAP + column[id(node)] * (WIDTH + GAP), GAP + row[id(node)] * (HEIGHT + GAP)

    width = GAP + max(taken.values(), default=1) * (WIDTH + GAP)
    height = GAP + len(taken) * (HEIGHT + GAP)
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="12">'
    ]
    for node in nodes:
        x, y = place(node)
        for parent in node.parents:
            px, py = place(parent)
            line = f'x1="{px + WIDTH // 2}" y1="{py + HEIGHT}" x2="{x + WIDTH // 2}" y2="{y}"'
            drawn.append(f'<line {line} stroke="#8a949e"/>')
    for node in nodes:
        x, y = place(node)
        radius = HEIGHT // 2 if node.kind == "gen" else 4
        drawn.append(
            f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="{radius}" fill="{COLOURS[node.kind]}"/>'
        )
        drawn.append(f'<text x="{x + 10}" y="{y + 22}">{escape(_short(node.label, 34))}</text>')
    return "\n".join([*drawn, "</svg>"])


def _short(text: str, limit: int = 60) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"
