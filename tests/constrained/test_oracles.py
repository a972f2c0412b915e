"""Our automata against the libraries that others build on: outlines-core's index and interegular's automata."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import interegular
import pytest
from outlines_core import Guide, Index, Vocabulary

from sapwood.constrained.grammar import compile

PATTERNS = [
    r"[0-9]{3}-[0-9]{2,4}",
    r"(de|de fa|xyz)",
    r"(1|10|100)x?",
    r"a*b+c?(de|f)*",
    r"-?(0|[1-9][0-9]*)(\.[0-9]+)?",
    r'"[a-c]{0,3}"',
    r"(ab|a)(bc|c)?",
    r"[^a]b",
]
TEXTS = [
    *'abcdefxyz0123456789-." ',
    "yes",
    "no",
    " please",
    "10",
    "ab",
    "bc",
    "de",
    "00",
    "12",
    "yes p",
    "-1",
    "0.5",
    '"a',
]
EOS = len(TEXTS)


@dataclass
class Tokens:
    """A small vocabulary of whole pieces."""

    token_bytes: list[bytes] = field(default_factory=lambda: [*(t.encode() for t in TEXTS), b""])
    eos_ids: frozenset[int] = frozenset({EOS})
    vocab_size: int = EOS + 1
    fingerprint: str = "oracles"

    def encode(self, text: str) -> list[int]:
        """Longest piece first."""
        ids = list[int]()
        while text:
            piece = max((t for t in TEXTS if text.startswith(t)), key=len)
            ids.append(TEXTS.index(piece))
            text = text[len(piece) :]
        return ids


@pytest.mark.parametrize("pattern", PATTERNS)
def test_masks_are_those_of_outlines_core(pattern: str) -> None:
    # Its index takes the leftmost alternative first; \z makes it mean the whole language.
    index = Index(rf"(?:{pattern})\z", Vocabulary(EOS, {t: [i] for i, t in enumerate(TEXTS)}))
    grammar, rng = compile({"regex": pattern}, Tokens()), random.Random(pattern)
    for _ in range(30):
        guide, matcher = Guide(index), grammar.matcher()
        for _ in range(12):
            mask = matcher.mask()
            ours = {i for i in range(EOS + 1) if mask[i // 32] >> (i % 32) & 1}
            theirs = set(guide.get_tokens())
            # Where a token can only go on in one way, we leave it to the longer token that the tokenizer would take.
            assert ours and ours <= theirs
            assert all(any(TEXTS[i].startswith(TEXTS[cut]) for i in ours - {EOS}) for cut in theirs - ours)
            choices = sorted(ours - {EOS})
            if not choices:
                break
            token = rng.choice(choices)
            matcher.advance(token)
            guide.advance(token, return_tokens=False)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_texts_are_accepted_as_by_interegular(pattern: str) -> None:
    automaton = interegular.parse_pattern(pattern).to_fsm()
    grammar, rng = compile({"regex": pattern}, Tokens()), random.Random(pattern)
    accepted = 0
    for _ in range(400):
        text = (
            grammar.sample(rng) if rng.random() < 0.5 else "".join(rng.choice(TEXTS) for _ in range(rng.randrange(5)))
        )
        if rng.random() < 0.3 and text:
            at = rng.randrange(len(text))
            text = text[:at] + rng.choice(TEXTS) + text[at + 1 :]
        assert grammar.accepts(text) == automaton.accepts(text), text
        accepted += automaton.accepts(text)
    assert accepted > 50
