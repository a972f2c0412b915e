"""A small vocabulary that everything about grammars can be tried on in milliseconds, and ways to ask a matcher."""

from __future__ import annotations

from typing import Any, Protocol

from sapwood.constrained import Grammar, Vocabulary


class Accepts(Protocol):
    """Whether a value's JSON (or a `text`) can be written under a schema."""

    def __call__(self, schema: Any, value: Any = None, *, text: str | None = None, **options: Any) -> bool: ...


class GreedyVocabulary:
    """Every byte, and some longer tokens; text is encoded by the longest token first. Token 0 ends the text."""

    LONGER = (
        '{"', '":', '": "', '": ', '",', '", "', '"}', '"},', "},", '["', '"]', ", ", "[]", "{}", "true", "false", "null", "10",
        "12", "00", "na", "name", "me", " a", "ab", "abc", "the ", "test", "testing", "yes", "yes please", "\\u", "\\u00",
        "\\n", '\\"', "  ", "\n  ", "é", "日本", "日", "x,y", 'a"', 'abc",', 'name"', 'name":', " 1", "-", "e+", "0.", ".5",
    )  # fmt: skip

    def __init__(self) -> None:
        self.token_bytes: list[bytes] = [b""] + [bytes([b]) for b in range(256)] + [t.encode() for t in self.LONGER]
        self.eos_ids = frozenset([0])
        self.vocab_size = len(self.token_bytes) + 5  # a mask may be wider than the tokens
        self.fingerprint = "greedy"
        self._ids = {token: id for id, token in enumerate(self.token_bytes) if token}
        self._longest = max(map(len, self._ids))

    def encode(self, text: str) -> list[int]:
        data, out, at = text.encode(), [], 0
        while at < len(data):
            size = next(n for n in range(self._longest, 0, -1) if data[at : at + n] in self._ids)
            out.append(self._ids[data[at : at + size]])
            at += size
        return out


def allowed(mask: Any) -> set[int]:
    """The ids in a packed mask."""
    return {32 * i + bit for i, word in enumerate(mask.tolist()) for bit in range(32) if word >> bit & 1}


def follows(grammar: Grammar, text: str, vocabulary: Vocabulary) -> bool:
    """Whether every token of a text is in the mask where it comes, and EOS at the end."""
    matcher = grammar.matcher()
    for id in [*vocabulary.encode(text), 0]:
        if not matcher.mask()[id // 32] >> (id % 32) & 1:
            return False
        matcher.advance(id)
    return True
