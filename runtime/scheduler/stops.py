"""Stop strings, matched on bytes as tokens come: across tokens, inside of tokens, in the middle of characters."""

from __future__ import annotations

from collections.abc import Sequence


class StopStrings:
    """Follows one text. Tokens whose bytes may be the beginning of a stop string are to be held back."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = [(stop, stop.encode()) for stop in stops]
        self._prefixes = {coded[:size] for _, coded in self._stops for size in range(1, len(coded))}
        self._longest = max((len(coded) for _, coded in self._stops), default=0)
        self._held = b""
        self._sizes: list[int] = []  # bytes of each held token
        self.trim = 0  # after a match: bytes from its first one to the end of the text

    @property
    def num_held(self) -> int:
        """How many of the last tokens can't be shown yet."""
        return len(self._sizes)

    def push(self, token: bytes) -> str | None:
        """Take the next token's bytes; returns the stop string that they complete, if any."""
        text = self._held + token
        found = [(at, -len(coded), stop) for stop, coded in self._stops if (at := text.find(coded)) >= 0]
        if found:
            at, _, stop = min(found)
            self.trim = len(text) - at
            return stop
        size = min(len(text), self._longest - 1)
        while size > 0 and text[-size:] not in self._prefixes:
            size -= 1
        self._held = text[len(text) - size :]
        self._sizes.append(len(token))
        while self._sizes and sum(self._sizes[1:]) >= size:
            self._sizes.pop(0)
        return None
