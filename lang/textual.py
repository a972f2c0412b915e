"""For backends that take text and have no tokenizer here: one id a byte, and turns in marks that can be read back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_BYTES = 256
_OPEN, _CLOSE, _END = "\ue000", "\ue001", "\ue002"  # private use: role in _OPEN.._CLOSE, then its content up to _END


class ByteTokenizer:
    """Text as bytes. Satisfies `backends.TextTokenizer`."""

    token_bytes: Sequence[bytes] = [bytes([byte]) for byte in range(_BYTES)]
    special: Mapping[str, int] = {}
    bos_id: int | None = None
    add_bos = False

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, ids: Sequence[int]) -> str:
        return bytes(ids).decode("utf-8", "replace")

    def render(self, messages: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool = True) -> str:
        """Turns in marks; `turns_of` reads them back."""
        written = "".join(f"{_OPEN}{message['role']}{_CLOSE}{message['content']}{_END}" for message in messages)
        return written + (f"{_OPEN}assistant{_CLOSE}" if add_generation_prompt else "")


def turns_of(text: str) -> list[dict[str, str]]:
    """The conversation that a text holds; a last turn that isn't closed is still being written. Empty if it holds none."""
    turns = []
    for part in text.split(_OPEN)[1:]:
        role, _, content = part.partition(_CLOSE)
        turns.append({"role": role, "content": content.split(_END)[0]})
    return turns


def plain(text: str) -> str:
    """The text as people read it: turns with their roles in words."""
    return text.replace(_OPEN, "").replace(_CLOSE, ": ").replace(_END, "\n")
