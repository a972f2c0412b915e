"""Sapwood: a runtime for programs over language models. Public names, resolved at first use.

This file knows nothing of how anything works: it only says where each name lives, so that
`import sapwood` stays light (no torch, no numpy, no backend).
"""

from __future__ import annotations

from importlib import import_module

__version__ = "0.1.0"

_HOME: dict[str, str] = {}

__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> object:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'sapwood' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(__all__)
