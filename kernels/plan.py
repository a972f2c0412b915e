"""The one interface between the engine and what computes: a batch goes in, logits come out.

A backend turns a `Decoder` into a `Plan`, which owns the KV memory. This file knows nothing of requests or of the tree:
a slot is a number, and who owns it is `radix/`'s business.

    rows of a batch           positions of a sequence        slots of the KV memory
    ┌ ids       [rows]        tables[s][p] ───────────────►  row `slot` of K and V, in every layer
    │ positions [rows]        (row r reads the slots of
    │ slots     [rows]  ───►   tables[sequences[r]][0 .. positions[r]],
    └ sequences [rows]         written in the same run or earlier)

All keys and values of a batch are stored before attention reads them, layer by layer, so a row may depend on any other
row of the same batch: that is how requests that start together compute a shared prefix once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Int32s = NDArray[np.int32]


@dataclass(slots=True)
class DraftTail:
    """The speculative end of a sequence: entries of its table from `start` on form a tree, not a line.

    A row r of such a sequence reads table[:start] and the entries start + j whose bit j is set in ancestors[r] (its own
    bit included). Visible entries, in order, stand at positions start, start + 1, ... A tail has at most 64 entries.
    """

    start: int
    ancestors: NDArray[np.uint64]  # [rows of this sequence, in the batch's order]


@dataclass(slots=True)
class Batch:
    """One step's work. Arrays are C-contiguous. A tree's prefix shared by two sequences has equal table entries."""

    ids: Int32s  # [rows]
    positions: Int32s  # [rows] absolute, from 0
    slots: Int32s  # [rows] where K and V go; -1: they are there already, don't store
    sequences: Int32s  # [rows] index into tables
    tables: Sequence[Int32s]  # per sequence: the slot of each position, at least as long as its last row needs
    logit_rows: Int32s  # [num_out] rows whose logits are wanted
    drafts: dict[int, DraftTail] = field(default_factory=dict)  # by sequence
    want_hidden: bool = False


@dataclass(slots=True)
class Output:
    """What a batch gave. A backend may bring the logits over only when they are looked at."""

    logits: NDArray[np.float32]  # [num_out, vocab]; valid until the next run
    hidden: NDArray[np.float32] | None = None  # [num_out, hidden] after the final norm, if wanted
    features: NDArray[np.float32] | None = None  # [rows, len(captures) * hidden], if the plan captures


class KVMemory(Protocol):
    """The keys and values of all layers, one opaque record a slot. For tiers, snapshots and transfer."""

    @property
    def num_slots(self) -> int: ...
    @property
    def bytes_per_slot(self) -> int: ...
    @property
    def layout(self) -> str:
        """Names dtype and shape; records move only between memories of equal layout."""
        ...

    def read(self, slots: Int32s) -> NDArray[np.uint8]:
        """A copy, [len(slots), bytes_per_slot]."""
        ...

    def write(self, slots: Int32s, records: NDArray[np.uint8]) -> None: ...


class Plan(Protocol):
    """A compiled decoder. Runs one batch at a time; holds the GIL for none of the heavy work."""

    @property
    def kv(self) -> KVMemory: ...
    @property
    def max_rows(self) -> int:
        """Most rows that one batch may have."""
        ...

    def run(self, batch: Batch) -> Output: ...

    def close(self) -> None: ...
