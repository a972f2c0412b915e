"""From a request's `Sampling` to what the kernels' sampler takes for one token."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from sapwood.kernels.sampling import SampleRow
from sapwood.runtime.messages import Sampling


class Chooser:
    """How one request's tokens are chosen. Made once, its row is brought up to date for each token."""

    def __init__(self, sampling: Sampling, seed: int, prompt: Sequence[int], ends: Collection[int]) -> None:
        self._penalised = (
            sampling.repetition_penalty != 1.0 or bool(sampling.presence_penalty) or bool(sampling.frequency_penalty)
        )
        # Tokens that end the text are out of reach before min_tokens. A grammar knows better when it may end.
        self._min_tokens = sampling.min_tokens if sampling.grammar is None else 0
        self._row = SampleRow(
            seed=seed,
            position=0,
            temperature=sampling.temperature,
            top_k=sampling.top_k,
            top_p=sampling.top_p,
            min_p=sampling.min_p,
            repetition_penalty=sampling.repetition_penalty,
            presence_penalty=sampling.presence_penalty,
            frequency_penalty=sampling.frequency_penalty,
            num_logprobs=sampling.logprobs,
        )
        if self._penalised:
            self._row.prompt_ids = np.array(prompt, np.int32)
        self._bias = _bias(sampling.logit_bias)
        self._early_bias = _bias(sampling.logit_bias | dict.fromkeys(ends, -np.inf))
        self._prompt_len = len(prompt)
        self._plain = not self._penalised and not self._min_tokens
        self._row.bias_ids, self._row.bias_values = self._bias

    def row(self, ids: Sequence[int], mask: np.ndarray[tuple[int], np.dtype[np.uint32]] | None) -> SampleRow:
        """The row for the token after `ids` (prompt and output)."""
        row = self._row
        row.position = len(ids)
        row.mask = mask
        if not self._plain:
            num_output = len(ids) - self._prompt_len
            row.bias_ids, row.bias_values = self._early_bias if num_output < self._min_tokens else self._bias
            if self._penalised:
                row.output_ids = np.array(ids[self._prompt_len :], np.int32)
        return row


def _bias(
    bias: dict[int, float],
) -> tuple[np.ndarray[tuple[int], np.dtype[np.int32]], np.ndarray[tuple[int], np.dtype[np.float32]]]:
    return np.fromiter(bias.keys(), np.int32, len(bias)), np.fromiter(bias.values(), np.float32, len(bias))
