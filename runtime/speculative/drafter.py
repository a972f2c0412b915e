"""The one interface between the scheduler and whatever guesses tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Drafter(Protocol):
    """Guesses how requests go on. Owns its state, keyed by request id; knows nothing of scheduling or sampling."""

    def start(self, rid: str, ids: Sequence[int], namespace: str = "") -> None:
        """A request begins with this prompt. What one namespace wrote is never proposed in another."""
        ...

    def accept(self, rid: str, ids: Sequence[int]) -> None:
        """These tokens were added to the request's text."""
        ...

    def propose(self, rid: str, most: int) -> list[int]:
        """Up to `most` tokens that may follow; empty when there is nothing worth checking."""
        ...

    def finish(self, rid: str) -> None:
        """The request ended; forget what is its own."""
        ...
