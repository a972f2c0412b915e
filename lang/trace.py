"""A program as a graph, without running it: its body is called with a state that only writes down what is appended.

Arguments that are not given stand for themselves as `{name}`, and so do the variables that generations would write. A body
that branches on an answer is followed along one way only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from sapwood.lang.drawing import mermaid, svg
from sapwood.lang.expressions import Expression, Gen, Reasoning, RoleBegin, RoleEnd, Select, Text, parts

Kind = str  # "text", "gen", "select", "join"


@dataclass(eq=False)
class Node:
    """One step; `parents` are what it goes on from (several: a join)."""

    kind: Kind
    label: str
    parents: list[Node] = field(default_factory=list)


@dataclass(eq=False)
class Trace:
    """The graph of a program. `str(trace)` is Mermaid; `trace.svg()` a drawing; notebooks show it by themselves."""

    nodes: list[Node]
    ended_early: str | None = None  # why the body couldn't be followed to its end

    def prefix(self) -> str:
        """The constant text that every run begins with."""
        first = self.nodes[0].label if self.nodes and self.nodes[0].kind == "text" else ""
        return first.split("{", 1)[0]

    def independent(self) -> list[list[Node]]:
        """Calls by depth: those of one level need nothing of each other and run side by side."""
        depth: dict[int, int] = {}
        levels: list[list[Node]] = []
        for node in self.nodes:
            level = max((depth[id(parent)] for parent in node.parents), default=0)
            depth[id(node)] = level + (node.kind in ("gen", "select"))
            if node.kind in ("gen", "select"):
                levels.extend([] for _ in range(level + 1 - len(levels)))
                levels[level].append(node)
        return levels

    def mermaid(self) -> str:
        return mermaid(self.nodes)

    def svg(self) -> str:
        return svg(self.nodes)

    def __str__(self) -> str:
        return self.mermaid()

    def _repr_svg_(self) -> str:
        return self.svg()


class Placeholder(str):
    """What stands for a value that isn't there yet: a string that can be read, cut, compared and put into text."""

    def __new__(cls, name: str) -> Placeholder:
        return super().__new__(cls, "{" + name + "}")


class TraceState:
    """What a body gets for its state while it is traced."""

    def __init__(self, nodes: list[Node], tip: Node | None = None) -> None:
        self._nodes = nodes
        self._tip = tip
        self._open: Node | None = None  # text that more text may join: nothing was forked from it
        self._values: dict[str, Any] = {}

    def __iadd__(self, other: Any) -> TraceState:
        if callable(getattr(other, "inline", None)):
            other.inline(self)
            return self
        for part in parts(other):
            self._add(part)
        return self

    def __getitem__(self, name: str) -> Any:
        return self._values.get(name, Placeholder(name))

    def __setitem__(self, name: str, value: Any) -> None:
        self._values[name] = value

    def get_var(self, name: str, timeout: float | None = None) -> Any:
        return self[name]

    def set_var(self, name: str, value: Any) -> None:
        self[name] = value

    def fork(self, size: int = 1, position_ids_offset: list[int] | None = None) -> TraceForks:
        self._open = None
        return TraceForks([TraceState(self._nodes, self._tip) for _ in range(size)], self)

    @contextmanager
    def copy(self) -> Iterator[TraceState]:
        yield self.fork(1)[0]

    def call(self, program: Any, *args: Any, **arguments: Any) -> TraceState:
        child = self.fork(1)[0]
        program.inline(child, *args, **arguments)
        return child

    def parallel(self, *expressions: Any) -> TraceForks:
        forks = self.fork(len(expressions))
        for fork, expression in zip(forks, expressions, strict=True):
            fork += expression
        return forks

    @contextmanager
    def var_scope(self, name: str) -> Iterator[None]:
        yield

    def system(self, content: Any = None) -> Any:
        return self._turn("system", content)

    def user(self, content: Any = None) -> Any:
        return self._turn("user", content)

    def assistant(self, content: Any = None) -> Any:
        return self._turn("assistant", content)

    def sync(self) -> None:
        """Nothing runs."""

    def text(self) -> str:
        return Placeholder("text")

    def _turn(self, role: str, content: Any) -> Any:
        if content is not None:
            self.__iadd__([RoleBegin(role), *parts(content), RoleEnd(role)])
            return None
        return self._turn_block(role)

    @contextmanager
    def _turn_block(self, role: str) -> Iterator[None]:
        self._add(RoleBegin(role))
        yield
        self._add(RoleEnd(role))

    def _add(self, part: Expression) -> None:
        if isinstance(part, Reasoning):
            for inner in parts(part.expression):
                self._add(inner)
        elif isinstance(part, Text):
            self._write(part.text)
        elif isinstance(part, RoleBegin):
            self._write(f"[{part.role}] ")
        elif isinstance(part, Gen):
            self._append(Node("gen", part.name or "gen"))
        elif isinstance(part, Select):
            self._append(Node("select", f"{part.name or 'select'}: {' | '.join(part.choices)}"))

    def _write(self, text: str) -> None:
        if self._open is not None:
            self._open.label += text
        else:
            self._append(Node("text", text))
            self._open = self._tip

    def _append(self, node: Node) -> None:
        node.parents = [] if self._tip is None else [self._tip]
        self._nodes.append(node)
        self._tip, self._open = node, None


class TraceForks:
    """Forks of a traced state."""

    def __init__(self, states: list[TraceState], parent: TraceState) -> None:
        self._states = states
        self._parent = parent

    def __getitem__(self, index: int) -> TraceState:
        return self._states[index]

    def __setitem__(self, index: int, state: TraceState) -> None:
        assert state is self._states[index]

    def __len__(self) -> int:
        return len(self._states)

    def __iter__(self) -> Iterator[TraceState]:
        return iter(self._states)

    def __iadd__(self, other: Any) -> TraceForks:
        for index, state in enumerate(self._states):
            part = other(index) if callable(other) and not isinstance(other, Expression) else other
            state += part[index] if isinstance(part, (list, tuple)) else part
        return self

    def join(self, mode: str = "gather_variable") -> None:
        tips = [state._tip for state in self._states if state._tip is not None]
        node = Node("join", mode, tips)
        self._parent._nodes.append(node)
        self._parent._tip, self._parent._open = node, None


def trace(body: Callable[..., Any], names: list[str], arguments: dict[str, Any]) -> Trace:
    """Follow a body. What it does with placeholders that no text can do ends the trace there, and is noted."""
    nodes: list[Node] = []
    given = {name: arguments.get(name, Placeholder(name)) for name in names}
    try:
        body(TraceState(nodes), **given)
    except (TypeError, AttributeError, ValueError, KeyError, IndexError) as error:
        return Trace(nodes, f"{type(error).__name__}: {error}")
    return Trace(nodes)
