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
    """JSON Schema of a type, and the function that reads its values from JSON text."""
    if hasattr(schema, "model_json_schema"):  # a pydantic model
        return json.dumps(schema.model_json_schema()), schema.model_validate_json
    if isinstance(schema, dict):
        return json.dumps(schema), json.loads
    import msgspec

    decoder = msgspec.json.Decoder(schema)
    return json.dumps(msgspec.json.schema(schema)), decoder.decode
