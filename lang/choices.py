"""Which of several choices is likeliest, by their tokens' log probabilities. Pure arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

Logprobs = Sequence[float]


def token_length_normalized(given: Sequence[Logprobs], alone: Sequence[Logprobs]) -> list[float]:
    """The mean over a choice's tokens."""
    return [sum(lps) / len(lps) for lps in given]


def unconditional_likelihood_normalized(given: Sequence[Logprobs], alone: Sequence[Logprobs]) -> list[float]:
    """The mean gain over the same tokens without the text before them."""
    return [
        sum(a - b for a, b in zip(with_text, without, strict=True)) / len(with_text)
        for with_text, without in zip(given, alone, strict=True)
    ]


def greedy_token_selection(given: Sequence[Logprobs], alone: Sequence[Logprobs]) -> list[float]:
    """Token by token, only the choices with the likeliest token stay; a choice that has ended counts with its mean.

    The score is how many tokens a choice stayed, and below one point its mean, so that the highest is the one that is left.
    """
    means = [sum(lps) / len(lps) for lps in given]
    left, stayed = list(range(len(given))), [0] * len(given)
    for column in range(max(len(lps) for lps in given)):
        values = {i: given[i][column] if column < len(given[i]) else means[i] for i in left}
        best = max(values.values())
        left = [i for i in left if values[i] == best]
        for i in left:
            stayed[i] += 1
        if len(left) == 1:
            break
    return [stays + math.exp(mean) / 2 for stays, mean in zip(stayed, means, strict=True)]


METHODS: dict[str, Callable[[Sequence[Logprobs], Sequence[Logprobs]], list[float]]] = {
    "token_length_normalized": token_length_normalized,
    "greedy_token_selection": greedy_token_selection,
    "unconditional_likelihood_normalized": unconditional_likelihood_normalized,
}
