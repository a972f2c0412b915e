"""The public face: `compile` a spec for a tokenizer, follow it with a `Matcher`."""

from __future__ import annotations

import json
import random
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from sapwood.constrained.automaton import Stop, from_choices, from_regex, from_schema
from sapwood.constrained.cache import GrammarCache
from sapwood.constrained.drawing import Form
from sapwood.constrained.general import from_grammar
from sapwood.constrained.vocabulary import Vocabulary, as_vocabulary
from sapwood.errors import GrammarError

Whitespace = Literal["compact", "flexible"]
KINDS = ("json_schema", "regex", "choices", "lark", "ebnf", "gbnf", "structural_tag")


class Matcher(Protocol):
    """Follows one text, token by token."""

    def mask(self) -> npt.NDArray[np.uint32]:
        """The tokens that may come next: bit i % 32 of word i // 32 stands for token i; EOS where the text may end."""
        ...

    def advance(self, id: int) -> None:
        """Take a token. Raises ValueError if it is not allowed; the matcher is then unchanged."""
        ...

    def forced(self) -> bytes:
        """The bytes that must come next whatever is chosen; may end inside a character."""
        ...

    def jump(self) -> list[int]:
        """Forced tokens that may be appended now: those the tokenizer would produce whatever follows."""
        ...

    def rollback(self, n: int) -> None:
        """Forget the last `n` tokens."""
        ...

    def is_done(self) -> bool:
        """Whether nothing but EOS may follow."""
        ...

    def may_end(self) -> bool:
        """Whether the text is complete as it stands."""
        ...


class Grammar(Protocol):
    """A compiled spec, shared by any number of matchers of one thread."""

    def matcher(self) -> Matcher:
        """A new matcher at the start of the text."""
        ...

    def accepts(self, text: str) -> bool:
        """Whether `text` as a whole matches."""
        ...

    def is_empty(self) -> bool:
        """Whether nothing matches, so that a mask would be empty from the start."""
        ...

    def sample(self, rng: random.Random | None = None, length: int = 60) -> str:
        """A random text that matches."""
        ...

    def explain(self, form: Form = "mermaid", max_states: int = 60) -> str:
        """The automaton as a drawing in Mermaid or SVG."""
        ...


CACHE: GrammarCache[Grammar] = GrammarCache()


def compile(
    spec: dict[str, Any],
    tokenizer: Any,
    *,
    whitespace: Whitespace = "flexible",
    any_order: bool = True,
    timeout: float = 10.0,
    stop: Stop | None = None,
) -> Grammar:
    """Compile what the output must match for a tokenizer.

    `spec` has one key: json_schema (dict, bool or text), regex, choices (list of texts), lark, ebnf, gbnf or
    structural_tag. `stop.set()`, from another thread, ends the compile of a schema or regex. Raises GrammarError, with
    `where` naming the place in the spec.
    """
    if len(spec) != 1 or next(iter(spec)) not in KINDS:
        raise GrammarError(f"a grammar spec has one key of {', '.join(KINDS)}; this one has {sorted(spec)}")
    kind, value = next(iter(spec.items()))
    vocabulary = as_vocabulary(tokenizer)
    compact = whitespace == "compact"
    try:
        text = value if isinstance(value, str) else json.dumps(value)
        key = (kind, text, compact, any_order, vocabulary.fingerprint)
        return CACHE.get(key, lambda: _compile(kind, value, vocabulary, compact, any_order, timeout, stop or Stop()))
    except RecursionError:
        raise GrammarError(f"the {kind} is nested too deeply") from None
    except TypeError as error:
        raise GrammarError(f"the {kind} can't be read: {error}") from error


def _compile(
    kind: str, value: Any, vocabulary: Vocabulary, compact: bool, any_order: bool, timeout: float, stop: Stop
) -> Grammar:
    if kind == "regex":
        return from_regex(value, vocabulary, timeout=timeout, stop=stop)
    if kind in ("choices", "json_schema") and isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise GrammarError(f"the {kind} can't be read as JSON: {error}") from error
    if kind == "choices":
        return from_choices(value, vocabulary)
    if kind == "json_schema":
        return from_schema(value, vocabulary, compact=compact, any_order=any_order, timeout=timeout, stop=stop)
    return from_grammar(kind, value, vocabulary)
