"""No input may stall or kill: everything ends soon, with a grammar or a clean error."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from sapwood.constrained import GrammarError, Stop, Vocabulary, compile
from sapwood.constrained.cache import GrammarCache


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


def doubling(depth: int) -> dict[str, Any]:
    """Two to the power of `depth` paths through a small document."""
    steps = {
        f"x{i}": {"allOf": [{"$ref": f"#/$defs/x{i - 1}"}] * 2, "anyOf": [{"$ref": f"#/$defs/x{i - 1}"}] * 2}
        for i in range(1, depth)
    }
    return {"$ref": f"#/$defs/x{depth - 1}", "$defs": {"x0": {"type": "object"}, **steps}}


# Two to the power of 24 states to be searched in vain.
ENDLESS = "(?=[ab]*a[ab]{23}$)[ab]*b[ab]{23}"
BOMBS: dict[str, dict[str, Any]] = {
    "star of stars": {"regex": "(a*)*b"},
    "repeats of repeats": {"regex": "((a{1,100}){1,100}){1,100}"},
    "a thousand": {"regex": "[a-z]{1,1000}"},
    "exponential states": {"regex": "(a|b)*a(a|b){25}"},
    "look-around in a loop": {"regex": r"(?:(?=.*a)(?=.*b)(?!.*c)[a-d])*x"},
    "parentheses": {"regex": "(" * 5000 + ")" * 5000},
    "long texts": {"json_schema": {"type": "string", "maxLength": 10_000, "pattern": "^(ab)*$", "minLength": 9_999}},
    "long lists": {"json_schema": {"type": "array", "minItems": 10**9, "items": {"type": "integer"}}},
    "ten thousand values": {"json_schema": {"enum": [f"value {i}" for i in range(10_000)]}},
    "ten thousand choices": {"choices": [f"value {i}" for i in range(10_000)]},
    "deep": {"json_schema": nested(300)},
    "too deep": {"json_schema": '{"items":' * 100_000 + "{}" + "}" * 100_000},
    "doubling": {"json_schema": doubling(24)},
    "many keys": {"json_schema": {"type": "object", "properties": {f"k{i}": {} for i in range(3000)}, "required": [f"k{i}" for i in range(3000)]}},
}  # fmt: skip


def chain(rule: str, last: str, first: str, depth: int) -> str:
    return "".join(rule.format(i, i + 1) + "\n" for i in range(depth)) + last.format(depth) + "\n" + first + "\n"


def chained_references(depth: int) -> dict[str, Any]:
    steps = {f"d{i}": {"type": "object", "properties": {"a": {"$ref": f"#/$defs/d{i + 1}"}}} for i in range(depth)}
    schema = {"$ref": "#/$defs/d0", "$defs": {**steps, f"d{depth}": {}}}
    return {"structures": [{"begin": "<f>", "schema": schema, "end": "</f>"}], "triggers": ["<f"]}


# The first of each pair would end the process if the parser were given it.
GENERAL_BOMBS: dict[str, dict[str, Any]] = {
    "a chain of rules": {"lark": chain("r{}: r{} ", 'r{}: "a"', "start: r0", 40_000)},
    "as many rules as may be": {"lark": chain('r{}: "b" r{}', 'r{}: "a"', "start: r0", 990)},
    "a chain of GBNF rules": {"gbnf": chain('r{} ::= "b" r{}', 'r{} ::= "a"', "root ::= r0", 40_000)},
    "a chain of references": {"structural_tag": chained_references(5000)},
    "as many references as may be": {"structural_tag": chained_references(390)},
    "nested grammar": {"lark": "start: " + "(" * 20_000 + '"a"' + ")" * 20_000},
    "nested EBNF": {"ebnf": "root ::= " + "(" * 20_000 + '"a"' + ")" * 20_000},
    "ambiguous": {"lark": 'start: e\ne: e e | e e e | "a"'},
    "many alternatives": {"lark": "start: " + " | ".join(f'"v{i}"' for i in range(20_000))},
    "stars in a row": {"lark": "start: " + "(a|b)* " * 3000 + '\na: "x"\nb: "y"'},
    "repeats of repeats of rules": {"lark": "start: x{1,1000}\nx: y{1,1000}\ny: /[a-z]/{1,1000}"},
}
BOMBS.update(GENERAL_BOMBS)


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_ends_soon_and_cleanly(name: str, vocabulary: Vocabulary) -> None:
    begin = time.monotonic()
    try:
        matcher = compile(BOMBS[name], vocabulary, timeout=2.0).matcher()
        for _ in range(5):
            ids = [i for i, word in enumerate(matcher.mask().tolist()) if word]
            matcher.forced()
            if not ids or matcher.is_done():
                break
            word = int(matcher.mask()[ids[-1]])
            matcher.advance(32 * ids[-1] + word.bit_length() - 1)
    except GrammarError as error:
        assert len(str(error)) < 1000
    assert time.monotonic() - begin < 15


def test_what_a_parser_gives_up_is_a_clean_error(vocabulary: Vocabulary) -> None:
    matcher = compile(GENERAL_BOMBS["many alternatives"], vocabulary).matcher()
    with pytest.raises(GrammarError, match="can't be followed further"):
        matcher.advance(vocabulary.token_bytes.index(b"v"))


@settings(max_examples=200, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(pattern=st.text("ab()[]{}|*+?^$.\\-,1d", max_size=25))
def test_any_text_is_a_pattern_or_a_clean_error(pattern: str, vocabulary: Vocabulary) -> None:
    try:
        compile({"regex": pattern}, vocabulary, timeout=1.0).matcher().mask()
    except GrammarError as error:
        assert error.where is None or 0 <= int(error.where) <= len(pattern)


JUNK = st.recursive(
    st.sampled_from([None, True, -1, 2.5, "", "string", "#", "(", "http://x", 10**30]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["type", "properties", "items", "enum", "$ref", "allOf", "not", "required", "pattern", "$id", "if", "minimum",
                         "additionalProperties", "patternProperties", "unevaluatedItems", "contains", "multipleOf", "$anchor"]),
        inner, max_size=4,
    ),
    max_leaves=12,
)  # fmt: skip


@settings(max_examples=300, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(schema=JUNK)
def test_any_json_is_a_schema_or_a_clean_error(schema: Any, vocabulary: Vocabulary) -> None:
    try:
        compile({"json_schema": schema}, vocabulary, timeout=1.0).matcher().mask()
    except GrammarError as error:
        assert str(error)


@pytest.mark.parametrize(
    "spec",
    [{}, {"regex": "a", "choices": ["b"]}, {"sql": "x"}, {"choices": []}, {"json_schema": "{"}, {"choices": "nope"}],
)
def test_a_malformed_spec_is_a_clean_error(spec: dict[str, Any], vocabulary: Vocabulary) -> None:
    with pytest.raises(GrammarError):
        compile(spec, vocabulary)


def test_the_cache_forgets_what_was_used_longest_ago() -> None:
    cache: GrammarCache[int] = GrammarCache(capacity=2)
    made: list[str] = []

    def get(key: str) -> int:
        return cache.get(key, lambda: made.append(key) or len(made))

    assert [get("a"), get("b"), get("a"), get("c"), get("a"), get("b")] == [1, 2, 1, 3, 1, 4]


def test_the_same_spec_is_compiled_once(vocabulary: Vocabulary) -> None:
    spec = {"json_schema": {"type": "string", "const": "once"}}
    assert compile(spec, vocabulary) is compile(spec, vocabulary)
    assert compile(spec, vocabulary) is not compile(spec, vocabulary, whitespace="compact")


def test_a_compile_is_stopped_from_another_thread(vocabulary: Vocabulary) -> None:
    stop = Stop()
    timer = threading.Timer(0.2, stop.set)
    timer.start()
    begin = time.monotonic()
    with pytest.raises(GrammarError, match="cancelled"):
        compile({"regex": ENDLESS}, vocabulary, timeout=60.0, stop=stop)
    timer.join()
    assert time.monotonic() - begin < 5
