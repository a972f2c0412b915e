"""`pattern`, `patternProperties` and `format` as nodes of the native schema."""

from __future__ import annotations

from functools import cache

from sapwood.constrained.regex import parse
from sapwood.constrained.regex.tree import Begin, Cat, End, Node, Repeat, Set, build
from sapwood.constrained.schema.formats import FORMATS
from sapwood.errors import GrammarError
from sapwood.kernels._grammar import Assert, RegexBuilder, SchemaBuilder


class Patterns:
    """The regular expressions of one schema, each built once."""

    def __init__(self, builder: SchemaBuilder) -> None:
        self._builder = builder
        self._sources: dict[tuple[str, bool], int] = {}
        self._nodes: dict[tuple[str, bool], int] = {}

    def source(self, pattern: object, where: str) -> int:
        """A pattern that is searched for, for nodes that take patterns."""
        tree = read(pattern, where)
        assert isinstance(pattern, str)
        return self._source(pattern, tree, search=True)

    def node(self, pattern: object, where: str) -> int:
        """A node that holds for texts in which the pattern is found."""
        tree = read(pattern, where)
        assert isinstance(pattern, str)
        key = (pattern, True)
        if key not in self._nodes:
            self._nodes[key] = self._counted(tree) or self._builder.pattern(self._source(pattern, tree, search=True))
        return self._nodes[key]

    def format_node(self, name: str) -> int | None:
        """A node that holds for texts of a format; None if the format is unknown."""
        pattern = FORMATS.get(name)
        if pattern is None:
            return None
        key = (pattern, False)
        if key not in self._nodes:
            source = self._source(pattern, _format_tree(pattern), search=False)
            self._nodes[key] = self._builder.pattern(source)
        return self._nodes[key]

    def _source(self, pattern: str, tree: Node, search: bool) -> int:
        key = (pattern, search)
        if key not in self._sources:
            regex = RegexBuilder()
            self._sources[key] = self._builder.pattern_source(regex, build(tree, regex), search)
        return self._sources[key]

    def _counted(self, tree: Node) -> int | None:
        """`^[...]{m,n}$` as a class and two lengths: lengths are counted, not spelled out in states."""
        if not (isinstance(tree, Cat) and len(tree.nodes) == 3):
            return None
        begin, repeat, end = tree.nodes
        if not (isinstance(begin, Begin) and isinstance(repeat, Repeat) and isinstance(end, End)):
            return None
        if not isinstance(repeat.node, Set) or (repeat.min <= 1 and repeat.max is None) or repeat.max == 1:
            return None
        every = Cat((begin, Repeat(repeat.node, 0, None), end))
        nodes = [self._builder.pattern(self._source(f"^{repeat.node.ranges}*$", every, search=True))]
        if repeat.min:
            nodes.append(self._builder.count(Assert.MinLength, repeat.min))
        if repeat.max is not None:
            nodes.append(self._builder.count(Assert.MaxLength, repeat.max))
        return self._builder.combine(Assert.All, nodes)


@cache
def _format_tree(pattern: str) -> Node:
    return parse(pattern, "ecma")


def read(pattern: object, where: str) -> Node:
    """Parse a pattern of ECMAScript's dialect, or, where it is none, of Python's."""
    if not isinstance(pattern, str):
        raise GrammarError(f"{where}: a pattern is a text", where)
    try:
        return parse(pattern, "ecma")
    except GrammarError as error:
        try:
            return parse(pattern, "python")
        except GrammarError:
            raise GrammarError(f"{where}: {error}", where) from None
