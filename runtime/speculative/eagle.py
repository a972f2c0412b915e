"""Drafts from an EAGLE head: what a trained layer makes of the target's own features."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sapwood.kernels.cpu_eagle import AT_FACE_VALUE, BINS, DEEPEST, CpuEagle
from sapwood.kernels.plan import Batch, Output
from sapwood.runtime.speculative.drafter import Draft, Wish

LEARNING = 0.02  # weight of the newest observation
FIRST_WORTH = 0.6  # power of a chance that it is taken to be worth at first: what is likeliest comes true more often than its chance


class EagleDrafter:
    """Implements `Drafter`. What it knows of texts lies in the tree's slots; what its chances are worth, it learns."""

    needs_texts = True
    knows_chances = True

    def __init__(self, eagle: CpuEagle) -> None:
        self._eagle = eagle
        self._worth = (AT_FACE_VALUE**FIRST_WORTH).astype(np.float32)
        self._guessed: dict[str, tuple[list[int], list[float]]] = {}  # by request: the last draft and its chances

    def start(self, rid: str, ids: Sequence[int], namespace: str = "") -> None:
        """Nothing to remember."""

    def accept(self, rid: str, ids: Sequence[int]) -> None:
        """Learn what the chances of the last draft were worth, as far as its tokens' forerunners came true."""
        guesses, chances = self._guessed.pop(rid, ([], []))
        for guess, chance, token in zip(guesses, chances, ids, strict=False):
            bin = min(int(chance * BINS), BINS - 1)
            self._worth[bin] += LEARNING * ((guess == token) - self._worth[bin])
            if guess != token:
                break

    def finish(self, rid: str) -> None:
        self._guessed.pop(rid, None)

    def observe(self, batch: Batch, output: Output) -> None:
        assert output.features is not None, "the target's plan captures no features"
        self._eagle.observe(batch, output.features)

    def propose(self, wishes: Sequence[Wish]) -> list[Draft]:
        able = [number for number, wish in enumerate(wishes) if len(wish.slots) >= 2]
        drafts = [Draft([]) for _ in wishes]
        if not able:
            return drafts
        depth = min(DEEPEST, max(wishes[number].most for number in able))
        ids, chances = self._eagle.draft(
            [wishes[number].slots for number in able],
            [wishes[number].last_id for number in able],
            depth,
            min(wishes[number].least for number in able),
            self._worth,
        )
        worth = self._worth[np.minimum((chances * BINS).astype(np.int32), BINS - 1)].tolist()
        for number, found, shares, values in zip(able, ids.tolist(), chances.tolist(), worth, strict=True):
            size = min(wishes[number].most, found.index(-1) if -1 in found else depth)
            self._guessed[wishes[number].rid] = found[:size], shares[:size]
            drafts[number] = Draft(found[:size], values[:size])
        return drafts
