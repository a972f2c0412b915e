"""/generate keeps SGLang's contract. The fake model's prompts are a first token and one token a byte."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest

GREEDY = {"temperature": 0, "max_new_tokens": 6, "ignore_eos": True}


def events(http: httpx.Client, **body: Any) -> list[dict[str, Any]]:
    lines = [line for line in http.post("/generate", json={**body, "stream": True}).text.split("\n\n") if line]
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


def test_one_text_gives_one_object(http: httpx.Client) -> None:
    answer = http.post("/generate", json={"text": "hello", "sampling_params": GREEDY}).json()
    meta = answer["meta_info"]
    assert isinstance(answer["text"], str) and len(answer["output_ids"]) == 6
    assert meta["finish_reason"] == {"type": "length", "length": 6}
    assert meta["prompt_tokens"] == 6 and meta["completion_tokens"] == 6 and "cached_tokens" in meta


def test_lists_and_samples_come_in_order(http: httpx.Client) -> None:
    params = {**GREEDY, "temperature": 1, "n": 2, "sampling_seed": 4}
    answers = http.post("/generate", json={"text": ["one", "three"], "sampling_params": params}).json()
    assert [answer["meta_info"]["prompt_tokens"] for answer in answers] == [4, 4, 6, 6]
    assert answers[0]["text"] != answers[1]["text"]


def test_nulls_and_empty_values_mean_unset(http: httpx.Client) -> None:
    params = {
        **GREEDY,
        "regex": "",
        "json_schema": None,
        "stop": [],
        "top_k": -1,
        "stop_token_ids": [],
        "stop_regex": [],
    }
    plain = http.post("/generate", json={"text": "hello", "sampling_params": GREEDY}).json()
    assert http.post("/generate", json={"text": "hello", "sampling_params": params}).json()["text"] == plain["text"]


def test_no_new_tokens_only_reads_the_prompt(http: httpx.Client) -> None:
    body = {"text": "please remember this", "sampling_params": {"max_new_tokens": 0}}
    assert http.post("/generate", json=body).json()["text"] == ""
    again = http.post("/generate", json={"text": "please remember this too", "sampling_params": GREEDY}).json()
    assert again["meta_info"]["cached_tokens"] >= len("please remember this") - 1


def test_a_stream_repeats_the_text_and_sends_new_logprobs_only(http: httpx.Client) -> None:
    chunks = events(http, text="hello", sampling_params=GREEDY, return_logprob=True)
    whole = http.post("/generate", json={"text": "hello", "sampling_params": GREEDY, "return_logprob": True}).json()
    assert chunks[-1]["text"] == whole["text"]
    assert all(later["text"].startswith(earlier["text"]) for earlier, later in zip(chunks, chunks[1:], strict=False))
    new = [entry for chunk in chunks for entry in chunk["meta_info"]["output_token_logprobs"]]
    assert [entry[1] for entry in new] == whole["output_ids"]
    assert chunks[-1]["meta_info"]["output_token_logprobs_length"] == 6


def test_the_current_layout_begins_with_null(http: httpx.Client) -> None:
    body = {"text": "hello", "sampling_params": {"max_new_tokens": 0}, "return_logprob": True, "logprob_start_len": 4}
    entries = http.post("/generate", json={**body, "return_text_in_logprobs": True}).json()["meta_info"][
        "input_token_logprobs"
    ]
    assert [entry[2] for entry in entries] == ["l", "o"]
    assert entries[0][0] is None and entries[1][0] < 0


def test_the_legacy_layout_is_what_select_needs(serve: Callable[..., str]) -> None:
    with httpx.Client(base_url=serve(logprob_layout="legacy"), timeout=30) as http:
        body = {
            "text": ["hello"],
            "sampling_params": {"max_new_tokens": 0},
            "return_logprob": True,
            "logprob_start_len": 3,
        }
        (answer,) = http.post("/generate", json={**body, "return_text_in_logprobs": True}).json()
        assert [entry[2] for entry in answer["meta_info"]["input_token_logprobs"]] == ["l", "o"]
        assert all(entry[0] < 0 for entry in answer["meta_info"]["input_token_logprobs"])
        alone = {"input_ids": [104, 105], "sampling_params": {"max_new_tokens": 0}, "return_logprob": True}
        entries = http.post("/generate", json=alone).json()["meta_info"]["input_token_logprobs"]
        assert entries[0][0] is None and entries[1][0] < 0


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"text": "a", "input_ids": [1]},
        {"text": "a", "sampling_params": {"max_tokens": 3}},
        {"text": ""},
        {"text": []},
    ],
)
def test_what_breaks_the_contract_is_a_400(http: httpx.Client, body: dict[str, Any]) -> None:
    response = http.post("/generate", json=body)
    assert response.status_code == 400 and response.json()["error"]["message"]


def test_an_aborted_request_ends_with_what_it_has(http: httpx.Client) -> None:
    body = {"text": "on and on", "rid": "mine-1", "sampling_params": {"max_new_tokens": 10**6, "ignore_eos": True}}
    answers: list[dict[str, Any]] = []
    thread = threading.Thread(target=lambda: answers.append(http.post("/generate", json=body).json()))
    thread.start()
    deadline = time.monotonic() + 10
    while not http.post("/abort_request", json={"rid": "mine"}).json()["aborted"]:
        assert thread.is_alive() and time.monotonic() < deadline
        time.sleep(0.01)
    thread.join(10)
    assert answers[0]["meta_info"]["finish_reason"]["type"] == "abort"


def test_tokens_and_text_turn_into_each_other(http: httpx.Client) -> None:
    ids = http.post("/tokenize", json={"prompt": "héllo"}).json()
    assert ids["count"] == len(ids["tokens"])
    assert http.post("/detokenize", json={"tokens": ids["tokens"]}).json()["text"] == "héllo"


def test_scores_are_probabilities_of_labels(http: httpx.Client) -> None:
    body = {"query": "is it ", "items": ["good?", "bad?"], "label_token_ids": [65, 66, 67]}
    plain = http.post("/v1/score", json=body).json()["scores"]
    shares = http.post("/v1/score", json={**body, "apply_softmax": True}).json()["scores"]
    assert all(0 < value < 1 for row in plain for value in row)
    assert all(sum(row) == pytest.approx(1) for row in shares)


def test_the_server_says_what_it_is(http: httpx.Client) -> None:
    assert http.get("/get_model_info").json()["is_generation"] is True
    assert "api_keys" not in http.get("/server_info").json()
    assert http.get("/health_generate").status_code == 200
    assert http.post("/flush_cache").status_code == 200
