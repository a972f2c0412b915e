"""JSON Schema, keyword by keyword: what may be written, and what may not."""

from __future__ import annotations

import json
import random
from typing import Any

import jsonschema
import pytest
from grammar_texts import Accepts
from hypothesis import HealthCheck, given, settings, strategies as st

from sapwood.constrained import GrammarError, Vocabulary, compile

OBJECT = {"type": "object"}
# schema, values that hold, values that don't
CASES: list[tuple[Any, list[Any], list[Any]]] = [
    ({"type": "integer"}, [0, -7, 10**20, 1.0], ["1", 1.5, None, True]),
    ({"type": ["integer", "null"]}, [3, None], [1.5, False]),
    ({"minimum": 10, "type": "integer"}, [10, 100, 11], [9, 1, -10]),
    ({"exclusiveMinimum": 0.5, "maximum": 2}, [0.51, 2, "x"], [0.5, 0, 2.01, -3]),
    ({"type": "integer", "minimum": -5, "maximum": 3}, [-5, 0, 3], [-6, 4, -50, 30]),
    ({"type": "number", "multipleOf": 0.25}, [0.75, 12.5, 5, 1e16], [0.1, 12.3]),
    ({"type": "integer", "multipleOf": 7, "minimum": 50}, [56, 63, 700], [49, 57]),
    ({"anyOf": [{"type": "integer", "maximum": 5}, {"type": "integer", "minimum": 100}]}, [5, 100, -1], [6, 99]),
    ({"enum": [1, "a", None, [1, {"b": 2}]]}, [1, 1.0, "a", None, [1, {"b": 2}]], [2, "b", [1], [1, {"b": 3}], True]),
    ({"const": {"a": 1, "b": [True]}}, [{"b": [True], "a": 1}], [{"a": 1}, {"a": 1, "b": [True], "c": 0}]),
    ({"type": "string", "minLength": 2, "maxLength": 3}, ["ab", "日本語", "😀😀"], ["a", "abcd", "😀"]),
    ({"type": "string", "pattern": "^[a-c]+$", "maxLength": 4}, ["abc"], ["", "abcab", "abd"]),
    ({"type": "string", "pattern": "a.*b", "not": {"const": "ab"}}, ["axb", "xabx"], ["ab", "ba"]),
    ({"allOf": [{"pattern": "^a"}, {"pattern": "z$"}], "type": "string"}, ["az", "a-z"], ["a", "z", "za"]),
    ({**OBJECT, "required": ["a"]}, [{"a": 1}, {"b": 2, "a": None}], [{}, {"b": 1}]),
    ({**OBJECT, "properties": {"a": {"type": "integer"}}, "additionalProperties": False}, [{}, {"a": 1}], [{"b": 1}, {"a": "x"}]),
    ({**OBJECT, "patternProperties": {"^x": {"type": "integer"}}, "additionalProperties": {"type": "string"}},
     [{"x1": 1, "y": "s"}], [{"x1": "s"}, {"y": 1}]),
    ({**OBJECT, "minProperties": 1, "maxProperties": 2}, [{"a": 1}, {"a": 1, "b": 2}], [{}, {"a": 1, "b": 2, "c": 3}]),
    ({**OBJECT, "propertyNames": {"pattern": "^[a-b]+$", "maxLength": 3}}, [{"ab": 1}, {}], [{"abc": 1}, {"abab": 1}]),
    ({**OBJECT, "dependentRequired": {"a": ["b"]}}, [{}, {"b": 1}, {"a": 1, "b": 2}], [{"a": 1}]),
    ({**OBJECT, "dependentSchemas": {"a": {"required": ["b"]}}}, [{"b": 1}, {"b": 1, "a": 1}], [{"a": 1}]),
    ({**OBJECT, "dependencies": {"a": ["b"], "c": {"maxProperties": 1}}}, [{"c": 1}, {"a": 1, "b": 1}], [{"a": 1}, {"c": 1, "d": 1}]),
    ({"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 2}, [[1], [1, 2]], [[], [1, 2, 3], ["a"]]),
    ({"prefixItems": [{"type": "integer"}, {"type": "string"}], "items": False}, [[], [1], [1, "a"]], [["a"], [1, "a", 2]]),
    ({"type": "array", "contains": {"const": 1}, "minContains": 2, "maxContains": 3},
     [[1, 1], [0, 1, 1, 1]], [[1], [1, 1, 1, 1], []]),
    ({"type": "array", "uniqueItems": True}, [[1, "1", [1], {"a": 1}], [0, False]], [[1, 1.0], [{"a": 1, "b": 2}, {"b": 2, "a": 1}]]),
    ({"type": "array", "uniqueItems": True, "items": {"enum": ["a", "b"]}}, [["b", "a"], ["a"]], [["a", "a"], ["a", "b", "a"]]),
    ({"oneOf": [{"multipleOf": 2}, {"multipleOf": 3}], "type": "integer"}, [2, 3, 4, 9], [6, 5, 12]),
    ({"oneOf": [{"required": ["a"]}, {"required": ["b"]}], **OBJECT}, [{"a": 1}, {"b": 1, "c": 2}], [{}, {"a": 1, "b": 1}]),
    ({"not": {"type": "string"}}, [1, None, {}, []], ["a", ""]),
    ({**OBJECT, "not": {"required": ["a"]}}, [{}, {"b": 1}], [{"a": 1}]),
    ({**OBJECT, "properties": {"a": {"not": {"const": 1}}}}, [{"a": 2}, {"a": "1"}], [{"a": 1}]),
    ({"if": {"properties": {"k": {"const": 1}}, "required": ["k"]}, "then": {"required": ["x"]}, "else": {"required": ["y"]}, **OBJECT},
     [{"k": 1, "x": 0}, {"k": 2, "y": 0}, {"y": 0}], [{"k": 1}, {"k": 1, "y": 0}, {"k": 2, "x": 0}]),
    ({"allOf": [{"properties": {"a": {"type": "integer"}}}], "unevaluatedProperties": False, **OBJECT}, [{"a": 1}, {}], [{"b": 1}]),
    ({"anyOf": [{"properties": {"a": {"const": 1}}, "required": ["a"]}, {"properties": {"b": {"const": 2}}, "required": ["b"]}],
      "unevaluatedProperties": False, **OBJECT}, [{"a": 1}, {"b": 2}, {"a": 1, "b": 2}], [{"a": 1, "c": 2}, {"a": 1, "b": 3}]),
    ({"prefixItems": [True], "contains": {"type": "string"}, "unevaluatedItems": False, "type": "array"},
     [[1, "a"], [1, "a", "b"]], [[1], [1, "a", 2]]),
    ({"$defs": {"n": {"$anchor": "node", "type": "integer"}}, "$ref": "#node", "minimum": 3}, [3, 4], [2, "3"]),
    ({"$id": "http://x/y", "$ref": "z", "$defs": {"z": {"$id": "z", "type": "null"}}}, [None], [1]),
    (True, [1, {"a": []}], []),
    (False, [], [1, {}]),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "holding", "failing"), CASES, ids=lambda case: json.dumps(case)[:40])
def test_exactly_what_holds_can_be_written(
    schema: Any, holding: list[Any], failing: list[Any], accepts: Accepts
) -> None:
    for value in holding:
        jsonschema.Draft202012Validator(schema).validate(value)
        assert accepts(schema, value), value
        assert accepts(schema, value, whitespace="compact") or 1.0 in [value] or isinstance(value, float), value
    for value in failing:
        assert not accepts(schema, value), value
        assert not accepts(schema, value, whitespace="compact"), value


def test_multiples_are_exact_in_decimals(accepts: Accepts) -> None:
    assert accepts({"multipleOf": 0.01}, 0.07)  # not so in binary floating point
    assert accepts({"multipleOf": 1e-8}, 12391239123)
    assert not accepts({"type": "integer", "multipleOf": 0.123456789}, 1e308)


@pytest.mark.parametrize(
    ("schema", "value", "right"),
    [
        ({"$schema": "http://json-schema.org/draft-04/schema#", "type": "integer"}, 1.0, False),
        ({"$schema": "http://json-schema.org/draft-04/schema#", "minimum": 1, "exclusiveMinimum": True}, 1, False),
        ({"$schema": "http://json-schema.org/draft-04/schema#", "items": [{"type": "null"}], "additionalItems": False}, [None, 1], False),
        ({"$schema": "http://json-schema.org/draft-04/schema#", "id": "http://a/", "definitions": {"b": {"id": "b", "type": "null"}}, "$ref": "b"}, 1, False),
        ({"$schema": "http://json-schema.org/draft-07/schema#", "$ref": "#/definitions/a", "minimum": 5, "definitions": {"a": {"type": "integer"}}}, 1, True),
        ({"$schema": "https://json-schema.org/draft/2019-09/schema", "$recursiveAnchor": True, "properties": {"a": {"$recursiveRef": "#"}}, "type": "object"}, {"a": 1}, False),
        ({"$ref": "http://json-schema.org/draft-07/schema#"}, {"type": "object", "minLength": 1}, True),
        ({"$ref": "http://json-schema.org/draft-07/schema#"}, {"type": "objekt"}, False),
    ],
)  # fmt: skip
def test_older_drafts_mean_what_they_meant(schema: Any, value: Any, right: bool, accepts: Accepts) -> None:
    assert accepts(schema, value) == right


@pytest.mark.parametrize(
    ("format", "good", "bad"),
    [
        ("date", ["2024-02-29", "1999-12-31"], ["2023-02-29", "1999-1-1", "2024-13-01"]),
        ("date-time", ["2024-01-01T00:00:00Z", "1990-12-31T23:59:60Z"], ["2024-01-01", "2024-01-01T24:00:00Z"]),
        ("time", ["12:00:00.5+01:00", "00:29:60+00:30"][:1], ["12:00:00", "12:60:00Z"]),
        ("duration", ["P1Y2M", "PT1H", "P2W"], ["P", "PT", "P1H"]),
        ("email", ["a.b@c.org", '"a b"@c.org'], ["a@", "@b", "a..b@c"]),
        ("hostname", ["a-b.c"], ["-a", "a_b", "a" * 64]),
        ("ipv4", ["127.0.0.1"], ["256.0.0.1", "1.2.3"]),
        ("ipv6", ["::1", "1:2:3:4:5:6:7:8", "::ffff:1.2.3.4"], ["1::2::3", "12345::", ":::1"]),
        ("uri", ["https://a.b/c?d#e", "urn:x:y"], ["//a", "a b:c", "http://["]),
        ("uri-reference", ["/a/b", "#x", ""], ["\\a"]),
        ("uuid", ["2eb8aa08-aa98-11ea-b4aa-73b441d16380"], ["2eb8aa08aa9811eab4aa73b441d16380"]),
        ("json-pointer", ["", "/a~0b/~1"], ["a", "/~2"]),
        ("regex", ["^a(b|c)*[d-f]$"], ["^(abc]", "["]),
        ("what-nobody-knows", ["anything"], []),
    ],
)
def test_known_formats_hold_and_unknown_ones_are_ignored(
    format: str, good: list[str], bad: list[str], accepts: Accepts
) -> None:
    schema = {"type": "string", "format": format}
    assert [text for text in good if not accepts(schema, text)] == []
    assert [text for text in bad if accepts(schema, text)] == []


@pytest.mark.parametrize(
    ("schema", "where"),
    [
        ({"properties": {"a": {"type": "objekt"}}}, "/properties/a/type"),
        ({"properties": {"a/b": {"pattern": "(a"}}}, "/properties/a~1b/pattern"),
        ({"items": {"$ref": "http://elsewhere/x"}}, "/items/$ref"),
        ({"$ref": "#/definitions/gone"}, "/$ref"),
        ({"allOf": [{"minLength": -1}]}, "/allOf/0/minLength"),
        ({"patternProperties": {"(?=a)\\1": {}}}, "/patternProperties/(?=a)\\1"),
        ({"additionalProperties": 3}, "/additionalProperties"),
        ({"multipleOf": 0}, "/multipleOf"),
        ({"required": "a"}, "/required"),
    ],
)
def test_errors_name_the_keyword_by_its_pointer(schema: Any, where: str, vocabulary: Vocabulary) -> None:
    with pytest.raises(GrammarError) as error:
        compile({"json_schema": schema}, vocabulary)
    assert error.value.where == where
    assert where in str(error.value)


def test_a_schema_that_nothing_satisfies_is_known_to_be_empty(vocabulary: Vocabulary) -> None:
    recursive = {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}
    for schema in (False, recursive, {"type": "string", "minLength": 2, "maxLength": 1}, {"type": "null", "enum": [1]}):
        grammar = compile({"json_schema": schema}, vocabulary)
        assert grammar.is_empty() and not grammar.matcher().mask().any()


SIMPLE = st.sampled_from(
    [{"type": "integer", "minimum": 3}, {"type": "string", "maxLength": 2}, {"const": "ab"}, {"enum": [1, "a", None]},
     {"type": "boolean"}, True, {"type": "number", "multipleOf": 0.5}, {"type": "string", "pattern": "^a|b$"}]
)  # fmt: skip


def combined(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    pairs = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        *(pairs.map(lambda schemas, k=keyword: {k: schemas}) for keyword in ("anyOf", "oneOf", "allOf")),
        inner.map(lambda schema: {"not": schema}),
        inner.map(lambda schema: {"type": "array", "items": schema, "maxItems": 2}),
        inner.map(lambda schema: {"type": "array", "contains": schema, "maxItems": 3, "uniqueItems": True}),
        st.tuples(inner, inner).map(
            lambda two: {"type": "object", "properties": {"a": two[0]}, "additionalProperties": two[1]}
        ),
        inner.map(
            lambda schema: {
                "type": "object",
                "properties": {"a": schema, "b": True},
                "required": ["b"],
                "maxProperties": 2,
            }
        ),
        st.tuples(inner, inner, inner).map(lambda three: {"if": three[0], "then": three[1], "else": three[2]}),
    )


VALUES = st.recursive(
    st.sampled_from([None, True, 0, 1, 2.5, 3, 7, "", "a", "ab", "abc"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=300, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(schema=st.recursive(SIMPLE, combined, max_leaves=6), value=VALUES)
def test_any_combination_means_what_the_reference_validator_says(schema: Any, value: Any, accepts: Accepts) -> None:
    assert accepts(schema, value) == jsonschema.Draft202012Validator(schema).is_valid(value)


@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(schema=st.recursive(SIMPLE, combined, max_leaves=6), seed=st.integers(0, 99), compact=st.booleans())
def test_what_is_sampled_is_valid(schema: Any, seed: int, compact: bool, vocabulary: Vocabulary) -> None:
    grammar = compile(
        {"json_schema": schema}, vocabulary, whitespace="compact" if compact else "flexible", any_order=not compact
    )
    if grammar.is_empty():
        return
    try:
        text = grammar.sample(random.Random(seed), length=20)
    except GrammarError:
        return  # contradictions between branches are found late; an invalid text is never accepted
    jsonschema.Draft202012Validator(schema).validate(json.loads(text))


@pytest.mark.parametrize(
    "schema",
    [
        {"not": {"items": {"maximum": 10}}, "type": "array"},
        {"type": "object", "oneOf": [{"required": ["a"]}, {"properties": {"a": {"const": 1}}, "minProperties": 1}]},
    ],
)
def test_a_sample_does_not_walk_in_a_circle(schema: Any, vocabulary: Vocabulary) -> None:
    grammar = compile({"json_schema": schema}, vocabulary)
    for seed in range(5):
        text = grammar.sample(random.Random(seed), length=10)
        jsonschema.Draft202012Validator(schema).validate(json.loads(text))
