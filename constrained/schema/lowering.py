"""From a JSON Schema to nodes of the native schema, keyword by keyword.

Every schema becomes one node, all of its keywords; references become edges, so that recursion costs nothing. What
can't be guaranteed is an error that names the keyword and its JSON pointer; unknown keywords and formats are
annotations and are ignored, as the specification says.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from sapwood.constrained.schema.documents import NEWEST, Documents, Place, Pointer
from sapwood.constrained.schema.evaluators import evaluators_of
from sapwood.constrained.schema.patterns import Patterns
from sapwood.constrained.schema.values import enum_node, number_text
from sapwood.errors import GrammarError
from sapwood.kernels._grammar import Assert, SchemaBuilder, Stop

OBJECT, ARRAY, TEXT, NUMBER, TRUE, FALSE, NULL = (1 << i for i in range(7))
KINDS = {"object": OBJECT, "array": ARRAY, "string": TEXT, "number": NUMBER, "boolean": TRUE | FALSE, "null": NULL}
ANY_KIND = 127
MOST = 1 << 30  # a length or count beyond this is no limit

Scope = tuple[str, ...]  # bases of the documents with dynamic anchors that references came through, outermost first


def lower_schema(schema: Any, builder: SchemaBuilder, compact: bool, deadline: float, stop: Stop) -> int:
    """Add a schema to the builder; returns its root node. `deadline` is by the monotonic clock."""
    return Lowering(schema, builder, compact).run(deadline, stop)


class Lowering:
    """One schema on its way into the builder."""

    def __init__(self, schema: Any, builder: SchemaBuilder, compact: bool) -> None:
        self.builder = builder
        self.documents = Documents(schema)
        self.patterns = Patterns(builder)
        self.compact = compact
        self.yes = builder.combine(Assert.Yes, [])
        self.no = builder.combine(Assert.No, [])
        self._nodes: dict[tuple[int, Scope], int] = {}
        self._todo: list[tuple[int, Place, Scope]] = []
        self._pointers: dict[int, Pointer] = {}

    def run(self, deadline: float, stop: Stop) -> int:
        root = self.node(self.documents.root, ())
        while self._todo:
            if stop.is_set():
                raise GrammarError("the compile was cancelled")
            if time.monotonic() > deadline:
                raise GrammarError("the schema takes longer to compile than the time limit")
            node, place, scope = self._todo.pop()
            self.builder.bind(node, self._lower(place, scope))
        cycle = self.builder.find_cycle()
        if cycle >= 0:
            where = str(self._pointers.get(cycle, Pointer()))
            raise GrammarError(f"{where or '/'}: the schema applies to itself without end ($ref in a circle)", where)
        return root

    def node(self, place: Place, scope: Scope) -> int:
        """The node of a schema; it is filled in later."""
        schema = place.schema
        if schema is True or schema == {}:
            return self.yes
        if schema is False:
            return self.no
        if place.base in self.documents.dynamic and place.base not in scope:
            scope = (*scope, place.base)
        key = (id(schema), scope)
        found = self._nodes.get(key)
        if found is None:
            if not isinstance(schema, dict):
                raise self.error(place, None, f"a schema is an object or a boolean, not {schema!r:.40}")
            found = self._nodes[key] = self.builder.reserve()
            self._pointers[found] = place.pointer
            self._todo.append((found, place, scope))
        return found

    def child(self, place: Place, scope: Scope, *tokens: str | int) -> int:
        return self.node(self.documents.child(place, *tokens), scope)

    def all_of(self, nodes: list[int]) -> int:
        return nodes[0] if len(nodes) == 1 else self.builder.combine(Assert.All, nodes)

    def any_of(self, nodes: list[int]) -> int:
        return self.builder.combine(Assert.Any, nodes)

    def negation(self, node: int) -> int:
        return self.builder.combine(Assert.Not, [node])

    def error(self, place: Place, keyword: str | None, message: str) -> GrammarError:
        where = str(place.pointer / keyword if keyword else place.pointer)
        return GrammarError(f"{where or '/'}: {message}", where)

    def _lower(self, place: Place, scope: Scope) -> int:
        schema = place.schema
        draft = place.draft
        if "$ref" in schema and draft is not None and draft < 2019:
            return self.target(place, scope, "$ref")  # its siblings are ignored
        nodes = []
        for keyword, value in schema.items():
            handler = HANDLERS.get(keyword)
            if handler is None or (draft or NEWEST) < SINCE.get(keyword, 0):
                continue
            node = handler(self, place, scope, keyword, value)
            if node is not None:
                nodes.append(node)
        return self.all_of(nodes)

    # References

    def target(self, place: Place, scope: Scope, keyword: str) -> int:
        return self.node(*self.resolve(place, scope, keyword))

    def resolve(self, place: Place, scope: Scope, keyword: str) -> tuple[Place, Scope]:
        """What a reference leads to, and the dynamic scope there."""
        reference = place.schema[keyword]
        if not isinstance(reference, str):
            raise self.error(place, keyword, "a reference is a text")
        target = self.documents.resolve(place, reference, keyword)
        if keyword == "$ref":
            return target, scope
        name = "" if keyword == "$recursiveRef" else reference.partition("#")[2]
        dynamic = self.documents.dynamic
        if dynamic.get(target.base, {}).get(name) is target:
            if target.base not in scope:
                scope = (*scope, target.base)
            target = next(dynamic[base][name] for base in scope if name in dynamic[base])
        return target, scope

    # Keywords

    def reference(self, place: Place, scope: Scope, keyword: str, value: Any) -> int:
        return self.target(place, scope, keyword)

    def type(self, place: Place, scope: Scope, keyword: str, value: Any) -> int:
        kinds, integer, others = 0, False, []
        for name in value if isinstance(value, list) else [value]:
            if isinstance(name, dict):  # draft 3
                others.append(self.node(Place(name, place.base, place.draft, place.pointer / keyword), scope))
            elif name == "integer":
                integer = True
            elif name == "any":
                kinds = ANY_KIND
            elif name in KINDS:
                kinds |= KINDS[name]
            else:
                raise self.error(place, keyword, f"unknown type {name!r}")
        node = self.builder.type(kinds)
        if integer and not kinds & NUMBER:
            spelled = place.draft is not None and place.draft <= 4
            whole = self.all_of([self.builder.type(NUMBER), self.builder.integer(spelled)])
            node = self.any_of([node, whole]) if kinds else whole
        return self.any_of([node, *others]) if others else node

    def enum(self, place: Place, scope: Scope, keyword: str, value: Any) -> int:
        if not isinstance(value, list):
            raise self.error(place, keyword, "`enum` is a list")
        return enum_node(self.builder, value, self.compact, str(place.pointer / keyword))

    def const(self, place: Place, scope: Scope, keyword: str, value: Any) -> int:
        return enum_node(self.builder, [value], self.compact, str(place.pointer / keyword))

    def limit(self, place: Place, scope: Scope, keyword: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or value < 0 or value != int(value):
            raise self.error(place, keyword, f"`{keyword}` is a number from 0 on, not {value!r}")
        return self.builder.count(LIMITS[keyword], min(int(value), MOST))

    def bound(self, place: Place, scope: Scope, keyword: str, value: Any) -> int | None:
        exclusive = keyword.startswith("exclusive")
        if isinstance(value, bool) and exclusive:
            return None  # draft 4: read with minimum or maximum
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self.error(place, keyword, f"`{keyword}` is a number")
        if not exclusive:
            exclusive = place.schema.get("exclusive" + keyword.capitalize()) is True
        return self.builder.number(BOUNDS[keyword, exclusive], number_text(value))

    def multiple(self, place: Place, scope: Scope, keyword: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0:
            raise self.error(place, keyword, f"`{keyword}` is a number above 0")
        text = number_text(value)
        if sum(c.isdigit() for c in text.partition("e")[0].strip("0.")) > 17:
            raise self.error(place, keyword, f"`{keyword}` has too many digits to be guaranteed")
        return self.builder.number(Assert.MultipleOf, text)

    def pattern(self, place: Place, scope: Scope, keyword: str, value: Any) -> int:
        return self.patterns.node(value, str(place.pointer / keyword))

    def format(self, place: Place, scope: Scope, keyword: str, value: Any) -> int | None:
        return self.patterns.format_node(value) if isinstance(value, str) else None

    def required(self, place: Place, scope: Scope, keyword: str, value: Any) -> int | None:
        if isinstance(value, bool):
            return None  # draft 3: read with the properties
        if not isinstance(value, list) or not all(isinstance(key, str) for key in value):
            raise self.error(place, keyword, "`required` is a list of names")
        return self.all_of([self.builder.has(key, True) for key in value]) if value else None

    def properties(self, place: Place, scope: Scope, keyword: str, value: Any) -> int | None:
        """properties, patternProperties and additionalProperties together, at the first of them."""
        schema = place.schema
        if next(key for key in schema if key in PROPERTY_KEYWORDS) != keyword:
            return None
        keys, patterns, nodes, rest = [], [], [], -1
        for key in self.named(place, "properties"):
            keys.append(key)
            nodes.append(self.child(place, scope, "properties", key))
        for pattern in self.named(place, "patternProperties"):
            patterns.append(self.patterns.source(pattern, str(place.pointer / "patternProperties" / pattern)))
            nodes.append(self.child(place, scope, "patternProperties", pattern))
        if "additionalProperties" in schema:
            rest = self.child(place, scope, "additionalProperties")
        node = self.builder.properties(keys, patterns, nodes, -1 if rest == self.yes else rest)
        flagged = [k for k in keys if isinstance(s := schema["properties"][k], dict) and s.get("required") is True]
        if flagged and place.draft == 3:
            return self.all_of([node, *(self.builder.has(key, True) for key in flagged)])
        return node

    def named(self, place: Place, keyword: str) -> dict[str, Any]:
        value = place.schema.get(keyword, {})
        if not isinstance(value, dict):
            raise self.error(place, keyword, f"`{keyword}` is an object of schemas")
        return value

    def names(self, place: Place, scope: Scope, keyword: str, value: Any) -> int:
        return self.builder.names(self.child(place, scope, keyword))

    def dependencies(self, place: Place, scope: Scope, keyword: str, value: Any) -> int | None:
        nodes = []
        for key, needs in self.named(place, keyword).items():
            if isinstance(needs, str):
                needs = [needs]  # draft 3
            if isinstance(needs, list):
                then = self.all_of([self.builder.has(other, False) for other in needs]) if needs else self.yes
            else:
                then = self.child(place, scope, keyword, key)
            nodes.append(self.any_of([self.negation(self.builder.has(key, False)), then]))
        return self.all_of(nodes) if nodes else None

    def items(self, place: Place, scope: Scope, keyword: str, value: Any) -> int | None:
        """prefixItems, items and additionalItems together, at the first of them."""
        schema = place.schema
        if next(key for key in schema if key in ITEM_KEYWORDS) != keyword:
            return None
        rest_keyword = "items"
        first_keyword = "prefixItems" if isinstance(schema.get("prefixItems"), list) else None
        if isinstance(schema.get("items"), list):
            first_keyword, rest_keyword = "items", "additionalItems"
        first = []
        if first_keyword:
            first = [self.child(place, scope, first_keyword, i) for i in range(len(schema[first_keyword]))]
        rest = self.child(place, scope, rest_keyword) if rest_keyword in schema else self.yes
        return self.builder.items(first, -1 if rest == self.yes else rest)

    def contains(self, place: Place, scope: Scope, keyword: str, value: Any) -> int:
        counts = {"minContains": 1, "maxContains": -1}
        for name in counts:
            count = place.schema.get(name)
            if count is not None and (place.draft or NEWEST) >= 2019:
                counts[name] = int(count)
        return self.builder.contains(self.child(place, scope, keyword), counts["minContains"], counts["maxContains"])

    def unique(self, place: Place, scope: Scope, keyword: str, value: Any) -> int | None:
        return self.builder.count(Assert.Unique, 0) if value is True else None

    def unevaluated(self, place: Place, scope: Scope, keyword: str, value: Any) -> int:
        properties = keyword == "unevaluatedProperties"
        evaluators = evaluators_of(self, place, scope, properties)
        return self.builder.unevaluated(properties, self.child(place, scope, keyword), evaluators)

    def combination(self, place: Place, scope: Scope, keyword: str, value: Any) -> int:
        if not isinstance(value, list) or not value:
            raise self.error(place, keyword, f"`{keyword}` is a list of schemas")
        return self.builder.combine(
            COMBINATIONS[keyword], [self.child(place, scope, keyword, i) for i in range(len(value))]
        )

    def not_(self, place: Place, scope: Scope, keyword: str, value: Any) -> int:
        return self.negation(self.child(place, scope, keyword))

    def condition(self, place: Place, scope: Scope, keyword: str, value: Any) -> int:
        asked = self.child(place, scope, "if")
        then = self.child(place, scope, "then") if "then" in place.schema else self.yes
        otherwise = self.child(place, scope, "else") if "else" in place.schema else self.yes
        # The third part follows from the others; it tells sooner that neither way is left.
        return self.all_of(
            [
                self.any_of([self.negation(asked), then]),
                self.any_of([asked, otherwise]),
                self.any_of([then, otherwise]),
            ]
        )


Handler = Callable[[Lowering, Place, Scope, str, Any], "int | None"]

PROPERTY_KEYWORDS = ("properties", "patternProperties", "additionalProperties")
ITEM_KEYWORDS = ("prefixItems", "items", "additionalItems")
COMBINATIONS = {"allOf": Assert.All, "anyOf": Assert.Any, "oneOf": Assert.One}
LIMITS = {
    "minLength": Assert.MinLength, "maxLength": Assert.MaxLength, "minItems": Assert.MinItems,
    "maxItems": Assert.MaxItems, "minProperties": Assert.MinProperties, "maxProperties": Assert.MaxProperties,
}  # fmt: skip
BOUNDS = {
    ("minimum", False): Assert.Minimum, ("minimum", True): Assert.AboveMinimum,
    ("maximum", False): Assert.Maximum, ("maximum", True): Assert.BelowMaximum,
    ("exclusiveMinimum", True): Assert.AboveMinimum, ("exclusiveMaximum", True): Assert.BelowMaximum,
}  # fmt: skip
HANDLERS: dict[str, Handler] = {
    "$ref": Lowering.reference, "$dynamicRef": Lowering.reference, "$recursiveRef": Lowering.reference,
    "type": Lowering.type, "enum": Lowering.enum, "const": Lowering.const,
    **dict.fromkeys(LIMITS, Lowering.limit),
    **{keyword: Lowering.bound for keyword, _ in BOUNDS},
    "multipleOf": Lowering.multiple, "divisibleBy": Lowering.multiple,
    "pattern": Lowering.pattern, "format": Lowering.format,
    "required": Lowering.required, **dict.fromkeys(PROPERTY_KEYWORDS, Lowering.properties),
    "propertyNames": Lowering.names,
    **dict.fromkeys(("dependencies", "dependentRequired", "dependentSchemas"), Lowering.dependencies),
    **dict.fromkeys(ITEM_KEYWORDS, Lowering.items), "contains": Lowering.contains, "uniqueItems": Lowering.unique,
    "unevaluatedProperties": Lowering.unevaluated, "unevaluatedItems": Lowering.unevaluated,
    **dict.fromkeys(COMBINATIONS, Lowering.combination), "not": Lowering.not_, "if": Lowering.condition,
}  # fmt: skip
# The draft that introduced a keyword; older schemas use the name for something else, if at all.
SINCE = {
    "const": 6, "contains": 6, "propertyNames": 6, "if": 7, "$recursiveRef": 2019, "dependentRequired": 2019,
    "dependentSchemas": 2019, "unevaluatedProperties": 2019, "unevaluatedItems": 2019, "$dynamicRef": 2020,
}  # fmt: skip
