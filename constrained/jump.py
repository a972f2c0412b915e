"""Forced bytes as canonical tokens: those that the tokenizer would have produced for the text so far.

    out so far      ... "na | me          forced: ": "
    encoded again   ... "na | me | ":| "            the ids that are out must come out again, or there is no jump
    held back                       ^^ " may grow:  some longer token, e.g. ' "A', may begin there

Nothing that is out ever changes, so the KV never rolls back, and ids == encode(text) holds after a jump.
"""

from __future__ import annotations

from collections.abc import Sequence

from sapwood.constrained.vocabulary import Vocabulary
from sapwood.kernels import _grammar

LOOK_BACK = 8  # tokens that are encoded again together with the forced bytes


def canonical_jump(native: _grammar.Matcher, vocabulary: Vocabulary, ids: Sequence[int], forced: bytes) -> list[int]:
    """The forced tokens that may be appended to `ids` now; may be empty."""
    start, before = _context(native, vocabulary, ids)
    text = _whole_characters(before + forced)
    if len(text) <= len(before):
        return []
    encoded = vocabulary.encode(text.decode())
    known = list(ids[start:])
    tokens = vocabulary.token_bytes
    if encoded[: len(known)] != known or b"".join(tokens[id] for id in encoded) != text:
        return []
    safe = _safe_bytes(native, before, text)
    if safe < len(text):  # what stands before the unsafe rest, were it alone, must be cut the same way
        head = _whole_characters(text[:safe])
        encoded = _common_prefix(encoded, vocabulary.encode(head.decode()))
        size = 0
        for count, id in enumerate(encoded):
            size += len(tokens[id])
            if size > safe:
                encoded = encoded[:count]
                break
    return encoded[len(known) :]


def _context(native: _grammar.Matcher, vocabulary: Vocabulary, ids: Sequence[int]) -> tuple[int, bytes]:
    """The last tokens, from one that begins with a whole character on."""
    start = max(0, len(ids) - LOOK_BACK)
    while start > 0 and (vocabulary.token_bytes[ids[start]][:1] or b"\x80")[0] & 0xC0 == 0x80:
        start -= 1
    return start, b"".join(vocabulary.token_bytes[id] for id in ids[start:])


def _whole_characters(text: bytes) -> bytes:
    """Without the incomplete character at the end, if there is one."""
    for back in range(1, min(4, len(text)) + 1):
        byte = text[-back]
        if byte & 0xC0 != 0x80:
            size = 1 if byte < 0x80 else 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return text if back >= size else text[:-back]
    return text


def _safe_bytes(native: _grammar.Matcher, before: bytes, text: bytes) -> int:
    """How many bytes of `text` no allowed token can reach over the end of `text` from."""
    for begin in range(max(len(before), len(text) - 40), len(text)):
        if native.extends(text[len(before) : begin], text[begin:]):
            return begin
    return len(text)


def _common_prefix(a: list[int], b: list[int]) -> list[int]:
    size = 0
    while size < min(len(a), len(b)) and a[size] == b[size]:
        size += 1
    return a[:size]
