"""Drafts from a small model with the same vocabulary. It reads every batch that the target computes, into the same slots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from sapwood.kernels import open_plan
from sapwood.kernels.decoder import Decoder
from sapwood.kernels.plan import Batch, Int32s, Output
from sapwood.runtime.speculative.drafter import Draft, Wish

DEEPEST = 8  # tokens of a draft
MOST_REQUESTS = 64  # in one batch of drafts


class ModelDrafter:
    """Implements `Drafter`. Its keys and values lie where the target's lie, so whoever shares a prefix shares them too."""

    needs_texts = False
    knows_chances = True

    def __init__(self, decoder: Decoder, num_slots: int, max_rows: int, threads: int | None = None) -> None:
        self._num_slots = num_slots  # beyond them lie those of tokens that are only thought of
        self._plan = open_plan(
            decoder,
            num_slots=num_slots + MOST_REQUESTS * DEEPEST,
            max_rows=max(max_rows, MOST_REQUESTS),
            threads=threads,
        )

    def start(self, rid: str, ids: Sequence[int], namespace: str = "") -> None:
        """Nothing to remember."""

    def accept(self, rid: str, ids: Sequence[int]) -> None:
        """Nothing to remember."""

    def finish(self, rid: str) -> None:
        """Nothing to forget."""

    def observe(self, batch: Batch, output: Output) -> None:
        self._plan.run(replace(batch, logit_rows=np.empty(0, np.int32), want_hidden=False))

    def propose(self, wishes: Sequence[Wish]) -> list[Draft]:
        drafts: list[Draft] = []
        for start in range(0, len(wishes), MOST_REQUESTS):
            drafts += self._propose(wishes[start : start + MOST_REQUESTS])
        return drafts

    def _propose(self, wishes: Sequence[Wish]) -> list[Draft]:
        """One row a request and token, all requests in one batch."""
        drafts = [Draft([], []) for _ in wishes]
        tables = [wish.slots for wish in wishes]
        going, chance = list(range(len(wishes))), [1.0] * len(wishes)
        for depth in range(DEEPEST):
            if not going:
                break
            tokens = [drafts[n].ids[-1] if depth else wishes[n].last_id for n in going]
            if depth:
                for n in going:
                    tables[n] = np.append(tables[n], np.int32(self._num_slots + n * DEEPEST + depth - 1))
            best, likely = self._next(tokens, [tables[n] for n in going])
            still = []
            for n, token, share in zip(going, best, likely, strict=True):
                chance[n] *= share
                if chance[n] >= wishes[n].least and depth < wishes[n].most:
                    drafts[n].ids.append(token)
                    chances = drafts[n].chances
                    assert chances is not None
                    chances.append(share)
                    still.append(n)
            going = still
        return drafts

    def _next(self, tokens: Sequence[int], tables: Sequence[Int32s]) -> tuple[list[int], list[float]]:
        """The likeliest token after each text and its chance; `tokens` are the last ones, in the tables' last slots."""
        count = len(tokens)
        batch = Batch(
            ids=np.array(tokens, np.int32),
            positions=np.array([len(table) - 1 for table in tables], np.int32),
            slots=np.array([table[-1] for table in tables], np.int32),
            sequences=np.arange(count, dtype=np.int32),
            tables=[np.ascontiguousarray(table) for table in tables],
            logit_rows=np.arange(count, dtype=np.int32),
        )
        logits = self._plan.run(batch).logits
        best = logits.argmax(axis=1)
        highest = logits[np.arange(count), best]
        return best.tolist(), (1 / np.exp(logits - highest[:, None]).sum(axis=1)).tolist()
