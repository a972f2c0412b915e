"""The tree that owns all KV memory: prefix cache, slot allocator and home of drafts in one. Knows no model and no request."""

from sapwood.radix.drawing import draw
from sapwood.radix.path import Path
from sapwood.radix.tree import RadixTree

__all__ = ["Path", "RadixTree", "draw"]
