"""Tool calls are valid for their schema, and told apart from text while they are being written."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import msgspec
import openai
import pytest
from hypothesis import given, strategies as st

from sapwood.constrained import compile
from sapwood.runtime.fake import fake_tokenizer
from sapwood.runtime.server.chat_fields import ChatRequest, prepare
from sapwood.runtime.server.config import ServerConfig
from sapwood.runtime.server.reader import Calls, Part, Reader, Reasoning
from sapwood.runtime.server.service import Service
from sapwood.runtime.server.tools import (
    HERMES,
    LLAMA3,
    MISTRAL,
    PYTHONIC,
    Function,
    Tool,
    ToolFormat,
    format_of,
    plan_tools,
)

HELLO: Any = [{"role": "user", "content": "weather?"}]
CITY = {
    "type": "object",
    "properties": {"city": {"enum": ["Oslo", "Rome"]}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOLS: Any = [
    {"type": "function", "function": {"name": "get_weather", "parameters": CITY}},
    {"type": "function", "function": {"name": "get_time", "parameters": CITY}},
]


def pieces(text: str, cuts: list[int]) -> list[str]:
    places = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    return [text[a:b] for a, b in zip(places, places[1:], strict=False)]


def read(reader: Reader, texts: list[str]) -> list[tuple[str, str]]:
    """All parts, neighbours of one kind joined."""
    parts = [part for text in texts for part in reader.push(text)] + reader.finish()
    joined: list[Part] = []
    for part in parts:
        if joined and joined[-1].kind == part.kind and part.kind != "call":
            joined[-1] = Part(part.kind, joined[-1].text + part.text)
        else:
            joined.append(part)
    return [(part.kind, part.text) for part in joined]


@pytest.mark.parametrize("format", [HERMES, LLAMA3, MISTRAL])
@given(cuts=st.lists(st.integers(0, 500), max_size=8), text=st.text(st.characters(codec="utf-8"), max_size=20))
def test_a_call_is_found_however_the_text_is_cut(format: ToolFormat, cuts: list[int], text: str) -> None:
    arguments = json.dumps({"city": text, "deep": [{"a": "}"}]})
    whole = f"Let me look. {format.opening('get_weather')}{arguments}{format.end}"
    expected = [("content", "Let me look. "), ("call", "get_weather"), ("arguments", arguments)]
    assert read(Calls(format), pieces(whole, cuts)) == expected


@given(cuts=st.lists(st.integers(0, 200), max_size=8))
def test_text_that_only_looks_like_a_call_stays_text(cuts: list[int]) -> None:
    text = "The tag <tool_call> is written so; a <tool_c is none. " + "x" * 300
    assert read(Calls(HERMES), pieces(text, cuts)) == [("content", text)]


@given(cuts=st.lists(st.integers(0, 200), max_size=8))
def test_reasoning_ends_where_its_tag_does(cuts: list[int]) -> None:
    text = "<think>2 < 3, so</think>\n\nYes."
    assert read(Reasoning(Calls(HERMES)), pieces(text, cuts)) == [("reasoning", "2 < 3, so"), ("content", "Yes.")]


def test_reasoning_may_begin_in_the_prompt() -> None:
    parts = read(Reasoning(Calls(HERMES), inside=True), ["so it is</think>yes"])
    assert parts == [("reasoning", "so it is"), ("content", "yes")]


@pytest.mark.parametrize(("fields", "thinking"), [({}, True), ({"regex": "yes"}, False), ({"choices": ["a"]}, False)])
def test_a_think_tag_that_the_template_opens_is_closed_before_a_grammar(fields: dict[str, Any], thinking: bool) -> None:
    tokenizer = fake_tokenizer()
    tokenizer.chat_template = "{{ messages[-1]['content'] }}<think>"
    info = SimpleNamespace(vocab_size=tokenizer.vocab_size, context_length=4096)
    service: Any = Service(SimpleNamespace(tokenizer=tokenizer, info=info), ServerConfig())  # type: ignore[arg-type]
    chat = prepare(service, ChatRequest(messages=HELLO, **fields))
    text = tokenizer.decode(chat.jobs[0].ids)
    assert chat.thinking is thinking and chat.reasoning is thinking
    assert text.endswith("<think>" if thinking else "</think>\n\n")


def test_the_format_is_found_from_the_template() -> None:
    assert format_of("... <tool_call> ...") is HERMES
    assert format_of("[TOOL_CALLS]") is MISTRAL
    assert format_of("ipython: [func_name1(params_name1=params_value1)]") is PYTHONIC
    assert format_of("<|python_tag|>") is LLAMA3
    assert format_of(None) is HERMES


@pytest.mark.parametrize("format", [HERMES, LLAMA3, MISTRAL])
def test_without_parallel_calls_nothing_follows_the_first(format: ToolFormat) -> None:
    tools = msgspec.convert(TOOLS, list[Tool])
    call = format.opening("get_time") + '{"city":"Oslo"}' + format.end
    for parallel in (True, False):
        plan = plan_tools(tools, "auto", parallel, format)
        spec = plan.grammar()
        assert spec is not None
        grammar = compile({spec.kind: spec.text}, fake_tokenizer())
        assert grammar.accepts("Just text.") and grammar.accepts(f"Let me see. {call}")
        assert grammar.accepts(call + call) is parallel
        assert not grammar.accepts(call.replace("Oslo", "Bonn"))


def test_a_tool_without_parameters_takes_an_empty_object() -> None:
    assert Tool(Function("now")).function.schema()["properties"] == {}


@pytest.mark.parametrize("stream", [False, True])
def test_a_named_tool_is_called(ai: openai.OpenAI, stream: bool) -> None:
    choice: Any = {"type": "function", "function": {"name": "get_time"}}
    ((name, arguments),) = call(ai, stream, tool_choice=choice)
    assert name == "get_time" and json.loads(arguments)["city"] in ("Oslo", "Rome")


@pytest.mark.parametrize("stream", [False, True])
def test_a_required_call_is_one_of_the_tools(ai: openai.OpenAI, stream: bool) -> None:
    ((name, arguments),) = call(ai, stream, tool_choice="required", parallel_tool_calls=False)
    assert name in ("get_weather", "get_time") and json.loads(arguments)["city"] in ("Oslo", "Rome")


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "visit"}}])
def test_references_within_a_tools_schema_hold(ai: openai.OpenAI, choice: Any) -> None:
    place = {"type": "object", "properties": {"city": {"enum": ["Oslo"]}}, "required": ["city"]}
    schema = {
        "type": "object",
        "properties": {"place": {"$ref": "#/$defs/place"}},
        "required": ["place"],
        "$defs": {"place": place},
    }
    tools: Any = [{"type": "function", "function": {"name": "visit", "parameters": schema}}]
    fields: Any = {"tool_choice": choice, "parallel_tool_calls": False}
    answer = ai.chat.completions.create(model="m", messages=HELLO, tools=tools, **fields)
    calls: Any = answer.choices[0].message.tool_calls
    assert json.loads(calls[0].function.arguments) == {"place": {"city": "Oslo"}}


def call(ai: openai.OpenAI, stream: bool, **fields: Any) -> list[tuple[str, str]]:
    """The calls that an answer makes, as (name, arguments)."""
    if not stream:
        answer = ai.chat.completions.create(model="m", messages=HELLO, tools=TOOLS, **fields)
        assert answer.choices[0].finish_reason == "tool_calls"
        calls: Any = answer.choices[0].message.tool_calls
        return [(one.function.name, one.function.arguments) for one in calls]
    found: list[list[str]] = []
    for chunk in ai.chat.completions.create(model="m", messages=HELLO, tools=TOOLS, stream=True, **fields):
        for delta in chunk.choices[0].delta.tool_calls or []:
            assert delta.function
            if delta.function.name:
                found.append([delta.function.name, ""])
            found[delta.index][1] += delta.function.arguments or ""
    return [(name, arguments) for name, arguments in found]


def test_a_conversation_with_results_goes_on(ai: openai.OpenAI) -> None:
    called: Any = {"id": "c1", "type": "function", "function": {"name": "get_time", "arguments": '{"city": "Oslo"}'}}
    messages: Any = [
        *HELLO,
        {"role": "assistant", "content": None, "tool_calls": [called]},
        {"role": "tool", "tool_call_id": "c1", "content": "12:00"},
    ]
    answer = ai.chat.completions.create(model="m", messages=messages, tools=TOOLS, tool_choice="none", max_tokens=3)
    assert answer.choices[0].message.tool_calls is None
