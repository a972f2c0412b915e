"""Tokens chosen by the kernels are the tokens that `kernels/sampling.py` chooses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from sapwood.kernels import sampling
from sapwood.kernels.sampling import SampleRow
from sapwood.kernels.triton.sampling import CHUNK, sample

RNG = np.random.default_rng(5)


def packed(allowed: np.ndarray) -> np.ndarray:
    bits = np.packbits(allowed, bitorder="little")
    return np.pad(bits, (0, -len(bits) % 4)).view(np.uint32)


def check(logits: np.ndarray, rows: list[SampleRow], device: str, wrong: float = 0.0) -> None:
    """`wrong`: share of draws that may fall on the other side of a border."""
    got = [s.id for s in sample(torch.from_numpy(logits).to(device), rows)]
    expected = [s.id for s in sampling.sample(logits, rows)]
    assert np.mean([a != b for a, b in zip(got, expected, strict=True)]) <= wrong, (got, expected)


FILTERS: list[dict[str, Any]] = [
    {},
    {"top_k": 1},
    {"top_k": 7},
    {"top_k": 10**6, "temperature": 2.0},
    {"top_p": 0.05},
    {"top_p": 0.9},
    {"min_p": 0.3},
    {"min_p": 1.0},
    {"top_k": 20, "top_p": 0.8, "min_p": 0.05},
    {"top_k": 200, "top_p": 0.99, "temperature": 0.4},
    {"temperature": 1e-9},
    {"temperature": 0.0},
]


@pytest.mark.parametrize("vocab", [1, 33, CHUNK, 2 * CHUNK + 5])
@pytest.mark.parametrize("masked", [False, True])
def test_every_filter_in_one_batch(vocab: int, masked: bool, device: str) -> None:
    rows, masks = [], []
    for number, filters in enumerate(FILTERS):
        allowed = RNG.random(vocab) < 0.4
        allowed[RNG.integers(vocab)] = True
        masks.append(allowed)
        mask = packed(allowed) if masked and number % 3 else None
        rows.append(SampleRow(seed=int(RNG.integers(2**63)), position=number, mask=mask, **filters))
    logits = RNG.normal(size=(len(rows), vocab)).astype(np.float32) * 3
    check(logits, rows, device, wrong=0.0 if device == "cpu" else 0.1)


@pytest.mark.parametrize("filters", [{"top_k": 5}, {"top_p": 0.7}, {"min_p": 0.5}, {"top_k": 9, "top_p": 0.5}, {}])
def test_equal_logits_are_taken_in_the_order_of_their_indices(filters: dict[str, Any], device: str) -> None:
    logits = np.round(RNG.normal(size=(8, 40))).astype(np.float32)
    rows = [SampleRow(seed=seed, position=1, **filters) for seed in range(8)]
    check(logits, rows, device, wrong=0.0 if device == "cpu" else 0.1)


def test_bias_penalties_and_logprobs(device: str) -> None:
    prompt, output = np.array([1, 2, 3], np.int32), np.array([3, 4, 4, 4], np.int32)
    bias = {"bias_ids": np.array([9, 20], np.int32), "bias_values": np.array([5.0, -np.inf], np.float32)}
    settings: list[dict[str, Any]] = [
        {"repetition_penalty": 2.0, "prompt_ids": prompt, "output_ids": output},
        {"presence_penalty": 1.5, "frequency_penalty": 0.5, "output_ids": output},
        bias,
        {
            **bias,
            "repetition_penalty": 0.5,
            "prompt_ids": prompt,
            "output_ids": output,
            "top_p": 0.9,
            "num_logprobs": 3,
        },
        {"num_logprobs": 0},
    ]
    logits = RNG.normal(size=(len(settings), 50)).astype(np.float32)
    before = logits.copy()
    rows = [SampleRow(seed=7 + i, position=i, **setting) for i, setting in enumerate(settings)]
    got = sample(torch.from_numpy(logits).to(device), rows)
    assert got == sampling.sample(logits, rows)
    assert np.array_equal(logits, before)


def test_what_a_row_gets_does_not_depend_on_the_others(device: str) -> None:
    logits = RNG.normal(size=(3, 3000)).astype(np.float32)
    rows = [SampleRow(seed=i, position=i, top_p=0.9, top_k=i * 10) for i in range(3)]
    whole = sample(torch.from_numpy(logits).to(device), rows)
    alone = [sample(torch.from_numpy(logits[i : i + 1]).to(device), rows[i : i + 1])[0] for i in range(3)]
    assert whole == alone
