"""A grammar's automaton as a drawing. Forced bytes are one edge; what leads to the same state is one edge.

Characters beyond ASCII and escapes are drawn as one edge each, since they lead where other characters lead.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from html import escape
from typing import Literal

from sapwood.kernels import _grammar

Form = Literal["mermaid", "svg"]

OTHER_CHARACTERS = ("é", "日", "😀")
COLUMN, ROW, RADIUS = 170, 70, 14  # of the SVG, in pixels


@dataclass
class Drawing:
    """States by number, 0 first; `rest` are states that were not walked."""

    edges: list[tuple[int, str, int]] = field(default_factory=list)
    final: set[int] = field(default_factory=set)
    rest: set[int] = field(default_factory=set)
    depth: list[int] = field(default_factory=list)  # edges from the start


def walk(matcher: _grammar.Matcher, max_states: int, json: bool) -> Drawing:
    """Breadth first from the start. `json`: a backslash begins an escape."""
    drawing = Drawing(depth=[0])
    numbers = {matcher.place(): 0}
    todo: deque[tuple[int, list[bytes]]] = deque([(0, [])])
    while todo:
        state, path = todo.popleft()
        if state >= max_states:
            drawing.rest.add(state)
            continue
        for step in path:
            matcher.advance_bytes(step)
        if matcher.may_end():
            drawing.final.add(state)
        for place, (label, step) in _ways(matcher, json).items():
            if place not in numbers:
                numbers[place] = len(numbers)
                drawing.depth.append(drawing.depth[state] + 1)
                todo.append((numbers[place], [*path, step]))
            drawing.edges.append((state, label, numbers[place]))
        matcher.rollback(len(path))
    return drawing


def _ways(matcher: _grammar.Matcher, json: bool) -> dict[int, tuple[str, bytes]]:
    """For each next state, by place: the label of what leads there, and one way."""
    forced = matcher.forced(200)
    steps = [forced]
    if not forced:
        steps = [bytes([byte]) for byte in matcher.allowed_bytes() if byte < 0x80 and not (json and byte == 0x5C)]
        steps += [b"\\n"] * json + [character.encode() for character in OTHER_CHARACTERS]
    found: dict[int, list[bytes]] = {}
    for step in steps:
        if matcher.advance_bytes(step):
            found.setdefault(matcher.place(), []).append(step)
            matcher.rollback(1)
    return {place: (_label(ways), ways[0]) for place, ways in found.items()}


def _label(ways: list[bytes]) -> str:
    """A forced text as it is, single characters as ranges."""
    if len(ways) == 1:
        return ways[0].decode(errors="replace")
    others = [way for way in ways if len(way) > 1]
    codes = [way[0] for way in ways if len(way) == 1]
    parts: list[str] = []
    start = 0
    for i in range(len(codes)):
        if i + 1 == len(codes) or codes[i + 1] != codes[i] + 1:
            low, high = chr(codes[start]), chr(codes[i])
            parts.append(low if low == high else f"{low}-{high}" if i - start > 1 else low + high)
            start = i + 1
    inside = "".join(parts) if len(parts) < 8 else "".join(parts[:7]) + "…"
    return f"[{inside}]" + ("…" if others else "")


def draw(drawing: Drawing, form: Form) -> str:
    return _mermaid(drawing) if form == "mermaid" else _svg(drawing)


def _mermaid(drawing: Drawing) -> str:
    lines = ["flowchart LR"]
    for state in range(len(drawing.depth)):
        name = "…" if state in drawing.rest else str(state)
        lines.append(f"    s{state}((({name})))" if state in drawing.final else f"    s{state}(({name}))")
    for source, label, target in drawing.edges:
        shown = "".join(f"#{ord(c)};" if c in '#"<>&' else c for c in _visible(label))
        lines.append(f'    s{source} -- "{shown}" --> s{target}')
    return "\n".join(lines) + "\n"


def _visible(label: str) -> str:
    label = label if len(label) <= 40 else label[:38] + "…"
    return "".join(c if c.isprintable() and c != " " else "␣" if c == " " else repr(c)[1:-1] for c in label)


def _svg(drawing: Drawing) -> str:
    """States in columns by their distance from the start."""
    rows: dict[int, int] = {}
    at: list[tuple[int, int]] = []
    for depth in drawing.depth:
        row = rows[depth] = rows.get(depth, -1) + 1
        at.append((40 + COLUMN * depth, 40 + ROW * row))
    width, height = 80 + COLUMN * max(drawing.depth), 80 + ROW * max(rows.values())
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="monospace" font-size="11">',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z"/></marker></defs>',
    ]
    for source, label, target in drawing.edges:
        (x, y), (u, v) = at[source], at[target]
        if source == target:
            path, middle = f"M{x - 8} {y - 11}C{x - 24} {y - 42} {x + 24} {y - 42} {x + 8} {y - 11}", (x, y - 36)
        else:
            bend = 0 if u > x else 40
            path = f"M{x + RADIUS} {y}Q{(x + u) // 2} {(y + v) // 2 + bend} {u - RADIUS} {v}"
            middle = ((x + u) // 2, (y + v) // 2 + bend // 2 - 5)
        out.append(f'<path d="{path}" fill="none" stroke="#777" marker-end="url(#tip)"/>')
        out.append(f'<text x="{middle[0]}" y="{middle[1]}" text-anchor="middle">{escape(_visible(label))}</text>')
    for state, (x, y) in enumerate(at):
        out.append(f'<circle cx="{x}" cy="{y}" r="{RADIUS}" fill="white" stroke="black"/>')
        if state in drawing.final:
            out.append(f'<circle cx="{x}" cy="{y}" r="{RADIUS - 3}" fill="none" stroke="black"/>')
        name = "…" if state in drawing.rest else str(state)
        out.append(f'<text x="{x}" y="{y + 4}" text-anchor="middle">{name}</text>')
    return "\n".join([*out, "</svg>"]) + "\n"
