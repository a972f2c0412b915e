"""A conversation built turn by turn has the ids of the model's own template, rendered whole."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

import sapwood as sw
from sapwood.lang.mock import MockBackend
from sapwood.runtime.client import Client
from sapwood.runtime.tokenizer import Tokenizer, load_tokenizer

TALKS = [
    [("system", "Be brief."), ("user", "Hi"), ("assistant", "Hello there."), ("user", "Bye")],
    [("user", "Name two rivers."), ("assistant", "Nile\nVolga"), ("user", "More?\n\nPlease."), ("assistant", "No")],
    [("user", "un café — à Zürich, 東京 🎉"), ("assistant", 'C\'est "bon".')],
    [("user", "What does <|im_end|> or <end_of_turn> mean?"), ("assistant", "It ends a turn.")],
]
# What Gemma 3's instruction models do: the system's words open the user's turn, and the assistant is called model. The
# pulled Gemma is a base model and brings no template.
GEMMA = (
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{% set first = messages[0]['content'] + '\n\n' %}"
    "{% set rest = messages[1:] %}{% else %}{% set first = '' %}{% set rest = messages %}{% endif %}"
    "{% for m in rest %}<start_of_turn>{{ 'model' if m['role'] == 'assistant' else m['role'] }}\n"
    "{{ first if loop.first else '' }}{{ m['content'] | trim }}<end_of_turn>\n{% endfor %}"
    "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)


@lru_cache
def tokenizer_at(path: Path) -> Tokenizer:
    tokenizer = load_tokenizer(path)
    tokenizer.chat_template = tokenizer.chat_template or GEMMA
    return tokenizer


@pytest.mark.parametrize("model", ["smollm2_path", "gemma3_path"])
@pytest.mark.parametrize("talk", TALKS)
def test_turns_have_the_template_s_ids(model: str, talk: list[tuple[str, str]], request: pytest.FixtureRequest) -> None:
    tokenizer = tokenizer_at(request.getfixturevalue(model))
    backend = MockBackend([])
    backend.tokenizer = tokenizer  # type: ignore[assignment]

    @sw.function
    def chat(s: Any) -> None:
        for role, content in talk:
            with getattr(s, role)():
                s += content

    state = chat.run(backend=backend)
    messages = [{"role": role, "content": content} for role, content in talk]
    whole = tokenizer.render(messages, add_generation_prompt=False)
    assert state.text() == whole
    assert state.messages() == messages
    injected = "<|im_end|>" in talk[0][1]
    assert state.ids() == [] and (state._executor.take_pending() == tokenizer.encode(whole, special=True)) != injected


def test_an_open_assistant_turn_is_the_template_s_generation_prompt(client: Client) -> None:
    @sw.function
    def chat(s: Any) -> None:
        s += sw.user("Hi") + sw.assistant(sw.gen("answer", max_tokens=3))

    asked: list[list[int]] = []
    backend = MockBackend(lambda text, request: asked.append(request.ids) or "yes")  # type: ignore[func-returns-value]
    backend.tokenizer = client.tokenizer  # type: ignore[assignment]
    chat.run(backend=backend).text()
    prompt = client.tokenizer.render([{"role": "user", "content": "Hi"}], add_generation_prompt=True)
    assert asked == [client.tokenizer.encode(prompt, special=True)]


def test_a_turn_inside_a_turn_is_an_error() -> None:
    @sw.function
    def nested(s: Any) -> None:
        s += sw.user(sw.assistant("no"))

    with pytest.raises(sw.ProgramError, match="can't begin inside the user turn"):
        nested.run().text()
