"""What a regular expression consists of. The native automata are built from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from sapwood.constrained.regex.unicode import Ranges


@dataclass(frozen=True)
class Set:
    """One character of these ranges."""

    ranges: Ranges


@dataclass(frozen=True)
class Cat:
    nodes: tuple[Node, ...]


@dataclass(frozen=True)
class Alt:
    nodes: tuple[Node, ...]


@dataclass(frozen=True)
class Repeat:
    node: Node
    min: int
    max: int | None  # None: unbounded


@dataclass(frozen=True)
class Begin:
    """The start of the text."""


@dataclass(frozen=True)
class End:
    """The end of the text."""


@dataclass(frozen=True)
class Look:
    """What follows (or, `behind`, precedes) matches `node`, or must not (`negative`)."""

    node: Node
    behind: bool
    negative: bool


Node = Set | Cat | Alt | Repeat | Begin | End | Look


class RegexBuilder(Protocol):
    """The native tree (`sapwood.kernels._grammar.RegexBuilder`)."""

    def set(self, ranges: Ranges) -> int: ...
    def cat(self, nodes: list[int]) -> int: ...
    def alt(self, nodes: list[int]) -> int: ...
    def repeat(self, node: int, min: int, max: int) -> int: ...
    def begin(self) -> int: ...
    def end(self) -> int: ...
    def look(self, node: int, behind: bool, negative: bool) -> int: ...


def build(node: Node, builder: RegexBuilder) -> int:
    """Add a tree to the native builder; returns its root there."""
    match node:
        case Set(ranges):
            return builder.set(ranges)
        case Cat(nodes):
            return builder.cat([build(child, builder) for child in nodes])
        case Alt(nodes):
            return builder.alt([build(child, builder) for child in nodes])
        case Repeat(child, low, high):
            return builder.repeat(build(child, builder), low, -1 if high is None else high)
        case Begin():
            return builder.begin()
        case End():
            return builder.end()
        case Look(child, behind, negative):
            return builder.look(build(child, builder), behind, negative)
