"""Bad input gets a fitting status and one sentence, in OpenAI's nested form, and nothing half-done."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

HELLO = [{"role": "user", "content": "hello"}]
CASES: list[tuple[dict[str, Any], str | None, str]] = [
    ({"temperature": 3}, "temperature", "2.0"),
    ({"max_tokens": -1}, "max_tokens", "0"),
    ({"messages": []}, "messages", "empty"),
    ({"messages": [{"role": "pirate", "content": "arr"}]}, "messages[0].role", "pirate"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content[0]", "text only"),
    ({"response_format": {"type": "xml"}}, "response_format.type", "json_schema"),
    ({"response_format": {"type": "json_schema"}}, "response_format.json_schema.schema", "missing"),
    ({"regex": "a", "choices": ["b"]}, "regex", "can't be combined"),
    ({"regex": "(("}, None, ""),
    ({"json_schema": {"type": "nonsense"}}, None, ""),
    ({"lark": "start: ("}, None, ""),
    ({"n": 0}, "n", "1"),
    ({"top_logprobs": 3}, "top_logprobs", "logprobs"),
    ({"stop": ["x"] * 40}, "stop", "32"),
    ({"tool_choice": "required"}, "tool_choice", "tools"),
    ({"messages": [{"role": "user", "content": "x" * 100_000}]}, "messages", "context length"),
]


@pytest.mark.parametrize(("fields", "param", "part"), CASES)
@pytest.mark.parametrize("stream", [False, True])
def test_a_bad_chat_request_is_a_400(
    http: httpx.Client, fields: dict[str, Any], param: str | None, part: str, stream: bool
) -> None:
    response = http.post("/v1/chat/completions", json={"messages": HELLO, "max_tokens": 4, "stream": stream, **fields})
    error = response.json()["error"]
    assert response.status_code == 400, error
    assert error["type"] == "invalid_request_error" and error["param"] == param
    assert part in error["message"]


@pytest.mark.parametrize(
    "fields",
    [{"prompt": ""}, {"prompt": []}, {"prompt": [1, "a"]}, {"prompt": [10**6]}, {"prompt": "a", "suffix": "b"}, {}],
)
def test_a_bad_completion_request_is_a_400(http: httpx.Client, fields: dict[str, Any]) -> None:
    response = http.post("/v1/completions", json=fields)
    assert response.status_code == 400 and response.json()["error"]["message"]


def test_a_body_that_is_no_json_is_a_400(http: httpx.Client) -> None:
    response = http.post("/v1/chat/completions", content=b"{messages: 1}")
    assert response.status_code == 400 and "JSON" in response.json()["error"]["message"]


def test_unknown_paths_and_methods_answer_in_the_same_form(http: httpx.Client) -> None:
    assert http.get("/v1/nothing").json()["error"]["type"] == "not_found_error"
    wrong = http.get("/v1/chat/completions")
    assert wrong.status_code == 405 and wrong.json()["error"]["message"]


def test_a_deadline_that_passes_is_a_408(http: httpx.Client) -> None:
    body = {"messages": HELLO, "max_tokens": 10_000, "ignore_eos": True, "timeout": 0.001}
    response = http.post("/v1/chat/completions", json=body)
    assert response.status_code == 408 and response.json()["error"]["type"] == "timeout_error"
