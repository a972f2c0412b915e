"""An automaton can be looked at."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from sapwood.constrained import GrammarError, Vocabulary, compile


def test_runs_of_forced_bytes_are_single_edges(vocabulary: Vocabulary) -> None:
    lines = compile({"regex": "testing (a|b) now"}, vocabulary).explain().splitlines()
    edges = [line.strip() for line in lines if "-->" in line]
    assert edges == ['s0 -- "testing␣" --> s1', 's1 -- "[ab]" --> s2', 's2 -- "␣now" --> s3']
    assert "    s3(((3)))" in lines


def test_a_schema_is_drawn_too(vocabulary: Vocabulary) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "boolean"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    grammar = compile({"json_schema": schema}, vocabulary, whitespace="compact", any_order=False)
    assert '-- "{#34;a#34;:" -->' in grammar.explain()
    picture = ElementTree.fromstring(grammar.explain("svg"))
    assert len(picture.findall("{http://www.w3.org/2000/svg}circle")) >= 5


def test_a_large_automaton_is_cut(vocabulary: Vocabulary) -> None:
    drawing = compile({"regex": "[a-z]{1,1000}"}, vocabulary).explain(max_states=5)
    assert "((…))" in drawing and len(drawing.splitlines()) < 30


def test_a_context_free_grammar_has_no_automaton(vocabulary: Vocabulary) -> None:
    with pytest.raises(GrammarError, match="drawn"):
        compile({"lark": 'start: "x"'}, vocabulary).explain()
