"""The OpenAPI description of bodies that msgspec reads: FastAPI sees only a raw request, so we tell it."""

from __future__ import annotations

from typing import Any

import msgspec


def body(kind: Any) -> dict[str, Any]:
    """`openapi_extra` for a route whose JSON body is `kind`, with its definitions inlined beside it."""
    (schema,), components = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    return {
        "requestBody": {"required": True, "content": {"application/json": {"schema": _inlined(schema, components)}}}
    }


def _inlined(node: Any, components: dict[str, Any]) -> Any:
    if isinstance(node, dict):
        if "$ref" in node:
            return _inlined(components[node["$ref"].rsplit("/", 1)[1]], components)
        return {key: _inlined(value, components) for key, value in node.items()}
    if isinstance(node, list):
        return [_inlined(item, components) for item in node]
    return node
