"""Log probabilities as the APIs lay them out, with each token's true bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sapwood.runtime.messages import Logprob

if TYPE_CHECKING:
    from sapwood.runtime.tokenizer import Tokenizer

FLOOR = -9999.0  # what OpenAI says for a probability of zero


class TokenNames:
    """What each token id is called: its bytes, or a special token's name."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._bytes = tokenizer.token_bytes
        self._special = {id: name for name, id in tokenizer.special.items()}

    def bytes_of(self, id: int) -> bytes:
        """The token's bytes; a special token's name as UTF-8."""
        known = self._bytes[id] if id < len(self._bytes) else b""
        return known or self._special.get(id, "").encode()

    def text_of(self, id: int) -> str:
        """The token as text; bytes that are no character alone become U+FFFD."""
        return self.bytes_of(id).decode("utf-8", "replace")


def chat_logprobs(entries: Sequence[Logprob], names: TokenNames) -> list[dict[str, Any]]:
    """The `content` list of chat completions: token, logprob, bytes, top_logprobs."""
    return [
        {
            **_named(entry.id, entry.logprob, names),
            "top_logprobs": [_named(id, logprob, names) for id, logprob in entry.top],
        }
        for entry in entries
    ]


def _named(id: int, logprob: float | None, names: TokenNames) -> dict[str, Any]:
    data = names.bytes_of(id)
    return {"token": data.decode("utf-8", "replace"), "logprob": _floored(logprob), "bytes": list(data)}


def _floored(logprob: float | None) -> float | None:
    return None if logprob is None else max(logprob, FLOOR)


def completion_logprobs(entries: Sequence[Logprob], names: TokenNames, offset: int, top: bool) -> dict[str, Any]:
    """The four parallel lists of text completions. `offset`: where the first token begins in the returned text."""
    tokens = [names.text_of(entry.id) for entry in entries]
    offsets = []
    for text in tokens:
        offsets.append(offset)
        offset += len(text)
    tops = [None if entry.logprob is None else _best(entry, names) for entry in entries]
    return {
        "tokens": tokens,
        "token_logprobs": [_floored(entry.logprob) for entry in entries],
        "top_logprobs": tops if top else None,
        "text_offset": offsets,
    }


def _best(entry: Logprob, names: TokenNames) -> dict[str, float | None]:
    best: dict[str, float | None] = {}
    for id, logprob in [*entry.top, (entry.id, entry.logprob)]:
        best.setdefault(names.text_of(id), _floored(logprob))
    return best
