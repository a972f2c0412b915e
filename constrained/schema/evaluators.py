"""What counts as evaluated, for unevaluatedProperties and unevaluatedItems.

A key or item is evaluated by the subschemas that apply in place and hold. Which keys they look at is known from the
schema; whether they hold is known once the value is written, so each evaluator carries its condition as a node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sapwood.constrained.schema.documents import NEWEST, Place
from sapwood.kernels._grammar import Evaluator

if TYPE_CHECKING:
    from sapwood.constrained.schema.lowering import Lowering, Scope

MAX_DEPTH = 64


def evaluators_of(lowering: Lowering, place: Place, scope: Scope, properties: bool) -> list[Evaluator]:
    """The evaluators beside the `unevaluated...` keyword at `place`."""
    walk = _Walk(lowering, properties)
    walk.visit(place, scope, [], own=True)
    return walk.out


class _Walk:
    def __init__(self, lowering: Lowering, properties: bool) -> None:
        self.lowering = lowering
        self.properties = properties
        self.out: list[Evaluator] = []
        self.depth = 0

    def add(
        self,
        conditions: list[int],
        keys: list[str] | None = None,
        patterns: list[int] | None = None,
        items: int = 0,
        all: bool = False,
        contains: int = -1,
    ) -> None:
        condition = self.lowering.all_of(conditions) if conditions else -1
        self.out.append(Evaluator(condition, keys or [], patterns or [], items, all, contains))

    def visit(self, place: Place, scope: Scope, conditions: list[int], own: bool = False) -> None:
        schema = place.schema
        if not isinstance(schema, dict) or self.depth > MAX_DEPTH:
            return
        if place.base in self.lowering.documents.dynamic and place.base not in scope:
            scope = (*scope, place.base)
        self.depth += 1
        (self.keys if self.properties else self.items)(place, scope, conditions, own)
        self.applicators(place, scope, conditions)
        self.depth -= 1

    def keys(self, place: Place, scope: Scope, conditions: list[int], own: bool) -> None:
        schema, lowering = place.schema, self.lowering
        if "additionalProperties" in schema or ("unevaluatedProperties" in schema and not own):
            return self.add(conditions, all=True)
        keys = list(lowering.named(place, "properties"))
        named = lowering.named(place, "patternProperties")
        patterns = [lowering.patterns.source(pattern, str(place.pointer)) for pattern in named]
        if keys or patterns:
            self.add(conditions, keys, patterns)

    def items(self, place: Place, scope: Scope, conditions: list[int], own: bool) -> None:
        schema = place.schema
        tuple_form = isinstance(schema.get("items"), list)
        rest = "additionalItems" if tuple_form else "items"
        if rest in schema or ("unevaluatedItems" in schema and not own):
            return self.add(conditions, all=True)
        first = schema["items"] if tuple_form else schema.get("prefixItems")
        if isinstance(first, list):
            self.add(conditions, items=len(first))
        if "contains" in schema and (place.draft or NEWEST) >= 2020:
            self.add(conditions, contains=self.lowering.child(place, scope, "contains"))

    def applicators(self, place: Place, scope: Scope, conditions: list[int]) -> None:
        schema, lowering = place.schema, self.lowering

        def visit(tokens: tuple[str | int, ...], more: list[int]) -> None:
            self.visit(lowering.documents.child(place, *tokens), scope, conditions + more)

        for keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
            if keyword in schema:
                self.visit(*lowering.resolve(place, scope, keyword), conditions)
        for keyword in ("allOf", "anyOf", "oneOf"):
            ways = schema.get(keyword)
            for index in range(len(ways) if isinstance(ways, list) else 0):
                more = [] if keyword == "allOf" else [lowering.child(place, scope, keyword, index)]
                visit((keyword, index), more)
        if "if" in schema:
            asked = lowering.child(place, scope, "if")
            visit(("if",), [asked])
            if "then" in schema:
                visit(("then",), [asked])
            if "else" in schema:
                visit(("else",), [lowering.negation(asked)])
        for key, needs in lowering.named(place, "dependentSchemas").items():
            if isinstance(needs, dict):
                visit(("dependentSchemas", key), [lowering.builder.has(key, False)])
