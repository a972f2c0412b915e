"""Responses, Anthropic's and Ollama's APIs say the same things in their own words."""

from __future__ import annotations

import json
import time
from typing import Any

import httpx
import openai
import pytest

HELLO = [{"role": "user", "content": "hello"}]
TOOL = {
    "name": "get_weather",
    "input_schema": {"type": "object", "properties": {"city": {"enum": ["Oslo", "Rome"]}}, "required": ["city"]},
}


def named_events(text: str) -> list[tuple[str, dict[str, Any]]]:
    found = []
    for block in text.strip().split("\n\n"):
        name, data = block.split("\n")
        found.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return found


def test_a_response_can_be_asked_for_again(ai: openai.OpenAI) -> None:
    made = ai.responses.create(model="m", input="hello", max_output_tokens=6, instructions="be brief")
    assert made.usage and made.usage.output_tokens <= 6
    assert ai.responses.retrieve(made.id).output_text == made.output_text
    following = ai.responses.create(model="m", input="and?", previous_response_id=made.id, max_output_tokens=2)
    assert following.usage and following.usage.input_tokens > made.usage.input_tokens
    with pytest.raises(openai.NotFoundError):
        ai.responses.retrieve("resp_nothing")


def test_a_streamed_response_tells_of_its_growth_in_order(ai: openai.OpenAI) -> None:
    with ai.responses.stream(model="m", input="hello", extra_body={"regex": "[a-z]{8}"}) as stream:
        events = list(stream)
        final = stream.get_final_response()
    assert events[0].type == "response.created"
    assert events[-1].type == "response.completed" and len(final.output_text) == 8
    numbers = [event.sequence_number for event in events]
    assert numbers == list(range(len(numbers)))
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == final.output_text


def test_a_response_follows_a_text_format(ai: openai.OpenAI) -> None:
    form: Any = {"format": {"type": "json_schema", "name": "x", "schema": {"enum": ["red", "blue"]}}}
    assert json.loads(ai.responses.create(model="m", input="hello", text=form).output_text) in ("red", "blue")


def test_a_background_response_can_be_cancelled(ai: openai.OpenAI) -> None:
    body = {"ignore_eos": True}
    made = ai.responses.create(model="m", input="hello", background=True, max_output_tokens=100_000, extra_body=body)
    assert made.status == "in_progress"
    assert ai.responses.cancel(made.id).status == "cancelled"
    assert ai.responses.retrieve(made.id).status == "cancelled"


def test_a_background_response_completes(ai: openai.OpenAI) -> None:
    made = ai.responses.create(model="m", input="hello", background=True, extra_body={"regex": "done"})
    deadline = time.monotonic() + 10
    while (found := ai.responses.retrieve(made.id)).status == "in_progress" and time.monotonic() < deadline:
        time.sleep(0.01)
    assert (found.status, found.output_text) == ("completed", "done")


def test_anthropic_messages(http: httpx.Client) -> None:
    body = {"model": "m", "max_tokens": 5, "messages": HELLO, "system": [{"type": "text", "text": "be brief"}]}
    answer = http.post("/v1/messages", json=body).json()
    assert answer["type"] == "message" and answer["role"] == "assistant"
    assert answer["usage"]["output_tokens"] <= 5
    count = http.post("/v1/messages/count_tokens", json={"model": "m", "messages": HELLO}).json()
    assert count["input_tokens"] > 0


def test_anthropic_streams_blocks(http: httpx.Client) -> None:
    body = {"model": "m", "max_tokens": 8, "messages": HELLO, "stream": True}
    names = [name for name, _ in named_events(http.post("/v1/messages", json=body).text)]
    assert names[0] == "message_start" and names[-2:] == ["message_delta", "message_stop"]
    assert names.count("content_block_start") == names.count("content_block_stop")


def test_anthropic_calls_a_tool(http: httpx.Client) -> None:
    choice = {"type": "tool", "name": "get_weather"}
    body = {"max_tokens": 99, "messages": HELLO, "tools": [TOOL], "tool_choice": choice}
    answer = http.post("/v1/messages", json=body).json()
    (block,) = answer["content"]
    assert answer["stop_reason"] == "tool_use"
    assert block["name"] == "get_weather" and block["input"]["city"] in ("Oslo", "Rome")
    streamed = named_events(http.post("/v1/messages", json={**body, "stream": True}).text)
    pieces = [data["delta"]["partial_json"] for name, data in streamed if name == "content_block_delta"]
    assert json.loads("".join(pieces))["city"] in ("Oslo", "Rome")


def test_anthropic_refuses_in_its_own_envelope(http: httpx.Client) -> None:
    response = http.post("/v1/messages", json={"max_tokens": 5, "messages": []})
    assert response.status_code == 400
    assert response.json()["type"] == "error" and response.json()["error"]["type"] == "invalid_request_error"


def test_ollama_chat_streams_lines(http: httpx.Client) -> None:
    body = {"model": "m", "messages": HELLO, "options": {"num_predict": 6, "seed": 1}}
    lines = [json.loads(line) for line in http.post("/api/chat", json=body).text.splitlines()]
    assert [line["done"] for line in lines] == [False] * (len(lines) - 1) + [True]
    whole = http.post("/api/chat", json={**body, "stream": False}).json()
    assert "".join(line["message"]["content"] for line in lines) == whole["message"]["content"]
    assert whole["eval_count"] == lines[-1]["eval_count"]


def test_ollama_honours_a_format(http: httpx.Client) -> None:
    body = {"prompt": "x", "stream": False, "format": {"enum": ["a", "b"]}}
    assert json.loads(http.post("/api/generate", json=body).json()["response"]) in ("a", "b")
    assert http.post("/api/generate", json={**body, "format": "xml"}).status_code == 400


def test_ollama_embeds_texts(http: httpx.Client) -> None:
    rows = http.post("/api/embed", json={"input": ["one", "two"], "dimensions": 8}).json()["embeddings"]
    assert [len(row) for row in rows] == [8, 8] and rows[0] != rows[1]


def test_ollama_lists_and_shows_the_model(http: httpx.Client) -> None:
    (model,) = http.get("/api/tags").json()["models"]
    assert http.post("/api/show", json={"model": model["name"]}).json()["details"]["family"]
    assert http.post("/api/show", json={"model": "other"}).status_code == 404
