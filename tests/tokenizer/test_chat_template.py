"""Conversations are rendered as transformers renders them, and templates can't do more than that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sapwood.errors import InvalidRequest
from sapwood.runtime.chat_template import render
from sapwood.runtime.tokenizer import load_tokenizer

TALK = [
    {"role": "system", "content": "S"},
    {"role": "user", "content": "a\n b <\u00e9>"},
    {"role": "assistant", "content": "c"},
    {"role": "user", "content": "d"},
]
TOOLS = [
    {"type": "function", "function": {"name": "f", "description": "\u00fc & <b>", "parameters": {"b": 1, "a": [2]}}}
]

# What templates of several families do, each in its own way.
TEMPLATES = {
    "tools as JSON": "{% if tools %}{{ tools | tojson }}|{{ tools | tojson(indent=2) }}|"
    "{{ tools[0] | tojson(separators=(',', ':'), sort_keys=True) }}{% endif %}",
    "breaking out of a loop": "{% for m in messages %}{% if m.role == 'assistant' %}{% break %}{% endif %}{{ m.content }}{% endfor %}",
    "marks of generation": "{% for m in messages %}{% generation %}{{ m['content'] }}{% endgeneration %}{% endfor %}",
    "blocks on lines": "{%- for m in messages %}\n  {% if loop.first %}\n{{ bos_token }}\n  {% endif %}\n{{ m.role }}\n{% endfor %}",
    "the date": "{{ strftime_now('%Y') }}",
    "a namespace": "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}{{ eos_token }}",
    "the prompt": "{{ messages[-1]['content'] | trim }}{% if add_generation_prompt %}<assistant>{% endif %}",
    "Gemma's": "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{% set first = messages[0]['content'] + '\n\n' %}"
    "{% set rest = messages[1:] %}{% else %}{% set first = '' %}{% set rest = messages %}{% endif %}{% for m in rest %}"
    "{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}"
    "<start_of_turn>{{ 'model' if m['role'] == 'assistant' else m['role'] }}\n{{ (first if loop.first else '') + m['content'] | trim }}"
    "<end_of_turn>\n{% endfor %}{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}",
}


def theirs(template: str | None, messages: list[dict[str, str]], **names: Any) -> str:
    from transformers.utils.chat_template_utils import render_jinja_template

    (text,), _ = render_jinja_template([messages], chat_template=template, **names)
    return str(text)


@pytest.mark.parametrize("prompt", [True, False])
@pytest.mark.parametrize("name", TEMPLATES)
def test_templates_mean_what_they_mean_to_transformers(name: str, prompt: bool) -> None:
    names: dict[str, Any] = {"tools": TOOLS, "add_generation_prompt": prompt, "bos_token": "<s>", "eos_token": "</s>"}
    assert render(TEMPLATES[name], TALK, **names) == theirs(TEMPLATES[name], TALK, **names)


@pytest.mark.parametrize("messages", [TALK, TALK[1:2], TALK[:2]])
@pytest.mark.parametrize("prompt", [True, False])
def test_smollm2_s_own_template_too(messages: list[dict[str, str]], prompt: bool, smollm2_path: Path) -> None:
    tokenizer = load_tokenizer(smollm2_path)
    expected = theirs(
        tokenizer.chat_template,
        messages,
        add_generation_prompt=prompt,
        bos_token="<|im_start|>",
        eos_token="<|im_end|>",
    )
    assert tokenizer.render(messages, add_generation_prompt=prompt) == expected


def test_the_end_that_a_template_writes_is_the_model_s(smollm2_path: Path) -> None:
    tokenizer = load_tokenizer(smollm2_path)
    tokenizer.chat_template = "{{ bos_token }}{{ eos_token }}"
    assert tokenizer.render(TALK) == "<|im_start|><|im_end|>"


def test_a_template_that_refuses_says_so_in_the_error() -> None:
    with pytest.raises(InvalidRequest, match="roles must alternate"):
        render(TEMPLATES["Gemma's"], [TALK[2]])
    with pytest.raises(InvalidRequest, match="no valid Jinja"):
        render("{% for %}", TALK)


def test_templates_are_shut_in() -> None:
    for escape in (
        "{{ ''.__class__.__mro__ }}{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
    ):
        with pytest.raises(InvalidRequest):
            render(escape, TALK)
