"""Small public cases that went wrong in other engines; the numbers are of the issues where they were reported."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from grammar_texts import Accepts, allowed

from sapwood.constrained import GrammarError, Vocabulary, compile


def matches(pattern: str, text: str, vocabulary: Vocabulary) -> bool:
    return compile({"regex": pattern}, vocabulary).accepts(text)


def test_a_range_of_emoji_counts_characters_not_bytes(vocabulary: Vocabulary) -> None:  # outlines#725
    assert matches("[🌧-🌫]{2}!", "🌧🌫!", vocabulary)
    assert not matches("[🌧-🌫]{2}!", "🌧!", vocabulary)
    first = compile({"regex": "[🌧-🌫]{2}!"}, vocabulary).matcher().forced()
    assert first and "🌧".encode().startswith(first)


def test_bounded_arrays_of_bounded_texts_are_exact(accepts: Accepts) -> None:  # outlines#658
    array = {"type": "array", "maxItems": 12, "items": {"type": "string", "maxLength": 80}}
    schema = {"type": "object", "properties": {"a": array, "b": array, "c": array}, "required": ["a", "b", "c"]}
    assert accepts(schema, {"a": ["x" * 80] * 12, "b": [], "c": ["é" * 80]})
    assert not accepts(schema, {"a": ["x" * 81], "b": [], "c": []})
    assert not accepts(schema, {"a": ["x"] * 13, "b": [], "c": []})


def test_blanks_are_bounded(accepts: Accepts) -> None:  # xgrammar#412, vllm#38696
    schema = {"type": "object", "properties": {"k": {"type": "integer"}}, "required": ["k"]}
    assert accepts(schema, text='{"k":' + " " * 8 + "1}")
    assert not accepts(schema, text='{"k":' + " " * 9 + "1}")
    assert not accepts(schema, text='{"k":' + " " * 200 + "1}")
    assert not accepts(schema, text='{"k": 1}', whitespace="compact")


def test_recursion_is_followed_as_deep_as_it_goes(accepts: Accepts) -> None:  # sglang#7639, xgrammar#250
    tree = {
        "type": "object",
        "properties": {"v": {"type": "integer"}, "kids": {"type": "array", "items": {"$ref": "#"}}},
        "required": ["v", "kids"],
        "additionalProperties": False,
    }
    value: dict[str, Any] = {"v": 0, "kids": []}
    for depth in range(20):
        value = {"v": depth, "kids": [value]}
    assert accepts(tree, value)
    assert not accepts(tree, json.loads(json.dumps(value).replace('"v": 0', '"w": 0')))


@pytest.mark.parametrize("schema", [{"$ref": "#"}, {"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"$ref": "#"}}}])
def test_a_reference_in_a_circle_is_a_clean_error(schema: Any, vocabulary: Vocabulary) -> None:
    with pytest.raises(GrammarError, match="circle"):
        compile({"json_schema": schema}, vocabulary)


def test_listed_values_have_exactly_their_json(accepts: Accepts) -> None:  # outlines#971, outlines-core#100
    values = ['a"b', "c\\d", "(x)*", None, True, {"k.": [1]}]
    for value in values:
        assert accepts({"enum": values}, value)
    for text in ('"a"b"', '"c\\d"', '"(x)"', '"x"', "false", '{"kx": [1]}', '{"k.": [2]}', '{"k.": [1, 1]}'):
        assert not accepts({"enum": values}, text=text)


@pytest.mark.parametrize("whitespace", ["flexible", "compact"])
def test_each_of_several_listed_containers_of_numbers_is_accepted(whitespace: str, accepts: Accepts) -> None:
    values = [{"a": 1, "b": [1]}, {"a": 2, "b": [2]}, [1], [2, 30], [2, 31]]
    ways: list[Any] = [{"enum": values}, {"anyOf": [{"const": value} for value in values]}]
    for schema in ways:
        for value in values:
            assert accepts(schema, value, whitespace=whitespace)
        for value in ({"a": 1, "b": [2]}, [2], [1, 30], {"a": 2}):
            assert not accepts(schema, value, whitespace=whitespace)
    assert accepts({"anyOf": [{"items": {"const": 1}}, {"items": {"const": 2}}]}, [1], whitespace=whitespace)


@pytest.mark.parametrize("whitespace", ["flexible", "compact"])
def test_items_under_different_schemas_may_have_few_values_each_and_differ(whitespace: str, accepts: Accepts) -> None:
    assert accepts({"enum": [["a", "b"], ["c"]], "uniqueItems": True}, ["a", "b"], whitespace=whitespace)
    schema = {"prefixItems": [{"const": 1}, {"const": 2}], "items": {"const": 3}, "uniqueItems": True}
    assert accepts(schema, [1, 2, 3], whitespace=whitespace)
    assert not accepts(schema, [1, 2, 3, 3], whitespace=whitespace)
    assert not accepts({"items": {"enum": [1, 2]}, "uniqueItems": True}, [1, 2, 1], whitespace=whitespace)


def test_a_pattern_is_searched_for(accepts: Accepts) -> None:  # xgrammar#838, outlines#1083, llguidance#66
    assert accepts({"type": "string", "pattern": "b+c"}, "xxbbcx")
    assert not accepts({"type": "string", "pattern": "^b+c$"}, "xxbbcx")


def test_thousands_of_listed_values_are_followed(accepts: Accepts) -> None:  # llguidance#84, outlines#722
    schema = {"enum": [f"value-{i}" for i in range(10_000)]}
    assert accepts(schema, "value-9999")
    assert not accepts(schema, "value-10000")


@pytest.mark.parametrize(
    ("text", "right"),
    [('"\\/"', True), ('"\\u00e9"', True), ('"\\ud83d\\ude00"', True), ('"\\\'"', False), ('"\\ud83d"', False),
     ('"\\ude00"', False), ('"\\x41"', False), ('"a\tb"', False), ('"\\t"', True), ('"\x7f"', True)],
)  # fmt: skip
def test_escapes_are_those_of_json(text: str, right: bool, accepts: Accepts) -> None:
    # lm-format-enforcer#41, xgrammar#286
    assert accepts({"type": "string"}, text=text) == right


@pytest.mark.parametrize("schema", [{"enum": ["a\x7fé"]}, {"pattern": "^a[^b]+$"}])
def test_escapes_that_python_writes_are_taken_also_of_listed_texts(schema: Any, accepts: Accepts) -> None:
    assert accepts(schema, text='"a\\u007f\\u00e9"')
    assert accepts(schema, text='"a\x7fé"')


def test_case_is_ignored_beyond_ascii(vocabulary: Vocabulary) -> None:  # xgrammar#765
    for text in ("straße", "STRAßE", "Yes", "yeS"):
        assert matches("(?i:straße|yes)", text, vocabulary) and re.fullmatch("(?i:straße|yes)", text)
    assert not matches("(?i:straße|yes)", "STRASSE", vocabulary)


def test_a_lazy_quantifier_describes_the_same_texts(vocabulary: Vocabulary) -> None:  # interegular#15
    for text in ("<!---->", "<!-- a -->", "<!-- a --> b -->"):
        assert matches("<!--.*?-->", text, vocabulary)
    assert not matches("<!--.*?-->", "<!-- a --", vocabulary)


def test_a_nul_in_a_pattern_is_a_character(accepts: Accepts) -> None:  # xgrammar#850
    assert accepts({"type": "string", "pattern": "^\x00a$"}, "\x00a")
    assert not accepts({"type": "string", "pattern": "^\x00a$"}, "a")


@pytest.mark.parametrize(
    ("pattern", "texts"),
    [("(yes|yes please)", ["yes", "yes please"]), ("(1|10)", ["1", "10"]),
     (r"((?:-?\d+)|(?:-?\d+\.\d+))", ["1", "1.5"]), ("a*?b?", ["", "a", "aab", "b"])],
)  # fmt: skip
def test_an_alternative_does_not_hide_a_longer_one(pattern: str, texts: list[str], vocabulary: Vocabulary) -> None:
    # the leftmost-first trap of outlines-core's index
    for text in texts:
        assert matches(pattern, text, vocabulary)


def test_a_choice_may_be_the_beginning_of_another(vocabulary: Vocabulary) -> None:
    matcher = compile({"choices": ["yes", "yes please"]}, vocabulary).matcher()
    assert matcher.forced() == b"yes"
    matcher.advance(vocabulary.encode("yes")[0])
    assert matcher.may_end() and not matcher.is_done()
    assert allowed(matcher.mask()) == {0, *vocabulary.encode(" ")}
