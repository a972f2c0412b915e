"""Types as grammars: what a `gen(schema=...)` must write, and how its text becomes a value."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

# Forms of gen(dtype=...). Digits are bounded, so that a model that never stops still ends.
_FORMS = {
    int: r"-?(0|[1-9][0-9]{0,17})",
    float: r"-?(0|[1-9][0-9]{0,14})(\.[0-9]{1,12})?",
    bool: r"(True|False)",
    str: r'"([^"\\\x00-\x1f]|\\["\\/bfnrt])*"',
}


def form_of(dtype: type | None) -> str:
    """The regex of a plain type's text."""
    if dtype not in _FORMS:
        raise ValueError(f"dtype must be int, float, bool or str, not {dtype!r}; schema= takes any type")
    return _FORMS[dtype]


def typed(schema: Any) -> tuple[str, Callable[[str], Any]]:
    """JSON Schema of a type, and the function that reads its values from JSON text.

    A type's objects are closed: they hold the fields it names and no others. A schema given as a dict is taken as it is.
    """
    if isinstance(schema, dict):
        return json.dumps(schema), json.loads
    from sapwood.runtime.server.schemas import closed

    if hasattr(schema, "model_json_schema"):  # a pydantic model
        return json.dumps(closed(schema.model_json_schema())), schema.model_validate_json
    import msgspec

    described = msgspec.json.schema(schema)
    named = str(described.get("$ref", "")).removeprefix("#/$defs/")
    if (
        json.dumps(described).count(f'"#/$defs/{named}"') == 1
    ):  # a type by name that nothing else refers to: the type itself
        described = {**described["$defs"][named], "$defs": {k: v for k, v in described["$defs"].items() if k != named}}
    return json.dumps(closed(described)), msgspec.json.Decoder(schema).decode
