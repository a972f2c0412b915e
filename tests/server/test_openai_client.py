"""What the official client does, it does against a real server."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from pydantic import BaseModel

HELLO: Any = [{"role": "user", "content": "hello"}]
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 5}, "age": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


def test_models_are_listed_and_found_by_name(ai: openai.OpenAI) -> None:
    (model,) = ai.models.list().data
    assert ai.models.retrieve(model.id) == model
    with pytest.raises(openai.NotFoundError, match="not served here"):
        ai.models.retrieve("another")


def test_an_answer_has_content_a_reason_and_counts(ai: openai.OpenAI) -> None:
    answer = ai.chat.completions.create(
        model="m", messages=HELLO, max_completion_tokens=8, extra_body={"ignore_eos": True}
    )
    (choice,) = answer.choices
    assert choice.finish_reason == "length" and choice.message.role == "assistant"
    assert answer.usage and answer.usage.completion_tokens == 8
    assert answer.usage.prompt_tokens_details and answer.usage.prompt_tokens_details.cached_tokens is not None


def test_a_second_request_finds_its_prompt_in_the_tree(ai: openai.OpenAI) -> None:
    text = "the quick brown fox jumps over the lazy dog " * 3
    first = ai.completions.create(model="m", prompt=text, max_tokens=1)
    second = ai.completions.create(model="m", prompt=text, max_tokens=1)
    assert first.usage and second.usage and second.usage.prompt_tokens_details
    assert second.usage.prompt_tokens_details.cached_tokens is not None
    assert second.usage.prompt_tokens_details.cached_tokens >= second.usage.prompt_tokens - 1


def test_a_stream_says_the_same_as_a_whole_answer(ai: openai.OpenAI) -> None:
    fields: Any = {"model": "m", "messages": HELLO, "max_tokens": 24, "temperature": 1, "seed": 7}
    whole = ai.chat.completions.create(**fields)
    chunks = list(ai.chat.completions.create(**fields, stream=True, stream_options={"include_usage": True}))
    streamed = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert streamed == whole.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-2].choices[0].finish_reason == whole.choices[0].finish_reason
    assert not chunks[-1].choices and chunks[-1].usage and whole.usage
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens


def test_a_stream_without_usage_asked_for_sends_none(ai: openai.OpenAI) -> None:
    chunks = list(ai.chat.completions.create(model="m", messages=HELLO, max_tokens=3, stream=True))
    assert all(chunk.choices and chunk.usage is None for chunk in chunks)


def test_several_samples_differ_and_a_seed_repeats_them(ai: openai.OpenAI) -> None:
    def texts() -> list[str | None]:
        answer = ai.chat.completions.create(model="m", messages=HELLO, n=3, seed=5, max_tokens=16)
        assert [choice.index for choice in answer.choices] == [0, 1, 2]
        return [choice.message.content for choice in answer.choices]

    first = texts()
    assert len(set(first)) == 3
    assert texts() == first


def test_streamed_samples_come_under_their_own_index(ai: openai.OpenAI) -> None:
    fields: Any = {"model": "m", "prompt": "abc", "n": 2, "seed": 3, "max_tokens": 12}
    whole = ai.completions.create(**fields)
    texts = ["", ""]
    for chunk in ai.completions.create(**fields, stream=True):
        texts[chunk.choices[0].index] += chunk.choices[0].text
    assert texts == [choice.text for choice in whole.choices]


def test_a_schema_is_kept_in_stream_and_whole(ai: openai.OpenAI) -> None:
    form: Any = {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA, "strict": True}}
    answer = ai.chat.completions.create(model="m", messages=HELLO, response_format=form)
    record = json.loads(answer.choices[0].message.content or "")
    assert set(record) == {"name", "age"} and 0 <= record["age"] <= 99
    chunks = ai.chat.completions.create(model="m", messages=HELLO, response_format=form, stream=True)
    assert set(json.loads("".join(chunk.choices[0].delta.content or "" for chunk in chunks))) == {"name", "age"}


def test_parse_gives_an_object(ai: openai.OpenAI) -> None:
    class Person(BaseModel):
        likes_tea: bool
        rank: int

    form = ai.chat.completions.parse(model="m", messages=HELLO, response_format=Person, max_tokens=200, temperature=0)
    parsed = form.choices[0].message.parsed
    assert parsed is not None and isinstance(parsed.likes_tea, bool)


@pytest.mark.parametrize(
    ("extra", "allowed"),
    [
        ({"regex": "(yes|no)"}, {"yes", "no"}),
        ({"choices": ["up", "down"]}, {"up", "down"}),
        ({"ebnf": 'root ::= "left" | "right"'}, {"left", "right"}),
        ({"lark": 'start: "in" | "out"'}, {"in", "out"}),
    ],
)
def test_every_kind_of_grammar_shapes_the_answer(ai: openai.OpenAI, extra: dict[str, Any], allowed: set[str]) -> None:
    answer = ai.chat.completions.create(model="m", messages=HELLO, extra_body=extra)
    assert answer.choices[0].message.content in allowed
    assert answer.choices[0].finish_reason == "stop"


def test_logprobs_name_tokens_by_their_bytes(ai: openai.OpenAI) -> None:
    answer = ai.chat.completions.create(
        model="m", messages=HELLO, max_tokens=5, logprobs=True, top_logprobs=3, temperature=0
    )
    logprobs = answer.choices[0].logprobs
    assert logprobs and logprobs.content
    for entry in logprobs.content:
        assert entry.bytes is not None and bytes(entry.bytes).decode("utf-8", "replace") == entry.token
        assert len(entry.top_logprobs) == 3
        assert entry.logprob == max(other.logprob for other in entry.top_logprobs)


def test_completions_take_lists_of_texts_and_of_ids(ai: openai.OpenAI) -> None:
    answer = ai.completions.create(model="m", prompt=["ab", "abc"], max_tokens=2, echo=True)
    assert [choice.text[:2] for choice in answer.choices] == ["ab", "ab"]
    ids = ai.completions.create(model="m", prompt=[[65, 66], [67]], max_tokens=2, n=2)
    assert len(ids.choices) == 4 and ids.usage and ids.usage.prompt_tokens == 3


def test_echo_scores_the_prompt(ai: openai.OpenAI) -> None:
    answer = ai.completions.create(model="m", prompt="abcd", max_tokens=0, echo=True, logprobs=1)
    logprobs = answer.choices[0].logprobs
    assert answer.choices[0].text == "abcd"
    assert logprobs and logprobs.token_logprobs and logprobs.text_offset
    assert logprobs.token_logprobs[0] is None and all(value is not None for value in logprobs.token_logprobs[1:])
    assert logprobs.text_offset[0] == 0 and logprobs.text_offset == sorted(logprobs.text_offset)


def test_a_bias_decides(ai: openai.OpenAI) -> None:
    answer = ai.completions.create(model="m", prompt="abc", max_tokens=4, logit_bias={"65": 100}, temperature=0)
    assert answer.choices[0].text == "AAAA"


def test_a_stop_string_is_not_part_of_the_text(ai: openai.OpenAI) -> None:
    fields: Any = {"model": "m", "messages": HELLO, "extra_body": {"regex": "onetwothree"}, "stop": "two"}
    assert ai.chat.completions.create(**fields).choices[0].message.content == "one"
    chunks = ai.chat.completions.create(**fields, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "one"


def test_embeddings_are_unit_vectors_in_both_encodings(ai: openai.OpenAI) -> None:
    packed = ai.embeddings.create(model="m", input=["one", "two"])  # the client asks for base64 and decodes it
    plain = ai.embeddings.create(model="m", input="one", encoding_format="float")
    assert packed.data[0].embedding == pytest.approx(plain.data[0].embedding, abs=1e-5)
    assert sum(x * x for x in plain.data[0].embedding) == pytest.approx(1, abs=1e-3)
    assert packed.data[0].embedding != packed.data[1].embedding
    short = ai.embeddings.create(model="m", input="one", dimensions=2, encoding_format="float")
    assert len(short.data[0].embedding) == 2
