"""Context-free grammars (Lark, EBNF, GBNF) and structural tags, parsed by llguidance.

Its matchers are wrapped in the `Matcher` interface; nothing of llguidance is seen outside this file.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from llguidance import LLMatcher, LLParserLimits, LLTokenizer, StructTag, TokenizerWrapper
from llguidance.gbnf_to_lark import any_to_lark

from sapwood.constrained.drawing import Form
from sapwood.constrained.vocabulary import Vocabulary
from sapwood.errors import GrammarError

MAX_VOCABULARIES = 4
MAX_SAMPLE = 2000  # tokens
# The parser descends from rule to rule, and from reference to reference in a schema, on the thread's stack: a chain of
# this many is far from its end, a chain of a few thousand would end the process.
MAX_RULES = 1000
MAX_REFERENCES = 400

_tokenizers: dict[str, LLTokenizer] = {}


class GeneralGrammar:
    """A grammar that only a general parser can follow."""

    def __init__(self, source: str, vocabulary: Vocabulary, text: str | None = None) -> None:
        """`text`: what was written, if places in `source` are places in it."""
        self._vocabulary = vocabulary
        self._tokenizer = _tokenizer_of(vocabulary)
        self._root = LLMatcher(self._tokenizer, source, log_level=0, limits=LLParserLimits())
        if self._root.is_error():
            told = _told(self._root)
            raise GrammarError(told, _offset(told, text) if text is not None else None)

    def matcher(self) -> GeneralMatcher:
        """A new matcher at the start of the text."""
        return GeneralMatcher(self._root.deep_copy(), self._vocabulary)

    def accepts(self, text: str) -> bool:
        """Whether `text` as a whole matches."""
        parser = self._root.deep_copy()
        ids = self._vocabulary.encode(text)
        return parser.try_consume_tokens(ids) == len(ids) and parser.is_accepting()

    def is_empty(self) -> bool:
        """Whether nothing matches, so that a mask would be empty from the start."""
        return not self.matcher().mask().any()

    def explain(self, form: Form = "mermaid", max_states: int = 60) -> str:
        """Context-free grammars have no automaton to be drawn: raises GrammarError."""
        raise GrammarError("only JSON Schemas, regular expressions and choices have an automaton that can be drawn")

    def sample(self, rng: random.Random | None = None, length: int = 60) -> str:
        """A random text that matches, of about `length` tokens where the grammar leaves the choice."""
        rng = rng or random.Random()
        matcher = self.matcher()
        out = b""
        for count in range(MAX_SAMPLE):
            allowed = np.flatnonzero(np.unpackbits(matcher.mask().view(np.uint8), bitorder="little"))
            inner = [int(id) for id in allowed if id not in self._vocabulary.eos_ids]
            if matcher.may_end() and (not inner or count >= length or rng.random() < 0.1):
                return out.decode(errors="replace")
            if not inner:
                break
            id = rng.choice(inner)
            matcher.advance(id)
            out += self._vocabulary.token_bytes[id]
        raise GrammarError(f"no text goes on from {out[-40:]!r}")


class GeneralMatcher:
    """The `Matcher` of a `GeneralGrammar`."""

    def __init__(self, parser: LLMatcher, vocabulary: Vocabulary) -> None:
        self._parser = parser
        self._eos_ids = vocabulary.eos_ids
        self._words = (vocabulary.vocab_size + 31) // 32
        self._ended = 0  # EOS tokens taken; the parser does not see them

    def mask(self) -> npt.NDArray[np.uint32]:
        mask = np.zeros(self._words, np.uint32)
        if not self.is_done():
            words = np.frombuffer(self._parser.compute_bitmask(), np.uint32)
            if self._parser.is_error():
                raise GrammarError(f"the grammar can't be followed further: {_told(self._parser)}")
            num_words = min(len(words), self._words)
            mask[:num_words] = words[:num_words]
        allow(mask, self._eos_ids, self.may_end())
        return mask

    def advance(self, id: int) -> None:
        if id in self._eos_ids:
            if not self.may_end():
                raise ValueError(f"the text may not end here, but token {id} ends it")
            self._ended += 1
        elif self._ended or self._parser.try_consume_tokens([id]) != 1:
            if self._parser.is_error():
                raise GrammarError(f"the grammar can't be followed further: {_told(self._parser)}")
            raise ValueError(f"token {id} is not allowed here")

    def forced(self) -> bytes:
        return b"" if self.is_done() else bytes(self._parser.compute_ff_bytes())

    def jump(self) -> list[int]:
        return [] if self.is_done() else list(self._parser.compute_ff_tokens())

    def rollback(self, n: int) -> None:
        ends = min(n, self._ended)
        self._ended -= ends
        if n > ends and not self._parser.rollback(n - ends):
            raise ValueError(f"can't roll back {n} tokens")

    def is_done(self) -> bool:
        return bool(self._ended) or self._parser.is_stopped()

    def may_end(self) -> bool:
        return bool(self._ended) or self._parser.is_accepting()


def allow(mask: npt.NDArray[np.uint32], ids: frozenset[int], allowed: bool) -> None:
    """Set or clear the bits of `ids` in a packed mask."""
    for id in ids:
        if id // 32 < len(mask):
            bit = np.uint32(1 << (id % 32))
            mask[id // 32] = mask[id // 32] | bit if allowed else mask[id // 32] & ~bit


def _told(parser: LLMatcher) -> str:
    """What is wrong, without the parser's state and the grammar's text, which follow it."""
    lines = str(parser.get_error()).partition("\n<")[0].rstrip().splitlines()
    return "\n".join(line if len(line) < 100 else line[:100] + "..." for line in lines[:8])


def _offset(told: str, text: str) -> int | None:
    """The offset of the place that a message names as line(column)."""
    place = re.match(r"(?:at )?(\d+)\((\d+)\)", told)
    if place is None:
        return None
    line, column = map(int, place.groups())
    return sum(map(len, text.splitlines(keepends=True)[: line - 1])) + column - 1


def from_grammar(kind: str, value: Any, vocabulary: Vocabulary) -> GeneralGrammar:
    """Compile a lark, ebnf or gbnf grammar, or a structural tag."""
    return GeneralGrammar(_source_of(kind, value), vocabulary, value if kind == "lark" else None)


def _source_of(kind: str, value: Any) -> str:
    """llguidance's source for a spec that is a grammar or a structural tag."""
    text = value if isinstance(value, str) else json.dumps(value)
    num_rules = (
        len(re.findall(r"^\s*[?!]?[\w.-]+[^:\n\"/]*:", text, re.MULTILINE)) if kind == "lark" else text.count("::=")
    )
    if num_rules > MAX_RULES or text.count("$ref") > MAX_REFERENCES:
        raise GrammarError(f"the {kind} has more than {MAX_RULES} rules or {MAX_REFERENCES} references")
    if kind == "lark":
        return str(LLMatcher.grammar_from_lark(value))
    if kind in ("ebnf", "gbnf"):
        try:
            return str(LLMatcher.grammar_from_lark(any_to_lark(value)))
        except Exception as error:  # the converter raises whatever its parser met
            raise GrammarError(f"the {kind.upper()} grammar can't be read: {error}") from error
    return _structural_tag(value)


def _structural_tag(value: Any) -> str:
    """SGLang's layout: {"structures": [{"begin", "schema", "end"}], "triggers": [...]}."""
    value = json.loads(value) if isinstance(value, str) else value
    try:
        triggers: Sequence[str] = value["triggers"]
        tags = []
        for structure in value["structures"]:
            begin = structure["begin"]
            trigger = next((t for t in triggers if begin.startswith(t)), None)
            if trigger is None:
                raise GrammarError(f"no trigger of the structural tag is a prefix of {begin!r}")
            tags.append(StructTag(trigger=trigger, begin=begin, grammar=structure["schema"], end=structure["end"]))
    except (KeyError, TypeError) as error:
        raise GrammarError(
            f"a structural tag needs `triggers` and `structures` with begin, schema, end: {error}"
        ) from error
    return str(StructTag.to_grammar(tags, assume_special=False))


def _tokenizer_of(vocabulary: Vocabulary) -> LLTokenizer:
    """llguidance's tokenizer for a vocabulary; building one takes a noticeable time, so the last few are kept."""
    found = _tokenizers.get(vocabulary.fingerprint)
    if found is None:
        while len(_tokenizers) >= MAX_VOCABULARIES:
            _tokenizers.pop(next(iter(_tokenizers)))
        found = LLTokenizer(TokenizerWrapper(_Adapter(vocabulary)), n_vocab=vocabulary.vocab_size)
        _tokenizers[vocabulary.fingerprint] = found
    return found


class _Adapter:
    """What llguidance expects of a tokenizer."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        tokens = list(vocabulary.token_bytes)
        tokens += [b""] * (vocabulary.vocab_size - len(tokens))
        self.eos_token_id = min(vocabulary.eos_ids, default=0)
        self.bos_token_id = None
        self.special_token_ids = [id for id, token in enumerate(tokens) if not token]
        self.tokens = [token or b"\xff<%d>" % id for id, token in enumerate(tokens)]
        self._encode = vocabulary.encode

    def __call__(self, text: str) -> list[int]:
        if not isinstance(text, str):
            raise TypeError("text expected")
        return self._encode(text)
