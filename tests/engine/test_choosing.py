"""From a request's sampling parameters to what the sampler gets."""

from __future__ import annotations

import numpy as np

from sapwood.runtime.engine.choosing import Chooser
from sapwood.runtime.messages import Sampling


def test_parameters_are_passed_on_and_the_position_is_that_of_the_new_token() -> None:
    chooser = Chooser(Sampling(temperature=0.5, top_k=3, top_p=0.9, min_p=0.1, logprobs=4), 99, [1, 2, 3], set())
    row = chooser.row([1, 2, 3, 4], None)
    assert (row.seed, row.position, row.num_logprobs) == (99, 4, 4)
    assert (row.temperature, row.top_k, row.top_p, row.min_p) == (0.5, 3, 0.9, 0.1)


def test_ends_are_out_of_reach_until_there_are_enough_tokens() -> None:
    chooser = Chooser(Sampling(min_tokens=2, logit_bias={7: 1.5}), 0, [1, 2], {5})
    early = chooser.row([1, 2, 3], None)
    assert dict(zip(early.bias_ids.tolist(), early.bias_values.tolist(), strict=True)) == {7: 1.5, 5: -np.inf}
    late = chooser.row([1, 2, 3, 4], None)
    assert late.bias_ids.tolist() == [7]


def test_penalties_see_prompt_and_output_apart() -> None:
    chooser = Chooser(Sampling(repetition_penalty=1.2), 0, [1, 2], set())
    row = chooser.row([1, 2, 9, 9], None)
    assert (row.prompt_ids.tolist(), row.output_ids.tolist()) == ([1, 2], [9, 9])
