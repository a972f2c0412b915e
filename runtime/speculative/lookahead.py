"""Drafts from the target's own guesses about tokens that it hasn't reached (lookahead decoding, arXiv 2402.02057).

What the target says after each drafted token is kept, also where the draft was wrong: shifted by what came true, it is the
next draft (Jacobi's iteration), and its n-grams are a pool that is looked up by the last token.

    draft      a  b  c            the target, after each of them
    says    a' b' c' d'           a = a': came true; b' is the next token; the next draft begins with c' d'
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from sapwood.kernels.plan import Batch, Output
from sapwood.runtime.speculative.drafter import Draft, Wish

WINDOW = 4  # tokens of a draft
POOL = 4096  # n-grams kept for each request


@dataclass(slots=True)
class _Text:
    last: int = 0
    first_slot: int = -1  # of the last token, whose row and those of the draft after it are watched
    said: list[int] = field(default_factory=list)  # by the target after the last token and after each drafted one
    guesses: list[int] = field(default_factory=list)
    pool: dict[int, tuple[int, ...]] = field(default_factory=dict)  # token -> what followed it in some guess, latest


class LookaheadDrafter:
    """Implements `Drafter`."""

    needs_texts = True
    knows_chances = False

    def __init__(self) -> None:
        self._texts: dict[str, _Text] = {}

    def start(self, rid: str, ids: Sequence[int], namespace: str = "") -> None:
        self._texts[rid] = text = _Text(last=ids[-1])
        text.guesses = list(ids[-WINDOW:])

    def observe(self, batch: Batch, output: Output) -> None:
        outs = {int(row): out for out, row in enumerate(batch.logit_rows)}
        for text in self._texts.values():
            rows = np.flatnonzero(batch.slots == text.first_slot).tolist() if text.first_slot >= 0 else []
            text.first_slot, text.said = -1, []
            if len(rows) != 1:
                continue
            row = rows[0]
            sequence = batch.sequences[row]
            while row in outs and batch.sequences[row] == sequence:
                text.said.append(int(output.logits[outs[row]].argmax()))
                row += 1

    def accept(self, rid: str, ids: Sequence[int]) -> None:
        text = self._texts[rid]
        said, text.said = text.said, []
        for start in range(len(said) - 1):
            text.pool[said[start]] = tuple(said[start + 1 : start + 1 + WINDOW])
        while len(text.pool) > POOL:
            del text.pool[next(iter(text.pool))]
        beyond = said[len(ids) :]
        text.guesses = beyond + [text.guesses[-1] if text.guesses else ids[-1]] * (WINDOW - len(beyond))
        text.last = ids[-1]

    def propose(self, wishes: Sequence[Wish]) -> list[Draft]:
        drafts = []
        for wish in wishes:
            text = self._texts[wish.rid]
            text.first_slot = int(wish.slots[-1])
            known = text.pool.get(text.last)
            drafts.append(Draft((list(known) if known else text.guesses)[: wish.most]))
        return drafts

    def finish(self, rid: str) -> None:
        self._texts.pop(rid, None)
