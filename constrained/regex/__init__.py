"""Regular expressions of two dialects, as trees over code points."""

from __future__ import annotations

from sapwood.constrained.regex.parser import Dialect, parse

__all__ = ["Dialect", "parse"]
