"""Grammars as automata: what may come next, what must come next, and jumping over it.

    grammar = compile({"json_schema": schema}, tokenizer)
    matcher = grammar.matcher()
    matcher.mask(); matcher.advance(id); matcher.jump()

Usable without the rest of Sapwood, with any Hugging Face tokenizer. Knows nothing of models, batches or sampling.
"""

from __future__ import annotations

from sapwood.constrained.automaton import Stop
from sapwood.constrained.grammar import Grammar, Matcher, compile
from sapwood.constrained.vocabulary import HuggingFaceVocabulary, Vocabulary
from sapwood.errors import GrammarError

__all__ = ["Grammar", "GrammarError", "HuggingFaceVocabulary", "Matcher", "Stop", "Vocabulary", "compile"]
