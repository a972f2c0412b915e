"""Where the work of a batch's attention is cut, on the host: see `attention.py` for what the cuts are.

A pair is a row and a range of SPLIT positions that it sees something of. Pairs of one group read the same slots: rows of
one sequence, or of several whose tables hold the same slot at the range's end, and so the same slots before it. Groups
are cut into tiles. All of it is a sort of the pairs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sapwood.kernels.plan import DraftTail

Int32s = NDArray[np.int32]

SPLIT = 512  # positions of one partial softmax; fixed, so that bits don't depend on the batch
TILE_ROWS = 16  # rows of a tile; with the heads of a group they are the M of the products


@dataclass(slots=True)
class HostWork:
    """`attention.AttentionWork` before it is sent, but for the tables. All int32."""

    tile_rows: Int32s  # [tiles, TILE_ROWS] row of the batch, -1: none
    tile_table: Int32s  # [tiles] where the tile's table starts in the joined tables
    tile_begin: Int32s  # [tiles] first position of the range
    row_len: Int32s  # [rows] positions that a row may see: below this one
    row_first: Int32s  # [rows] ... and from this one on (sliding window)
    tail_start: Int32s  # [rows] from here on, only entries in `ancestors` are seen
    ancestors: Int32s  # [rows, 2] the halves of an int64
    num_splits: int


def cut(
    positions: Int32s,
    sequences: Int32s,
    tables: Sequence[Int32s],
    drafts: Mapping[int, DraftTail],
    window: int | None,
) -> HostWork:
    """Lay out a batch (see `kernels.plan.Batch`) for layers with this window."""
    lengths = (positions + 1).astype(np.int32)
    tail_start = np.full(len(positions), np.iinfo(np.int32).max, np.int32)
    ancestors = np.zeros(len(positions), np.uint64)
    shared_until = np.array([len(table) for table in tables])  # up to where a table is a path of the tree
    for sequence, tail in drafts.items():
        rows = np.flatnonzero(sequences == sequence)
        tail_start[rows], ancestors[rows] = tail.start, tail.ancestors
        seen = [int(mask).bit_length() for mask in tail.ancestors]
        lengths[rows] = np.asarray([tail.start + n for n in seen], np.int32)
        shared_until[sequence] = tail.start
    # Positions that a row's window has left behind; a draft row's own position decides, not its place in the table.
    first = np.maximum(positions + 1 - window, 0).astype(np.int32) if window else np.zeros_like(lengths)
    tile_rows, tile_table, tile_begin = _tiles(lengths, first, sequences, tables, shared_until)
    halves = ancestors.view(np.int32).reshape(-1, 2)
    splits = -(-int(lengths.max()) // SPLIT)
    return HostWork(tile_rows, tile_table, tile_begin, lengths, first, tail_start, halves, splits)


def _tiles(
    lengths: Int32s, first: Int32s, sequences: Int32s, tables: Sequence[Int32s], shared_until: NDArray[np.int64]
) -> tuple[Int32s, Int32s, Int32s]:
    first_split = first // SPLIT
    num_splits = -(-lengths // SPLIT) - first_split
    row = np.repeat(np.arange(len(lengths)), num_splits)
    begun = np.cumsum(num_splits) - num_splits
    split = np.arange(len(row)) - np.repeat(begun - first_split, num_splits)
    sequence = sequences[row]
    starts = np.cumsum([0, *(len(table) for table in tables)])[:-1]  # of each table in the joined ones
    ends = (split + 1) * SPLIT
    whole = ends <= shared_until[sequence]
    last_slot = np.empty(len(row), np.int64)
    last_slot[~whole] = -1 - sequence[~whole]
    for number in np.unique(sequence[whole]).tolist():
        here = whole & (sequence == number)
        last_slot[here] = tables[number][ends[here] - 1]
    order = np.lexsort((last_slot, split))
    row, split, last_slot, sequence = row[order], split[order], last_slot[order], sequence[order]
    new_group = np.ones(len(row), bool)
    new_group[1:] = (split[1:] != split[:-1]) | (last_slot[1:] != last_slot[:-1])
    at = np.arange(len(row))
    rank = at - np.maximum.accumulate(np.where(new_group, at, 0))  # in its group
    new_tile = rank % TILE_ROWS == 0
    tile = np.cumsum(new_tile) - 1
    tile_rows = np.full((int(new_tile.sum()), TILE_ROWS), -1, np.int32)
    tile_rows[tile, rank % TILE_ROWS] = row
    return tile_rows, starts[sequence[new_tile]].astype(np.int32), (split[new_tile] * SPLIT).astype(np.int32)
