"""select equals exact enumeration: every choice scored by itself, whole, from its own request."""

from __future__ import annotations

import random
from typing import Any

import pytest

import sapwood as sw
from sapwood.lang.choices import METHODS
from sapwood.runtime.client import Client
from sapwood.runtime.messages import Sampling


def scored(client: Client, ids: list[int], start: int) -> list[float]:
    """Log probabilities of ids[start:], given all before them."""
    result = client.generate(ids, Sampling(max_tokens=0, prompt_logprobs=0, prompt_logprobs_start=start))
    return [entry.logprob for entry in result.prompt_logprobs if entry.logprob is not None]


@pytest.mark.parametrize("method", list(METHODS))
def test_select_equals_exact_enumeration_in_200_random_cases(method: str, client: Client) -> None:
    rng = random.Random(method)
    tokenizer = client.tokenizer

    @sw.function
    def choose(s: Any, text: str, choices: list[str]) -> None:
        s += text + sw.select("it", choices, choices_method=method)

    for _ in range(200):
        text = "".join(rng.choice("abc de") for _ in range(rng.randrange(1, 12)))
        choices = list(
            {"".join(rng.choice("abcdef") for _ in range(rng.randrange(1, 6))) for _ in range(rng.randrange(2, 6))}
        )
        encoded = [tokenizer.encode(text + choice, bos=True) for choice in choices]
        start = len(tokenizer.encode(text, bos=True))  # every token of a choice counts, also those that all share
        given = [scored(client, ids, start) for ids in encoded]
        alone = [scored(client, [tokenizer.bos_id or 0, *ids[start:]], 1) for ids in encoded]
        scores = METHODS[method](given, alone)
        best = choices[max(range(len(choices)), key=lambda i: scores[i])]
        assert choose.run(text=text, choices=choices)["it"] == best, (text, choices, scores)


def test_the_methods_on_numbers() -> None:
    given, alone = [[-1.0, -1.0], [-0.5, -2.5]], [[-3.0, -3.0], [-0.5, -2.0]]
    assert METHODS["token_length_normalized"](given, alone) == [-1.0, -1.5]
    assert METHODS["unconditional_likelihood_normalized"](given, alone) == [2.0, -0.25]
    greedy = METHODS["greedy_token_selection"](given, alone)
    assert greedy[1] > greedy[0]  # the first token decides
    tied = METHODS["greedy_token_selection"]([[-1.0, -2.0], [-1.0, -1.0]], alone)
    assert tied[1] > tied[0]
