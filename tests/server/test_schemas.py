"""Closing a schema only ever forbids properties that it doesn't name."""

from __future__ import annotations

from typing import Any

import pytest

from sapwood.runtime.server.schemas import closed

POINT: dict[str, Any] = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}


def test_objects_are_closed_wherever_they_stand() -> None:
    shut = {**POINT, "additionalProperties": False}
    assert closed(POINT) == shut
    nested = {"type": "array", "items": {"anyOf": [POINT, {"type": "null"}]}, "$defs": {"p": POINT}}
    assert closed(nested) == {"type": "array", "items": {"anyOf": [shut, {"type": "null"}]}, "$defs": {"p": shut}}


@pytest.mark.parametrize(
    "schema",
    [
        True,
        {"type": "object"},
        {**POINT, "additionalProperties": {"type": "string"}},
        {**POINT, "patternProperties": {"^y": {}}},
        {**POINT, "required": ["x", "y"]},
        {"allOf": [POINT, {"properties": {"y": {}}}]},
        {**POINT, "anyOf": [{"properties": {"y": {}}}, {"required": ["x"]}]},
        {**POINT, "minProperties": 2},
        {"properties": {"p": {"$ref": "#/$defs/q", "properties": {}}}, "$defs": {"q": POINT}},
        {"enum": [{"properties": {"x": 1}}]},
        {"properties": "nonsense"},
    ],
)
def test_what_could_break_is_left_alone(schema: Any) -> None:
    assert closed(schema) == schema
