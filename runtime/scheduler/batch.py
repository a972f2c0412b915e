"""Composes one step's batch from requests' paths.

    path of A   ■■■■■■□□□□□□      ■ computed   □ not yet
    path of B   ■■■■■■□□□□▫▫        the first four □ are the same slots as A's
    batch       A's □□□□□□, then B's ▫▫: what is in the batch already is not added again

Nobody owns a prefix that is being computed: each step looks afresh at what is missing. So if whoever came first is aborted or
preempted, the next one in line simply finds those positions missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from sapwood.kernels.plan import Batch, Int32s
from sapwood.runtime.scheduler.request import RequestState

MAX_LOGITS = 128  # rows with logits of one request in one step: each takes vocab_size floats


SCORED_ROWS = 64  # of a request's prompt, most rows whose logits are looked at in one step


@dataclass(slots=True)
class Wanted:
    """The logits that a request gets from this step: of the positions from `start` on, numbers `outs` of the output."""

    request: RequestState
    start: int
    outs: list[int]


@dataclass(slots=True)
class Step:
    """A batch, what it computes and for whom."""

    batch: Batch
    stored: Int32s  # slots that hold keys and values after the run
    wanted: list[Wanted] = field(default_factory=list)


class BatchComposer:
    """Fills the arrays of a batch. `num_slots` and `max_rows` are the plan's."""

    def __init__(self, num_slots: int, max_rows: int) -> None:
        self.max_rows = max_rows
        self._ids = np.empty(max_rows, np.int32)
        self._positions = np.empty(max_rows, np.int32)
        self._slots = np.empty(max_rows, np.int32)
        self._sequences = np.empty(max_rows, np.int32)
        self._num_rows = 0
        self._num_step = 0
        # By slot: the step that computes it last, and its row there.
        self._step_of: NDArray[np.int64] = np.zeros(num_slots, np.int64)
        self._row_of = np.empty(num_slots, np.int32)
        self._tables: list[Int32s] = []
        self._outs: dict[int, int] = {}  # row -> number of its logits
        self._any_unstored = False

    def compose(
        self, decoding: Iterable[RequestState], reading: Sequence[RequestState], chunk_rows: int
    ) -> Step | None:
        """A step for as many requests as fit; None if there is nothing to compute.

        First come those that decode, then up to `chunk_rows` rows of prompts. The first of `reading` is sure of half of
        these, so it comes to its end; the others share the rest in their order. A single row is given beyond that.
        """
        self._num_step += 1
        self._num_rows = 0
        self._tables = []
        self._outs = {}
        self._any_unstored = False
        wanted: list[Wanted] = []
        for request in decoding:
            self._add(request, self.max_rows, wanted)
        end = min(self._num_rows + chunk_rows, self.max_rows)
        if reading:
            kept = min(reading[0].num_missing, (end - self._num_rows + 1) // 2)
            for request in reading[1:]:
                self._add(request, end - kept - self._num_rows, wanted)
            self._add(reading[0], end - self._num_rows, wanted)
        count = self._num_rows
        if not count:
            return None
        slots = self._slots[:count]
        batch = Batch(
            ids=self._ids[:count],
            positions=self._positions[:count],
            slots=slots,
            sequences=self._sequences[:count],
            tables=self._tables,
            logit_rows=np.fromiter(self._outs, np.int32, len(self._outs)),
            want_hidden=any(found.request.message.want_hidden for found in wanted),
        )
        return Step(batch, slots[slots >= 0] if self._any_unstored else slots, wanted)

    def _add(self, request: RequestState, budget: int, wanted: list[Wanted]) -> None:
        """Add the rows that a request lacks, and to `wanted` what it gets from this step."""
        path = request.path
        assert path is not None
        num_computed = path.num_computed
        stop = request.end_of_rows
        start = min(num_computed, request.next_logit)
        if stop - start == 1:
            if not self._add_one(request, path.slots, start, num_computed):
                return
        else:
            stop = self._add_chunk(request, path.slots, start, stop, num_computed, budget)
        first, last = max(start, request.next_logit), min(stop, request.end_of_logits)
        if first >= last:
            return
        outs = self._outs
        if last - first == 1:
            row = int(self._row_of[path.slots[first]])
            wanted.append(Wanted(request, first, [outs.setdefault(row, len(outs))]))
            return
        rows = self._row_of[path.slots[first:last]].tolist()
        wanted.append(Wanted(request, first, [outs.setdefault(row, len(outs)) for row in rows]))

    def _add_one(self, request: RequestState, table: Int32s, position: int, num_computed: int) -> bool:
        """The row at `position`, unless the batch has it; False if there is no room."""
        slot = int(table[position])
        if self._step_of[slot] == self._num_step:
            return True
        row = self._num_rows
        if row >= self.max_rows:
            return False
        self._step_of[slot] = self._num_step
        self._row_of[slot] = row
        self._ids[row] = request.ids[position]
        self._positions[row] = position
        if position < num_computed:
            slot = -1
            self._any_unstored = True
        self._slots[row] = slot
        self._sequences[row] = len(self._tables)
        self._tables.append(table)
        self._num_rows = row + 1
        if position < request.prompt_len:
            request.num_own_rows += 1
        return True

    def _add_chunk(
        self, request: RequestState, table: Int32s, start: int, stop: int, num_computed: int, budget: int
    ) -> int:
        """The rows of positions [start, stop) that the batch lacks, as far as there is room; returns where it ends."""
        stop = min(stop, max(request.next_logit, start) + MAX_LOGITS)
        missing = np.flatnonzero(self._step_of[table[start:stop]] != self._num_step) + start
        room = max(0, min(budget, self.max_rows - self._num_rows))
        if len(missing) > room:
            stop = int(missing[room])
            missing = missing[:room]
        if not len(missing):
            return stop
        begin, end = self._num_rows, self._num_rows + len(missing)
        slots = table[missing]
        self._step_of[slots] = self._num_step
        self._row_of[slots] = np.arange(begin, end)
        self._ids[begin:end] = np.array((request.ids + request.draft)[start:stop], np.int32)[missing - start]
        self._positions[begin:end] = missing
        kept = missing < num_computed
        if kept.any():
            slots[kept] = -1
            self._any_unstored = True
        self._slots[begin:end] = slots
        self._sequences[begin:end] = len(self._tables)
        self._tables.append(table)
        self._num_rows = end
        request.num_own_rows += int(np.count_nonzero(missing < request.prompt_len))
        return stop
