"""JSON Schema, drafts 4 to 2020-12, as nodes of the native schema."""

from __future__ import annotations

from sapwood.constrained.schema.lowering import lower_schema

__all__ = ["lower_schema"]
