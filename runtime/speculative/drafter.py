"""The one interface between the scheduler and whatever guesses tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from sapwood.kernels.plan import Batch, Int32s, Output


@dataclass(frozen=True, slots=True)
class Wish:
    """A request for which a draft may pay."""

    rid: str
    last_id: int  # its last token: chosen, but not computed yet
    slots: Int32s  # of all its positions, the last one included
    most: int  # tokens
    least: float  # chance that all tokens of a draft come true below which a further one doesn't pay


@dataclass(frozen=True, slots=True)
class Draft:
    """Tokens that may follow, and the chance of each to come true if those before it do, where the drafter knows it."""

    ids: list[int]
    chances: list[float] | None = None


class Drafter(Protocol):
    """Guesses how requests go on. Owns its state, keyed by request id; knows nothing of scheduling or sampling."""

    @property
    def needs_texts(self) -> bool:
        """Whether it must be told of prompts and accepted tokens."""
        ...

    @property
    def knows_chances(self) -> bool:
        """Whether its drafts end by themselves where a further token wouldn't pay."""
        ...

    def start(self, rid: str, ids: Sequence[int], namespace: str = "") -> None:
        """A request begins with this prompt. What one namespace wrote is never proposed in another."""
        ...

    def accept(self, rid: str, ids: Sequence[int]) -> None:
        """These tokens were added to the request's text."""
        ...

    def observe(self, batch: Batch, output: Output) -> None:
        """The target computed this batch, drafts included."""
        ...

    def propose(self, wishes: Sequence[Wish]) -> list[Draft]:
        """A draft for each; empty where nothing is worth checking."""
        ...

    def finish(self, rid: str) -> None:
        """The request ended; forget what is its own."""
        ...
