"""Repetition where the text repeats itself, the EAGLE head elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from operator import mul

from sapwood.kernels.plan import Batch, Output
from sapwood.runtime.speculative.drafter import Draft, Wish
from sapwood.runtime.speculative.eagle import EagleDrafter
from sapwood.runtime.speculative.ngram import NgramDrafter

TRUSTED = 0.8  # chance of a repeated token to come true from which on the head isn't asked
LEARNING = 0.2  # weight of the newest observation
FIRST = 0.4  # what is thought of repetition before anything is known


class MixedDrafter:
    """Implements `Drafter`. Each request's repetitions are watched also while the head's drafts are taken."""

    needs_texts = True
    knows_chances = True

    def __init__(self, ngram: NgramDrafter, eagle: EagleDrafter) -> None:
        self._ngram = ngram
        self._eagle = eagle
        self._trust: dict[str, float] = {}  # by request: chance that a token that repetition suggests comes true
        self._suggested: dict[str, list[int]] = {}  # by request: what repetition said last

    def start(self, rid: str, ids: Sequence[int], namespace: str = "") -> None:
        self._trust[rid] = FIRST
        self._ngram.start(rid, ids, namespace)

    def accept(self, rid: str, ids: Sequence[int]) -> None:
        for guess, token in zip(self._suggested.pop(rid, []), ids, strict=False):
            self._trust[rid] += LEARNING * ((guess == token) - self._trust[rid])
            if guess != token:
                break
        self._ngram.accept(rid, ids)
        self._eagle.accept(rid, ids)

    def observe(self, batch: Batch, output: Output) -> None:
        self._eagle.observe(batch, output)

    def propose(self, wishes: Sequence[Wish]) -> list[Draft]:
        drafts = self._ngram.propose(wishes)
        unsure: list[int] = []
        for number, (wish, draft) in enumerate(zip(wishes, drafts, strict=True)):
            self._suggested[wish.rid] = draft.ids
            trust = self._trust[wish.rid]
            drafts[number] = repeated = _worthwhile(draft.ids, trust, wish.least)
            if not repeated.ids or trust < TRUSTED:
                unsure.append(number)
        for number, guess in zip(unsure, self._eagle.propose([wishes[n] for n in unsure]), strict=True):
            if _expected(guess) > _expected(drafts[number]):
                drafts[number] = guess
        return drafts

    def finish(self, rid: str) -> None:
        self._trust.pop(rid, None)
        self._suggested.pop(rid, None)
        self._ngram.finish(rid)
        self._eagle.finish(rid)


def _worthwhile(ids: list[int], chance: float, least: float) -> Draft:
    """As much of a repetition as pays, if each token has this chance."""
    size = sum(1 for product in accumulate([chance] * len(ids), mul) if product >= least)
    return Draft(ids[:size], [chance] * size)


def _expected(draft: Draft) -> float:
    """Tokens that are expected to come true."""
    return float(sum(accumulate(draft.chances or [], mul)))
