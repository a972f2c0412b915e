"""Drafts from repetition: what followed the last time these tokens stood here, in this request or in any other.

Every text is indexed by its n-grams. The longest n-gram that ends the request's text and was seen before decides; its
latest occurrence in the request itself is preferred to one in another request of the same namespace. The index is
bounded: when it is full, the texts of the oldest finished requests are forgotten.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from sapwood.kernels.plan import Batch, Output
from sapwood.runtime.speculative.drafter import Draft, Wish

LONGEST = 6  # an n-gram longer than this says hardly more
SHORTEST = 2  # a shorter one says too little to pay for checking it


@dataclass(slots=True)
class _Text:
    namespace: str
    ids: list[int] = field(default_factory=list)
    last_seen: dict[tuple[int, ...], int] = field(
        default_factory=dict
    )  # n-gram -> where its latest continuation starts

    def append(self, ids: Sequence[int]) -> None:
        """Index what these ids complete: the n-gram before each of them now has a continuation."""
        for token in ids:
            end = len(self.ids)
            for n in range(SHORTEST, min(LONGEST, end) + 1):
                self.last_seen[tuple(self.ids[end - n :])] = end
            self.ids.append(token)


class NgramDrafter:
    """Implements `Drafter`. `capacity`: most tokens of finished requests that are kept for the sake of later ones."""

    needs_texts = True
    knows_chances = False

    def __init__(self, capacity: int = 200_000) -> None:
        self._capacity = capacity
        self._running: dict[str, _Text] = {}
        self._finished: OrderedDict[str, _Text] = OrderedDict()
        self._num_finished_ids = 0
        # (namespace, n-gram) -> (text, where its continuation starts), over the texts of finished requests
        self._shared: dict[tuple[str, tuple[int, ...]], tuple[_Text, int]] = {}

    def start(self, rid: str, ids: Sequence[int], namespace: str = "") -> None:
        self._running[rid] = text = _Text(namespace)
        text.append(ids)

    def accept(self, rid: str, ids: Sequence[int]) -> None:
        self._running[rid].append(ids)

    def observe(self, batch: Batch, output: Output) -> None:
        """Repetition is all it looks at."""

    def propose(self, wishes: Sequence[Wish]) -> list[Draft]:
        return [Draft(self._repetition(wish.rid, wish.most)) for wish in wishes]

    def _repetition(self, rid: str, most: int) -> list[int]:
        text = self._running[rid]
        end = len(text.ids)
        for n in range(min(LONGEST, end), SHORTEST - 1, -1):
            gram = tuple(text.ids[end - n :])
            at = text.last_seen.get(gram)
            if at is not None:
                return _continuation(text.ids, at, most)
            elsewhere = self._shared.get((text.namespace, gram))
            if elsewhere is not None:
                other, at = elsewhere
                return other.ids[at : at + most]
        return []

    def finish(self, rid: str) -> None:
        text = self._running.pop(rid, None)
        if text is None:
            return
        self._finished[rid] = text
        self._num_finished_ids += len(text.ids)
        for gram, at in text.last_seen.items():
            if len(gram) >= SHORTEST + 1:
                self._shared[text.namespace, gram] = (text, at)
        text.last_seen = {}
        while self._num_finished_ids > self._capacity:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        _, text = self._finished.popitem(last=False)
        self._num_finished_ids -= len(text.ids)
        for end in range(len(text.ids)):
            for n in range(SHORTEST + 1, min(LONGEST, end) + 1):
                key = (text.namespace, tuple(text.ids[end - n : end]))
                if self._shared.get(key, (None, 0))[0] is text:
                    del self._shared[key]


def _continuation(ids: list[int], at: int, most: int) -> list[int]:
    """`most` tokens from `at` on; where the text ends, the repetition is taken to go on."""
    period = len(ids) - at
    return [ids[at + i % period] for i in range(most)]
