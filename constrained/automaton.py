"""Grammars that our own automata follow: JSON Schema, regular expressions, choices.

The native part follows bytes and fills masks; here are the `Grammar` and `Matcher` around it, and the errors.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from sapwood.constrained.drawing import Form, draw, walk
from sapwood.constrained.jump import Detours, canonical_jump, recent
from sapwood.constrained.regex import parse
from sapwood.constrained.regex.tree import build
from sapwood.constrained.schema import lower_schema
from sapwood.constrained.vocabulary import Vocabulary
from sapwood.errors import GrammarError
from sapwood.kernels import _grammar

MAX_BYTES = 500_000_000  # of a grammar's automata, as they grow
MAX_SAMPLE = 20_000  # bytes
MAX_WALKS = 8  # of a sample, until one doesn't end where nothing may follow
MAX_FORCED = 4096  # bytes that are looked ahead
MAX_VOCABULARIES = 4
MAX_MASK_BYTES = 4_000_000  # of a grammar's masks that are kept
MAX_FORCED_PLACES = 10_000  # of a grammar, whose forced bytes are kept
MAX_JUMPS = 10_000  # of a grammar, that are kept


Stop = _grammar.Stop
K = TypeVar("K")
V = TypeVar("V")


class _Known(NamedTuple):
    """What is kept of a vocabulary."""

    native: _grammar.Vocabulary
    detours: Detours


_vocabularies: dict[str, _Known] = {}


class AutomatonGrammar:
    """A compiled schema, regular expression or list of choices."""

    def __init__(
        self, native: _grammar.Grammar, vocabulary: Vocabulary, num_words: int, json: bool, fixed: bool
    ) -> None:
        self.native = native
        self.json = json
        self.fixed = fixed  # one layout: masks keep to the tokenizer's way of cutting it
        self.detours = _of_vocabulary(vocabulary).detours
        # What was found out, for all matchers: by place, and jumps also by the tokens before.
        self.masks: dict[int, npt.NDArray[np.uint32]] = {}  # without detours
        self.forced: dict[int, bytes] = {}
        self.jumps: dict[tuple[int, tuple[int, ...]], list[int]] = {}
        self.vocabulary = vocabulary
        self.num_words = num_words

    def matcher(self) -> AutomatonMatcher:
        """A new matcher at the start of the text."""
        return AutomatonMatcher(self)

    def accepts(self, text: str) -> bool:
        """Whether `text` as a whole matches, in the layout that the grammar was compiled for."""
        matcher = _grammar.Matcher(self.native)
        with grammar_errors():
            return matcher.advance_bytes(text.encode("utf-8", "surrogatepass")) and matcher.may_end()

    def is_empty(self) -> bool:
        """Whether nothing matches, so that a mask would be empty from the start."""
        matcher = _grammar.Matcher(self.native)
        with grammar_errors():
            return not matcher.may_end() and not matcher.allowed_bytes()

    def explain(self, form: Form = "mermaid", max_states: int = 60) -> str:
        """The automaton as a drawing, in Mermaid or SVG: runs of forced bytes are single edges."""
        with grammar_errors():
            return draw(walk(_grammar.Matcher(self.native), max_states, self.json), form)

    def sample(self, rng: random.Random | None = None, length: int = 60) -> str:
        """A random text that matches, of about `length` bytes where the grammar leaves the choice.

        Raises GrammarError if all of a few walks end where nothing may follow.
        """
        rng = rng or random.Random()
        with grammar_errors():
            for _ in range(MAX_WALKS):
                text, ended = self._walk(rng, length)
                if ended:
                    return text.decode()
                if len(text) > MAX_SAMPLE:
                    break
        raise GrammarError(f"no text goes on from {text!r}")

    def _walk(self, rng: random.Random, length: int) -> tuple[bytes, bool]:
        """A text, and whether it is complete."""
        matcher = _grammar.Matcher(self.native)
        out = bytearray()
        while True:
            allowed = matcher.allowed_bytes()
            if matcher.may_end() and (not allowed or len(out) >= length or rng.random() < 0.1):
                return bytes(out), True
            if not allowed or len(out) > MAX_SAMPLE:
                return bytes(out), False
            closing = len(out) >= length and rng.random() < 0.9  # what closes soonest may lead in a circle
            shortest = matcher.toward_end() if closing or rng.random() < 0.7 else -1
            byte = shortest if shortest in allowed else _choose(rng, allowed, closing, matcher.in_text())
            matcher.advance_bytes(bytes([byte]))
            out.append(byte)


# What leads to an end soonest: brackets, then texts, then values without an inside.
CLOSING = [b"}]", b'"', b"ntf0123456789", b":,"]
CLOSING_TEXT = [b'"']


def _choose(rng: random.Random, allowed: Sequence[int], closing: bool, in_text: bool) -> int:
    """Prefers plain letters, and what ends texts, arrays and objects once the sample is long enough."""
    if closing or rng.random() < 0.2:
        for preferred in CLOSING_TEXT if in_text else CLOSING[: None if closing else 2]:
            ends = [byte for byte in allowed if byte in preferred]
            if ends:
                return rng.choice(ends)
    plain = [byte for byte in allowed if 0x20 < byte < 0x7F and byte != 0x5C]
    return rng.choice(plain if plain and rng.random() < 0.95 else allowed)


class AutomatonMatcher:
    """The `Matcher` of an `AutomatonGrammar`."""

    def __init__(self, grammar: AutomatonGrammar) -> None:
        self._grammar = grammar
        self._native = _grammar.Matcher(grammar.native)
        self._ids: list[int] = []

    def mask(self) -> npt.NDArray[np.uint32]:
        with grammar_errors():
            return self._find_mask().copy()

    def _full_mask(self) -> npt.NDArray[np.uint32]:
        words = np.empty(self._grammar.num_words, np.uint32)
        self._native.fill_mask(words)
        return words

    def _find_mask(self) -> npt.NDArray[np.uint32]:
        """The mask of this place, which others have too."""
        masks = self._grammar.masks
        place = self._native.place()
        found = masks.get(place)
        if found is None:
            found = self._straight_mask() if self._grammar.fixed else self._full_mask()
            keep(masks, place, found, MAX_MASK_BYTES // found.nbytes)
        return found

    def _straight_mask(self) -> npt.NDArray[np.uint32]:
        """Without the tokens that the tokenizer would not use here, unless there are no others."""
        full = self._full_mask()
        found = full.copy()
        for id in self._grammar.detours.find(self._native):
            found[id // 32] &= ~np.uint32(1 << id % 32)
        return found if found.any() else full

    def advance(self, id: int) -> None:
        with grammar_errors():
            if not self._native.advance(id):
                raise ValueError(f"token {id} is not allowed here")
        self._ids.append(id)

    def forced(self) -> bytes:
        with grammar_errors():
            return self._native.forced(MAX_FORCED)

    def jump(self) -> list[int]:
        with grammar_errors():
            grammar, place = self._grammar, self._native.place()
            forced = grammar.forced.get(place)
            if forced is None:
                forced = keep(grammar.forced, place, self._native.forced(MAX_FORCED), MAX_FORCED_PLACES)
            if not forced:
                return []
            key = place, tuple(recent(grammar.vocabulary, self._ids))
            found = grammar.jumps.get(key)
            if found is None:
                found = canonical_jump(self._native, grammar.vocabulary, key[1], forced, grammar.fixed)
                keep(grammar.jumps, key, found, MAX_JUMPS)
            return list(found)

    def rollback(self, n: int) -> None:
        self._native.rollback(n)
        del self._ids[len(self._ids) - n :]

    def is_done(self) -> bool:
        with grammar_errors():
            return self._native.is_done()

    def may_end(self) -> bool:
        with grammar_errors():
            return self._native.may_end()


def keep(known: dict[K, V], key: K, value: V, most: int) -> V:
    """Remember a value, forgetting all others when there are too many."""
    if len(known) >= most:
        known.clear()
    known[key] = value
    return value


@contextmanager
def grammar_errors() -> Iterator[None]:
    """Turns the native part's budget errors into GrammarError."""
    try:
        yield
    except MemoryError as error:
        raise GrammarError(str(error) or "the grammar needs too much memory") from error


def from_schema(
    schema: object, vocabulary: Vocabulary, *, compact: bool, any_order: bool, timeout: float, stop: Stop
) -> AutomatonGrammar:
    """Compile a JSON Schema."""
    builder = _grammar.SchemaBuilder(compact, any_order, MAX_BYTES)
    deadline = time.monotonic() + timeout
    builder.start_clock(timeout, stop)
    with grammar_errors():
        root = lower_schema(schema, builder, compact, deadline, stop)
        builder.satisfiable(root)  # finds what is costly now rather than in the middle of a text
    return _finish(builder, root, vocabulary, raw=False, fixed=compact)


def from_regex(pattern: str, vocabulary: Vocabulary, *, timeout: float, stop: Stop) -> AutomatonGrammar:
    """Compile a regular expression of Python's dialect; the whole text has to match."""
    builder = _grammar.SchemaBuilder(True, False, MAX_BYTES)
    builder.start_clock(timeout, stop)
    with grammar_errors():
        regex = _grammar.RegexBuilder()
        source = builder.pattern_source(regex, build(parse(pattern, "python"), regex), False)
        root = builder.pattern(source)
        builder.satisfiable(root)
    return _finish(builder, root, vocabulary, raw=True, fixed=True)


def from_choices(choices: Sequence[str], vocabulary: Vocabulary) -> AutomatonGrammar:
    """Compile a list of texts, one of which it has to be."""
    if not choices or not all(isinstance(choice, str) for choice in choices):
        raise GrammarError("choices are a list of at least one text")
    builder = _grammar.SchemaBuilder(True, False, MAX_BYTES)
    with grammar_errors():
        root = builder.in_texts(list(choices))
    return _finish(builder, root, vocabulary, raw=True, fixed=True)


def _finish(
    builder: _grammar.SchemaBuilder, root: int, vocabulary: Vocabulary, *, raw: bool, fixed: bool
) -> AutomatonGrammar:
    with grammar_errors():
        native = _grammar.Grammar(builder, root, raw, _of_vocabulary(vocabulary).native)
    return AutomatonGrammar(native, vocabulary, (vocabulary.vocab_size + 31) // 32, json=not raw, fixed=fixed)


def _of_vocabulary(vocabulary: Vocabulary) -> _Known:
    """Building the tree of a vocabulary's tokens takes a noticeable time, so the last few are kept."""
    found = _vocabularies.get(vocabulary.fingerprint)
    if found is None:
        while len(_vocabularies) >= MAX_VOCABULARIES:
            _vocabularies.pop(next(iter(_vocabularies)))
        tokens = list(vocabulary.token_bytes)
        native = _grammar.Vocabulary(tokens, vocabulary.vocab_size, sorted(vocabulary.eos_ids))
        found = _vocabularies[vocabulary.fingerprint] = _Known(native, Detours(vocabulary))
    return found
