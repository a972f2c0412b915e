"""Tool calls in Python's syntax: what the grammar allows, how it is read back, and both over HTTP with a template of ours."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import jsonschema
import numpy as np
import openai
import pytest
from hypothesis import given, strategies as st
from scripted import Scripted

from sapwood.constrained import compile
from sapwood.constrained.grammar import Grammar
from sapwood.runtime.client import Client
from sapwood.runtime.fake import fake_tokenizer
from sapwood.runtime.server.errors import ApiError
from sapwood.runtime.server.pythonic import calls_grammar, rest_of_call_grammar, spelled, spelled_calls, value_of
from sapwood.runtime.server.reader import Pythonic

Serve = Callable[..., str]
TOKENIZER = fake_tokenizer()
HELLO: Any = [{"role": "user", "content": "weather?"}]
TREE = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 4}, "child": {"anyOf": [{"$ref": "#/$defs/tree"}, {"type": "null"}]}},
    "required": ["name"],
    "additionalProperties": False,
}  # fmt: skip
SCHEMAS: dict[str, Any] = {
    "get_weather": {
        "type": "object",
        "properties": {
            "city": {"enum": ["Oslo", "Rome", 'a "b" → c', None, True, 3]},
            "days": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 99}, "maxItems": 3},
            "metric": {"type": "boolean", "description": "or imperial"},
        },
        "required": ["city"],
        "additionalProperties": False,
    },
    "plan.trip-2": {
        "type": "object",
        "properties": {
            "tree": {"$ref": "#/$defs/tree"},
            "price": {"type": ["number", "null"], "minimum": 0, "maximum": 1000},
            "x-y": {"const": {"a": [False, None], "b": "c"}},
            "again": {"type": "array", "items": {"$ref": "#"}, "maxItems": 1},
            "trees": {"type": "array", "prefixItems": [{"$ref": "#/$defs/tree"}], "items": False},
            "open": {"type": "object", "additionalProperties": {"type": "boolean"}},
            "pair": {"type": "array", "items": {"type": "null"}, "minItems": 1, "maxItems": 2},
        },
        "required": ["price", "pair"],
        "$defs": {"tree": TREE},
        "additionalProperties": False,
    },
    "now": {"type": "object", "properties": {}, "additionalProperties": False},
}
TOOLS: Any = [
    {"type": "function", "function": {"name": name, "parameters": schema}} for name, schema in SCHEMAS.items()
]
TEMPLATE = """{%- if tools %}Answer or call: [func_name1(params_name1=params_value1), func_name2(params)]
{{ tools | tojson }}{% endif %}
{%- for message in messages %}<{{ message.role }}>{{ message.content }}
{%- if message.tool_calls %}[{% for call in message.tool_calls %}{{ call.function.name }}(
{%- for name, value in call.function.arguments.items() %}{{ name }}={{ value }}{% endfor %}){% endfor %}]{% endif %}
{%- endfor %}<assistant>"""


def compiled(source: str) -> Grammar:
    return compile({"lark": source}, TOKENIZER)


def sampled(grammar: Grammar, rng: random.Random) -> str:
    """A random text that matches; what is open is closed soon."""
    matcher, text = grammar.matcher(), b""
    while not matcher.is_done():
        allowed = np.flatnonzero(np.unpackbits(matcher.mask().view(np.uint8), bitorder="little")).tolist()
        closing = [id for id in allowed if id in b'"N)]}'] if len(text) > 100 or rng.random() < 0.2 else []
        id = rng.choice(closing or [id for id in allowed if id < 256] or allowed)
        matcher.advance(id)
        text += TOKENIZER.token_bytes[id]
    return text.decode()


def calls_in(pieces: list[str], names: Any = SCHEMAS) -> tuple[str, list[tuple[str, Any]]]:
    """The content and the calls of an answer that comes in pieces."""
    reader = Pythonic(names)
    content, calls = "", []
    for part in [part for piece in pieces for part in reader.push(piece)] + reader.finish():
        if part.kind == "content":
            content += part.text
        elif part.kind == "call":
            calls.append([part.text, ""])
        else:
            calls[-1][1] += part.text
    return content, [(name, json.loads(arguments)) for name, arguments in calls]


def cut(text: str, cuts: list[int]) -> list[str]:
    places = sorted({0, len(text), *(place % (len(text) + 1) for place in cuts)})
    return [text[a:b] for a, b in zip(places, places[1:], strict=False)]


@pytest.mark.parametrize("seed", range(30))
def test_whatever_the_grammar_allows_is_calls_that_are_valid_for_their_schemas(seed: int) -> None:
    rng = random.Random(seed)
    text = sampled(compiled(calls_grammar(SCHEMAS, text=False, several=True)), rng)
    content, calls = calls_in(cut(text, [rng.randrange(10_000) for _ in range(8)]))
    assert calls and not content
    for name, arguments in calls:
        jsonschema.validate(arguments, SCHEMAS[name])


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(value=json_values)
def test_a_value_is_read_as_it_was_spelled(value: Any) -> None:
    assert value_of(spelled(value)) == value
    assert value_of(json.dumps(value)) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("'it\\'s'", "it's"),
        ('"a\\/b \\ud83c\\udf32"', "a/b 🌲"),
        ('"a" "b"', "ab"),
        ("(1, -2.5)", [1, -2.5]),
        ("{'a': true, 1: None}", {"a": True, "1": None}),
    ],
)
def test_other_ways_of_writing_a_value_are_read_too(text: str, value: Any) -> None:
    assert value_of(text) == value


@pytest.mark.parametrize("text", ["", "Oslo", "f(1)", "1 +", "b'a'", "...", "[" * 1000, "x\0"])
def test_what_is_no_literal_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        value_of(text)


@given(
    arguments=st.dictionaries(st.sampled_from(["city", "x-y", "class"]), json_values, max_size=3),
    cuts=st.lists(st.integers(0, 500), max_size=8),
)
def test_calls_are_read_however_the_text_is_cut(arguments: dict[str, Any], cuts: list[int]) -> None:
    calls = [("get_weather", arguments), ("now", {}), ("plan.trip-2", arguments)]
    assert calls_in(cut(spelled_calls(calls), cuts)) == ("", calls)


@pytest.mark.parametrize(
    "text", ["[1, 2] is a list", "It is [now()]", "[other(a=1)]", "[now", "", "[now]", " [n](http://a)"]
)
def test_text_that_is_no_list_of_known_calls_is_content(text: str) -> None:
    assert calls_in(list(text)) == calls_in([text]) == (text, [])
    assert compiled(calls_grammar(SCHEMAS, text=True, several=True)).accepts(text)


def test_text_may_not_begin_like_a_call_and_be_none() -> None:
    either = compiled(calls_grammar(SCHEMAS, text=True, several=True))
    assert either.accepts(" [now()]") and either.accepts("[now(), now()]")
    for text in ("[now() and then", "[now(a=1)]", "[now()] there", '[get_weather(city="Bonn")]', "\n[now("):
        assert not either.accepts(text), text
    assert not compiled(calls_grammar(SCHEMAS, text=True, several=False)).accepts("[now(), now()]")
    assert not compiled(calls_grammar(SCHEMAS, text=False, several=True)).accepts("text")


def test_a_thought_may_come_before_and_what_follows_is_held_to_the_same() -> None:
    possible = compiled(calls_grammar(SCHEMAS, text=True, several=True, thought="possible"))
    opened = compiled(calls_grammar(SCHEMAS, text=True, several=True, thought="open"))
    for text in ("so [now( it is</think>\n\n[now()]", "so</think>It is late.", "so</think>"):
        assert possible.accepts(f"<think>{text}") and opened.accepts(text)
    for text in ("so</think>\n\n[now() or", "so</think>[now(a=1)]"):
        assert not possible.accepts(f"<think>{text}") and not opened.accepts(text)
    assert possible.accepts("[now()]") and possible.accepts("It is late.") and not possible.accepts("[now(")
    assert opened.accepts("it goes on")


def test_after_a_name_only_its_arguments_follow() -> None:
    rest = compiled(rest_of_call_grammar("get_weather", SCHEMAS["get_weather"]))
    assert rest.accepts('city="Oslo", metric=True)]') and rest.accepts("city=None, days=[1, 2])]")
    assert not rest.accepts(")]") and not rest.accepts("metric=True)]") and not rest.accepts('city="Oslo"), now()]')


@pytest.mark.parametrize(
    "schema",
    [{"allOf": [{}]}, {"properties": {"a": {}}, "minProperties": 1}, {"required": ["a"]}, {"properties": {"a=": {}}}],
)
def test_schemas_that_python_s_syntax_can_t_be_held_to_are_refused(schema: Any) -> None:
    with pytest.raises(ApiError, match="f (say|has)|of f say|Python's syntax"):
        calls_grammar({"f": schema}, text=False, several=True)


def test_parameters_that_are_no_schema_are_a_400(pythonic: Client, serve: Serve) -> None:
    for parameters in ({"properties": [1]}, {"properties": {"a": {"type": "array", "minItems": "b"}}}):
        tools: Any = [{"type": "function", "function": {"name": "f", "parameters": parameters}}]
        with (
            openai.OpenAI(base_url=serve(pythonic) + "/v1", api_key="none", max_retries=0) as ai,
            pytest.raises(openai.BadRequestError, match="no JSON Schema"),
        ):
            ai.chat.completions.create(model="m", messages=HELLO, tools=tools)


@pytest.fixture(scope="module")
def pythonic(backend: Client, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """The fake model's backend, with a template that shows calls in Python's syntax."""
    with Client.connect(backend.address) as client:
        client.tokenizer.chat_template = TEMPLATE
        yield client


def asked(url: str, stream: bool, **fields: Any) -> tuple[str, list[tuple[str, Any]], str | None]:
    """Content, calls and finish_reason of an answer."""
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as ai:
        if not stream:
            choice = ai.chat.completions.create(model="m", messages=HELLO, tools=TOOLS, **fields).choices[0]
            made: Any = choice.message.tool_calls or []
            found = [(one.function.name, json.loads(one.function.arguments)) for one in made]
            return choice.message.content or "", found, choice.finish_reason
        content, calls, reason = "", [], None
        for chunk in ai.chat.completions.create(model="m", messages=HELLO, tools=TOOLS, stream=True, **fields):
            delta = chunk.choices[0].delta
            content += delta.content or ""
            reason = chunk.choices[0].finish_reason or reason
            for call in delta.tool_calls or []:
                assert call.function
                if call.function.name:
                    calls.append([call.function.name, ""])
                calls[call.index][1] += call.function.arguments or ""
        return content, [(name, json.loads(arguments)) for name, arguments in calls], reason


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_required_call_is_valid_for_its_schema(pythonic: Client, serve: Serve, stream: bool, seed: int) -> None:
    fields: Any = {"tool_choice": "required", "parallel_tool_calls": False, "seed": seed, "max_tokens": 2000}
    content, ((name, arguments),), reason = asked(serve(pythonic), stream, **fields)
    assert reason == "tool_calls" and not content
    jsonschema.validate(arguments, SCHEMAS[name])


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", ["get_weather", "now"])
def test_a_named_tool_is_called(pythonic: Client, serve: Serve, stream: bool, name: str) -> None:
    choice: Any = {"type": "function", "function": {"name": name}}
    content, ((called, arguments),), reason = asked(serve(pythonic), stream, tool_choice=choice, seed=1)
    assert (called, content, reason) == (name, "", "tool_calls")
    jsonschema.validate(arguments, SCHEMAS[name])


@pytest.mark.parametrize("chunk_len", [1, 9, 1000])
@pytest.mark.parametrize("stream", [False, True])
def test_a_model_that_calls_of_its_own_will_is_heard(
    backend: Client, serve: Serve, stream: bool, chunk_len: int
) -> None:
    text = '[get_weather(city="Oslo", days=[1, 2]), now()]'
    script = Scripted(backend, text, template=TEMPLATE, chunk_len=chunk_len)
    content, calls, reason = asked(serve(script), stream)
    assert calls == [("get_weather", {"city": "Oslo", "days": [1, 2]}), ("now", {})]
    assert (content, reason) == ("", "tool_calls")
    assert script.sampling.grammar and compiled(script.sampling.grammar.text).accepts(text)
    assert "[func_name1(" in script.prompt


@pytest.mark.parametrize("stream", [False, True])
def test_a_model_that_answers_in_words_is_heard_too(backend: Client, serve: Serve, stream: bool) -> None:
    script = Scripted(backend, "[1] It is warm.", template=TEMPLATE)
    assert asked(serve(script), stream) == ("[1] It is warm.", [], "stop")


def test_a_template_without_tools_is_told_of_the_syntax(backend: Client, serve: Serve) -> None:
    called: Any = {"id": "c1", "type": "function", "function": {"name": "now", "arguments": '{"a": true}'}}
    messages: Any = [*HELLO, {"role": "assistant", "content": None, "tool_calls": [called]}, *HELLO]
    script = Scripted(backend, "It is late.", template="{% for m in messages %}{{ m.content }}\n{% endfor %}")
    url = serve(script, tool_format="pythonic")
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as ai:
        ai.chat.completions.create(model="m", messages=messages, tools=TOOLS)
    assert "[NAME(key=value, ...)]" in script.prompt and "[now(a=True)]" in script.prompt
