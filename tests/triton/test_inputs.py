"""How a batch is cut into tiles and sent: every pair once, and equal slots in a tile."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from sapwood.kernels.cuda_inputs import Room, fields_of, inputs_in, largest_shapes, send
from sapwood.kernels.plan import Batch, DraftTail
from sapwood.kernels.triton.attention_plan import SPLIT, TILE_ROWS, cut

MOST = 4 * SPLIT  # positions


def random_batch(seed: int, num_sequences: int) -> Batch:
    """Sequences that share beginnings of random length, up to three rows of each, a draft tree at times."""
    rng = np.random.default_rng(seed)
    slots = iter(rng.permutation(num_sequences * MOST).astype(np.int32))
    tables: list[np.ndarray] = []
    rows, drafts = list[tuple[int, int]](), dict[int, DraftTail]()
    for number in range(num_sequences):
        parent = tables[rng.integers(number)] if number else np.empty(0, np.int32)
        shared = int(rng.integers(len(parent) + 1))
        own = [next(slots) for _ in range(int(rng.integers(3, MOST - max(shared, 3))))] if shared < MOST - 6 else []
        tables.append(np.array([*parent[:shared], *own], np.int32))
        length = len(tables[-1])
        if own and rng.random() < 0.3:
            drafts[number] = DraftTail(length - 3, np.asarray([0b1, 0b11, 0b101], np.uint64))
            rows += [(number, length - 3), (number, length - 2), (number, length - 2)]
        else:
            rows += [(number, int(p)) for p in rng.integers(0, length, int(rng.integers(0, 4)))]
    rows = rows or [(0, 0)]
    sequences, positions = (np.array(column, np.int32) for column in zip(*rows, strict=True))
    numbers = np.arange(len(rows), dtype=np.int32)
    return Batch(numbers, positions, numbers, sequences, tables, numbers, drafts)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32), st.integers(1, 6), st.sampled_from([None, 5, 700]))
def test_each_range_that_a_row_sees_is_in_one_tile_over_its_own_slots(
    seed: int, num_sequences: int, window: int | None
) -> None:
    batch = random_batch(seed, num_sequences)
    work = cut(batch.positions, batch.sequences, batch.tables, batch.drafts, window)
    joined = np.concatenate(batch.tables)
    found = set()
    for members, table, begin in zip(work.tile_rows, work.tile_table, work.tile_begin, strict=True):
        for row in members[members >= 0].tolist():
            assert (row, int(begin)) not in found
            found.add((row, int(begin)))
            seen = slice(int(begin), min(int(begin) + SPLIT, int(work.row_len[row])))
            own = batch.tables[batch.sequences[row]][seen]
            assert np.array_equal(joined[int(table) :][seen], own)
    expected = {
        (row, begin)
        for row in range(len(batch.ids))
        for begin in range(int(work.row_first[row]) // SPLIT * SPLIT, int(work.row_len[row]), SPLIT)
    }
    assert found == expected


def test_rows_on_the_same_slots_fill_tiles() -> None:
    shared = np.arange(SPLIT, dtype=np.int32)
    tables = [np.append(shared, SPLIT + i).astype(np.int32) for i in range(2 * TILE_ROWS + 1)]
    rows = np.arange(len(tables), dtype=np.int32)
    work = cut(np.full_like(rows, SPLIT), rows, tables, {}, None)
    assert (work.tile_begin == 0).sum() == 3 and (work.tile_begin == SPLIT).sum() == len(tables)


@pytest.mark.parametrize("windows", [[None], [37, None]])
def test_room_that_is_filled_again_holds_what_is_sent_alone(windows: list[int | None], device: str) -> None:
    room = Room(largest_shapes(24, MOST, windows), device)
    for seed in range(6):
        batch = random_batch(seed, 5)
        fields, num_splits = fields_of(batch, windows)
        assert room.fill(fields)
        alone, kept = send(batch, windows, device), inputs_in(room, windows, num_splits)
        assert torch.equal(alone.ids, torch.from_numpy(batch.ids).to(device))
        n = len(batch.ids)
        assert torch.equal(kept.slots[:n], alone.slots) and (kept.slots[n:] == -1).all()
        for window in windows:
            ours, theirs = kept.work[window], alone.work[window]
            for name in ("row_len", "row_first", "tail_start", "ancestors", "tile_rows", "tile_table", "tile_begin"):
                sent = getattr(theirs, name)
                assert torch.equal(getattr(ours, name)[: len(sent)], sent), name
            assert (ours.tile_rows[len(theirs.tile_rows) :] == -1).all() and (ours.row_len[n:] == 0).all()
            assert torch.equal(ours.tables[: len(theirs.tables)], theirs.tables)


def test_room_refuses_what_does_not_fit(device: str) -> None:
    batch = random_batch(1, 4)
    fields, _ = fields_of(batch, [None])
    room = Room(largest_shapes(len(batch.ids) - 1, MOST, [None]), device)
    assert not room.fill(fields)
    assert (inputs_in(room, [None], 4).slots == -1).all()
