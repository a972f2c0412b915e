"""`enum` and `const`: values as nodes of the native schema."""

from __future__ import annotations

import json
import math
from typing import Any

from sapwood.errors import GrammarError
from sapwood.kernels._grammar import Assert, SchemaBuilder

OBJECT, ARRAY, TEXT, NUMBER, TRUE, FALSE, NULL = (1 << i for i in range(7))
MAX_DEPTH = 200


def number_text(value: int | float) -> str:
    """A number as JSON."""
    return json.dumps(value)


def enum_node(builder: SchemaBuilder, values: list[Any], compact: bool, where: str, depth: int = 0) -> int:
    """A node that holds for exactly these values, as JSON Schema compares them (1 and 1.0 are one number)."""
    if depth > MAX_DEPTH:
        raise GrammarError(f"{where}: the value is nested more than {MAX_DEPTH} deep", where)
    texts = [value for value in values if isinstance(value, str)]
    numbers = [value for value in values if isinstance(value, (int, float)) and not isinstance(value, bool)]
    kinds = sum({True: TRUE, False: FALSE}[v] for v in {v for v in values if isinstance(v, bool)})
    kinds |= NULL if any(value is None for value in values) else 0
    nodes = []
    if texts:
        nodes.append(builder.combine(Assert.All, [builder.type(TEXT), builder.in_texts(texts)]))
    if numbers:
        spelled = [s for number in numbers for s in spellings(number, compact, where)]
        nodes.append(builder.combine(Assert.All, [builder.type(NUMBER), builder.in_numbers(spelled)]))
    if kinds:
        nodes.append(builder.type(kinds))
    for value in values:
        if isinstance(value, dict):
            nodes.append(_object(builder, value, compact, where, depth))
        elif isinstance(value, list):
            nodes.append(_array(builder, value, compact, where, depth))
    return nodes[0] if len(nodes) == 1 else builder.combine(Assert.Any, nodes)


def spellings(number: int | float, compact: bool, where: str) -> list[str]:
    """How a listed number may be written: as Python writes it, and, in the flexible layout, with or without `.0`."""
    if isinstance(number, float) and not math.isfinite(number):
        raise GrammarError(f"{where}: {number} is no JSON number", where)
    out = [number_text(number)]
    if not compact and isinstance(number, int):
        out.append(f"{number}.0")
    if isinstance(number, float) and number.is_integer() and abs(number) < 1e15:
        out.append(str(int(number)))
    return out


def _object(builder: SchemaBuilder, value: dict[str, Any], compact: bool, where: str, depth: int) -> int:
    children = [enum_node(builder, [child], compact, where, depth + 1) for child in value.values()]
    none = builder.combine(Assert.No, [])
    nodes = [builder.type(OBJECT), builder.properties(list(value), [], children, none)]
    return builder.combine(Assert.All, nodes + [builder.has(key, True) for key in value])


def _array(builder: SchemaBuilder, value: list[Any], compact: bool, where: str, depth: int) -> int:
    children = [enum_node(builder, [child], compact, where, depth + 1) for child in value]
    none = builder.combine(Assert.No, [])
    count = builder.count(Assert.MinItems, len(value))
    return builder.combine(Assert.All, [builder.type(ARRAY), builder.items(children, none), count])
