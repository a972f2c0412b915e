"""Counts of what a tree did and holds, in tokens unless said otherwise."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class SpaceStats:
    """One namespace."""

    held: int  # slots
    locked: int  # of these, slots that a path holds
    quota: int | None
    requested: int
    matched: int
    evicted: int


@dataclass(slots=True)
class TreeStats:
    """Since the tree was made."""

    requested: int = 0  # asked of match
    matched: int = 0  # of these, found with their keys and values computed
    extended: int = 0  # slots taken
    evicted: int = 0
    num_nodes: int = 0
    num_paths: int = 0
    depth: int = 0  # nodes of the longest walk from a root
    num_free: int = 0
    num_evictable: int = 0
    spaces: dict[str, SpaceStats] = field(default_factory=dict)  # by namespace

    @property
    def hit_rate(self) -> float:
        return self.matched / self.requested if self.requested else 0.0
