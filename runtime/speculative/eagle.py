"""Drafts from an EAGLE head: what a trained layer makes of the target's own features."""

from __future__ import annotations

from collections.abc import Sequence

from sapwood.kernels.cpu_eagle import DEEPEST, CpuEagle
from sapwood.kernels.plan import Batch, Output
from sapwood.runtime.speculative.drafter import Draft, Wish


class EagleDrafter:
    """Implements `Drafter`. All that it knows of texts lies in the tree's slots, so it is told of none."""

    needs_texts = False
    knows_chances = True

    def __init__(self, eagle: CpuEagle) -> None:
        self._eagle = eagle

    def start(self, rid: str, ids: Sequence[int], namespace: str = "") -> None:
        """Nothing to remember."""

    def accept(self, rid: str, ids: Sequence[int]) -> None:
        """Nothing to remember."""

    def finish(self, rid: str) -> None:
        """Nothing to forget."""

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
        )
        for number, found, likely in zip(able, ids.tolist(), chances.tolist(), strict=True):
            size = min(wishes[number].most, found.index(-1) if -1 in found else depth)
            drafts[number] = Draft(found[:size], likely[:size])
        return drafts
