"""How much of an answer was reasoning, in every form in which it is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import openai
import pytest
from hypothesis import given, strategies as st
from scripted import Scripted

from sapwood.runtime.client import Client
from sapwood.runtime.fake import fake_tokenizer
from sapwood.runtime.server.reader import Plain, Reasoning, num_reasoning

Serve = Callable[..., str]
HELLO: Any = [{"role": "user", "content": "why?"}]
TOKEN_BYTES = fake_tokenizer().token_bytes
OPEN = "{{ messages[-1]['content'] }}<think>"  # a template that opens the tag itself
FREE = "{{ messages[-1]['content'] }}{# knows <think> #}"

# template, answer, its reasoning (with tags)
CASES = [
    (FREE, "<think>2 < 3 → so</think>\n\nYes…", "<think>2 < 3 → so</think>"),
    (OPEN, "it is so</think>\n\nYes.", "it is so</think>"),
    (OPEN, "it goes on and on", "it goes on and on"),
    (FREE, "Just an answer.", ""),
    (FREE, "<th", ""),
]


@pytest.mark.parametrize("chunk_len", [1, 7])
@pytest.mark.parametrize(("template", "text", "reasoning"), CASES)
def test_the_usage_counts_reasoning_tokens(
    backend: Client, serve: Serve, template: str, text: str, reasoning: str, chunk_len: int
) -> None:
    expected = len(reasoning.encode())  # a token is a byte
    script = Scripted(backend, text, template=template, chunk_len=chunk_len)
    with openai.OpenAI(base_url=serve(script) + "/v1", api_key="none", max_retries=0) as ai:
        whole = ai.chat.completions.create(model="m", messages=HELLO, n=2)
        assert whole.usage and whole.usage.completion_tokens_details
        assert whole.usage.completion_tokens_details.reasoning_tokens == 2 * expected
        *_, last = ai.chat.completions.create(
            model="m", messages=HELLO, stream=True, stream_options={"include_usage": True}
        )
        assert last.usage and last.usage.completion_tokens_details
        assert last.usage.completion_tokens_details.reasoning_tokens == expected
        response = ai.responses.create(model="m", input="why?")
        assert response.usage and response.usage.output_tokens_details.reasoning_tokens == expected
        assert response.usage.output_tokens == len(text.encode())
        *_, completed = ai.responses.create(model="m", input="why?", stream=True)
        assert completed.type == "response.completed" and completed.response.usage
        assert completed.response.usage.output_tokens_details.reasoning_tokens == expected


@given(
    thought=st.text(st.characters(codec="utf-8", exclude_characters="<"), max_size=20),
    answer=st.text(st.characters(codec="utf-8"), max_size=20),
    cuts=st.lists(st.integers(0, 100), max_size=6),
)
def test_the_count_doesn_t_depend_on_how_the_text_came(thought: str, answer: str, cuts: list[int]) -> None:
    text = f"{thought}</think>{answer}"
    places = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    reader = Reasoning(Plain(), inside=True)
    for begin, end in zip(places, places[1:], strict=False):
        reader.push(text[begin:end])
    reader.finish()
    assert num_reasoning(reader, list(text.encode()), TOKEN_BYTES) == len(f"{thought}</think>".encode())


def test_what_has_no_reasoning_counts_none() -> None:
    assert num_reasoning(Plain(), [97, 98], TOKEN_BYTES) == 0
