"""Context-free grammars and structural tags, which llguidance follows."""

from __future__ import annotations

import random
from typing import Any

import pytest
from grammar_texts import follows

from sapwood.constrained import GrammarError, Vocabulary, compile

SPECS: list[tuple[dict[str, Any], list[str], list[str]]] = [
    ({"lark": 'start: "(" start ")" | "x"'}, ["x", "((x))"], ["", "((x)", "y"]),
    ({"gbnf": 'root ::= "yes" | "no" [0-9]+'}, ["yes", "no12"], ["no", "yes1"]),
    ({"ebnf": 'root ::= ("a" | "b")+ "c"?'}, ["a", "abac"], ["c", "acb"]),
]


@pytest.mark.parametrize(("spec", "good", "bad"), SPECS, ids=["lark", "gbnf", "ebnf"])
def test_a_grammar_is_followed(spec: dict[str, Any], good: list[str], bad: list[str], vocabulary: Vocabulary) -> None:
    grammar = compile(spec, vocabulary)
    for text in good:
        assert follows(grammar, text, vocabulary) and grammar.accepts(text), text
    for text in bad:
        assert not follows(grammar, text, vocabulary) and not grammar.accepts(text), text
    assert not grammar.is_empty()
    assert grammar.accepts(grammar.sample(random.Random(0), length=5))


def test_a_structural_tag_constrains_only_its_inside(vocabulary: Vocabulary) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    tag = {"structures": [{"begin": "<call>", "schema": schema, "end": "</call>"}], "triggers": ["<call"]}
    grammar = compile({"structural_tag": tag}, vocabulary)
    assert follows(grammar, "free text", vocabulary)
    assert follows(grammar, 'so: <call>{"a":1}</call> done', vocabulary)
    assert not follows(grammar, 'so: <call>{"b":1}</call>', vocabulary)


def test_rollback_passes_over_the_end(vocabulary: Vocabulary) -> None:
    matcher = compile({"lark": 'start: "ab"'}, vocabulary).matcher()
    for id in vocabulary.encode("ab"):
        matcher.advance(id)
    matcher.advance(0)
    assert matcher.is_done() and matcher.may_end()
    matcher.rollback(2)
    assert not matcher.may_end()
    with pytest.raises(ValueError, match="not allowed"):
        matcher.advance(vocabulary.encode("x")[0])


@pytest.mark.parametrize(
    "spec",
    [{"lark": "start: missing"}, {"gbnf": "root ::= ("}, {"structural_tag": {"structures": []}},
     {"structural_tag": {"structures": [{"begin": "<a", "schema": {}, "end": ">"}], "triggers": ["<b"]}}],
)  # fmt: skip
def test_a_broken_grammar_is_a_clean_error(spec: dict[str, Any], vocabulary: Vocabulary) -> None:
    with pytest.raises(GrammarError):
        compile(spec, vocabulary)


@pytest.mark.parametrize(
    ("text", "at"), [("start: a\na: missing\n", "missing"), ('start: "a" | /(b/\n', '"a"'), ('start: "a" )\n', ")\n")]
)
def test_an_error_in_a_grammar_names_its_place_with_a_caret(text: str, at: str, vocabulary: Vocabulary) -> None:
    with pytest.raises(GrammarError) as error:
        compile({"lark": text}, vocabulary)
    line = next(line for line in str(error.value).splitlines() if "^" in line)
    assert set(line) <= {" ", "^"}
    assert error.value.where == text.index(at)
