"""Forced bytes as canonical tokens: those that the tokenizer would have produced for the text so far.

    out so far      ... "na | me          forced: ": "
    encoded again   ... "na | me | ":| "            what is out must be cut as without it, or there is no jump
    held back                       ^^ " may grow:  some longer token, e.g. ' "A', may begin there

Nothing that is out ever changes, so the KV never rolls back, and if ids == encode(text) held before a jump, it does after.
Text that the model itself cut in another way stays as it is; jumps go on behind it.

A model that cuts forced text in a way of its own would end all jumps: after `",` | `"` the tokenizer's `","` can't come
any more. So where whitespace and order are fixed, masks leave such tokens out (`detours`), jumping or not: those that the
tokenizer would not use, whichever of the few possible bytes comes next.
"""

from __future__ import annotations

from collections.abc import Sequence

from sapwood.constrained.vocabulary import Vocabulary
from sapwood.kernels import _grammar

LOOK_BACK = 8  # tokens that are encoded again together with the forced bytes
MAX_GROWTH = 40  # bytes: no token is longer, or it would not be worth waiting for
LONG_WORD = 24  # bytes
MAX_REMEMBERED = 100_000
BEGINS = '"[{-0a./\\$('  # what may follow punctuation, and be cut together with it


def canonical_jump(
    native: _grammar.Matcher, vocabulary: Vocabulary, ids: Sequence[int], forced: bytes, straight: bool
) -> list[int]:
    """The forced tokens that may be appended to `ids`, the `recent` ones, now; may be empty.

    `straight`: masks are without detours, so that a longer token can begin only where a token of the jump begins.
    """
    before = b"".join(vocabulary.token_bytes[id] for id in ids)
    text = _whole_characters(before + forced)
    if len(text) <= len(before):
        return []
    encoded = vocabulary.encode(text.decode())
    known = list(ids)
    tokens = vocabulary.token_bytes
    if encoded[: len(known)] != known:  # the model may have cut its own text otherwise: is that text done with?
        known = vocabulary.encode(before.decode()) if _is_whole(before) else known
    if encoded[: len(known)] != known or b"".join(tokens[id] for id in encoded) != text:
        return []
    begin = len(before)
    in_word = _num_letters(text[-1:]) > 0  # which may be cut in another way once it is known to its end
    for count, id in enumerate(encoded[len(known) :]):
        end = begin + len(tokens[id])
        for at in range(max(begin, len(text) - MAX_GROWTH), begin + 1 if straight and not in_word else end):
            if native.extends(text[len(before) : at], text[at:]):
                return encoded[len(known) : len(known) + count]
        begin = end
    return encoded[len(known) :]


class Detours:
    """Which tokens cut what is forced after them in another way than the tokenizer does. Remembers what it asked it."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._known: dict[tuple[int, bytes], bool] = {}

    def find(self, native: _grammar.Matcher) -> list[int]:
        """Tokens that may come now, but that a longer one would replace whichever bytes follow."""
        out = []
        for ids, ways in native.committed():
            if not all(_tells(way, len(ways) > 1) for way in ways):
                continue
            continued = [_head(way) for way in ways]
            out += [id for id in ids if all(self._is_detour(id, way) for way in continued)]
        return out

    def _is_detour(self, id: int, forced: bytes) -> bool:
        found = self._known.get((id, forced))
        if found is None:
            if len(self._known) >= MAX_REMEMBERED:
                self._known.clear()
            found = self._known[id, forced] = self._ask(id, forced)
        return found

    def _ask(self, id: int, forced: bytes) -> bool:
        """Asks also for what may come behind punctuation: `":"` is one token, but in `":"./` two may be `":` and `"./`."""
        token = self._vocabulary.token_bytes[id]
        try:
            alone = self._vocabulary.encode(token.decode())
            longer = (token + forced).decode()
        except UnicodeDecodeError:
            return False
        texts = [longer] if _num_letters(forced) else [longer, *(longer + begin for begin in BEGINS)]
        return alone == [id] and all(self._vocabulary.encode(text)[:1] != [id] for text in texts)


def _head(forced: bytes) -> bytes:
    """As much of what follows a token as it takes to see how the tokenizer would cut."""
    return _whole_characters(forced if _num_letters(forced) else forced[:4])


def _tells(way: bytes, is_one_of_several: bool) -> bool:
    """Whether a way tells how it is cut, whatever follows: a word does that is known to its end, or for long.

    Punctuation does only where it is the only way on: `"` and `}` are one token, but not ahead of another `}`.
    """
    letters = _num_letters(way)
    return (0 if is_one_of_several else -1) < letters < len(way) or letters >= LONG_WORD


def _num_letters(text: bytes) -> int:
    """How many bytes of a word a text begins with."""
    return next((i for i, byte in enumerate(text) if byte < 0x80 and not chr(byte).isalnum()), len(text))


def _is_whole(text: bytes) -> bool:
    return _whole_characters(text) == text


def recent(vocabulary: Vocabulary, ids: Sequence[int]) -> Sequence[int]:
    """The last tokens, from one that begins with a whole character on."""
    start = max(0, len(ids) - LOOK_BACK)
    while start > 0 and (vocabulary.token_bytes[ids[start]][:1] or b"\x80")[0] & 0xC0 == 0x80:
        start -= 1
    return ids[start:]


def _whole_characters(text: bytes) -> bytes:
    """Without the incomplete character at the end, if there is one."""
    for back in range(1, min(4, len(text)) + 1):
        byte = text[-back]
        if byte & 0xC0 != 0x80:
            size = 1 if byte < 0x80 else 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return text if back >= size else text[:-back]
    return text
