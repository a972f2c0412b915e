"""Grammars over a small vocabulary."""

from __future__ import annotations

import json
from typing import Any

import pytest
from grammar_texts import Accepts, GreedyVocabulary, follows

from sapwood.constrained import Vocabulary, compile


@pytest.fixture(scope="session")
def vocabulary() -> Vocabulary:
    return GreedyVocabulary()


@pytest.fixture(scope="session")
def accepts(vocabulary: Vocabulary) -> Accepts:
    """Asks the bytes and the masks, which have to agree."""

    def check(schema: Any, value: Any = None, *, text: str | None = None, **options: Any) -> bool:
        grammar = compile({"json_schema": schema}, vocabulary, **options)
        separators = (",", ":") if options.get("whitespace") == "compact" else None
        text = json.dumps(value, separators=separators) if text is None else text
        answer = grammar.accepts(text)
        assert follows(grammar, text, vocabulary) == answer, "masks and bytes disagree"
        return answer

    return check
