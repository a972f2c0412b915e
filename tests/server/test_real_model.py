"""The official client on the default model: answers that make sense, records by schema, calls of tools."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from pydantic import BaseModel

from sapwood.runtime.client import Client


class Person(BaseModel):
    name: str
    age: int


@pytest.fixture(scope="module")
def smollm2(smollm2_path: Path) -> Iterator[Client]:
    with Client.launch(str(smollm2_path), num_slots=4096) as client:
        yield client


@pytest.fixture
def real(smollm2: Client, serve: Callable[..., str]) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=serve(smollm2) + "/v1", api_key="none", max_retries=0) as client:
        yield client


def test_a_question_is_answered_and_its_second_turn_reuses_the_first(real: openai.OpenAI) -> None:
    messages: Any = [{"role": "user", "content": "What is the capital of France? Answer in one word."}]
    first = real.chat.completions.create(model="m", messages=messages, temperature=0, max_tokens=20)
    text = first.choices[0].message.content
    assert text and "Paris" in text
    messages += [{"role": "assistant", "content": text}, {"role": "user", "content": "And of Italy?"}]
    second = real.chat.completions.create(model="m", messages=messages, temperature=0, max_tokens=20)
    assert first.usage and second.usage and second.usage.prompt_tokens_details
    cached = second.usage.prompt_tokens_details.cached_tokens
    assert cached is not None and cached >= first.usage.prompt_tokens


def test_a_record_is_extracted_and_parsed(real: openai.OpenAI) -> None:
    text = "Extract the person from: 'My neighbour Anna turned 41 yesterday.'"
    messages: Any = [{"role": "user", "content": text}]
    answer = real.chat.completions.parse(
        model="m", messages=messages, response_format=Person, temperature=0, max_tokens=60
    )
    person = answer.choices[0].message.parsed
    assert person is not None and person.name == "Anna" and person.age > 0  # a model of this size guesses ages


def test_a_tool_is_called_with_arguments_by_its_schema(real: openai.OpenAI) -> None:
    city = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 20}}, "required": ["city"]}
    tools: Any = [{"type": "function", "function": {"name": "get_weather", "parameters": city}}]
    messages: Any = [{"role": "user", "content": "What is the weather in Oslo?"}]
    answer = real.chat.completions.create(
        model="m", messages=messages, tools=tools, tool_choice="required", temperature=0, max_tokens=60
    )
    calls: Any = answer.choices[0].message.tool_calls
    assert calls[0].function.name == "get_weather" and "city" in json.loads(calls[0].function.arguments)
