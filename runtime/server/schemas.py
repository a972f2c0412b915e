"""Closes objects of a JSON Schema where it leaves open whether they may have more properties than it names; and moves one.

Small models fill open objects with properties that nobody asked for, until their tokens run out. What is written under
the closed schema is valid for the given one, so nothing is weakened. Where schemas combine, closing one part could
forbid what another asks for: such schemas are left as they are.
"""

from __future__ import annotations

from typing import Any

COMBINING = frozenset({"allOf", "not", "if", "dependentSchemas", "unevaluatedProperties", "$dynamicRef"})
BESIDE_PROPERTIES = frozenset({"anyOf", "oneOf", "$ref"})
ABOUT_OTHERS = frozenset({"additionalProperties", "patternProperties", "propertyNames", "minProperties"})
ONE = ("items", "additionalProperties", "contains")  # keywords that hold a schema,
LISTS = ("anyOf", "oneOf", "prefixItems")  # a list of them,
MAPS = ("properties", "$defs", "definitions", "patternProperties")  # or schemas by name


def closed(schema: Any) -> Any:
    """The schema with `additionalProperties: false` wherever that keeps it satisfiable."""
    try:
        return schema if _combines(schema) else _closed(schema)
    except (AttributeError, TypeError, RecursionError):  # malformed: the grammar's compiler says where
        return schema


def _parts(schema: dict[str, Any]) -> list[Any]:
    parts = [schema[name] for name in ONE if name in schema]
    parts += [part for name in LISTS for part in schema.get(name) or ()]
    return parts + [part for name in MAPS for part in (schema.get(name) or {}).values()]


def _combines(schema: Any) -> bool:
    if not isinstance(schema, dict):
        return False
    if COMBINING & schema.keys() or ("properties" in schema and BESIDE_PROPERTIES & schema.keys()):
        return True
    return any(map(_combines, _parts(schema)))


def _closed(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    made = dict(schema)
    for name in ONE:
        if name in made:
            made[name] = _closed(made[name])
    for name in LISTS:
        if name in made:
            made[name] = [_closed(part) for part in made[name]]
    for name in MAPS:
        if name in made:
            made[name] = {key: _closed(part) for key, part in made[name].items()}
    named = made.get("properties")
    if named and not ABOUT_OTHERS & made.keys() and set(made.get("required") or ()) <= set(named):
        made["additionalProperties"] = False
    return made


def moved(schema: Any, name: str) -> Any:
    """A schema whose own references still hold when it stands under `$defs/name` of another."""
    if isinstance(schema, list):
        return [moved(part, name) for part in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: f"#/$defs/{name}{value[1:]}"
        if key == "$ref" and isinstance(value, str) and value.startswith("#")
        else moved(value, name)
        for key, value in schema.items()
    }
