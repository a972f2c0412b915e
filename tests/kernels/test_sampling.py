"""Sampling: what each parameter means, and that a seed decides alone."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from sapwood.kernels import sampling
from sapwood.kernels._cpu import available_isas, current_isa, forbid, masked_argmax, set_isa
from sapwood.kernels.sampling import SampleRow, log_softmax, sample, score, uniform

RNG = np.random.default_rng(0)
LOGITS = RNG.normal(size=(1, 50)).astype(np.float32) * 2


def draw(count: int = 4000, **settings_of_row: object) -> Counter[int]:
    logits = np.repeat(LOGITS, count, axis=0)
    rows = [SampleRow(seed=seed, position=3, **settings_of_row) for seed in range(count)]  # type: ignore[arg-type]
    return Counter(s.id for s in sample(logits, rows))


def test_greedy_takes_the_likeliest() -> None:
    assert draw(5, temperature=0) == {int(LOGITS.argmax()): 5}


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_frequencies_follow_the_distribution(temperature: float) -> None:
    probabilities = np.exp(log_softmax(LOGITS[0] / np.float32(temperature)))
    drawn = draw(20_000, temperature=temperature)
    expected = probabilities * 20_000
    likely = expected > 5
    chi2 = sum((drawn[i] - expected[i]) ** 2 / expected[i] for i in np.flatnonzero(likely))
    assert chi2 < likely.sum() + 5 * np.sqrt(2 * likely.sum())


def test_top_k_top_p_and_min_p_leave_the_likeliest() -> None:
    order = np.argsort(-LOGITS[0])
    probabilities = np.exp(log_softmax(LOGITS[0]))
    assert set(draw(top_k=3)) <= set(order[:3].tolist())
    nucleus = int(np.searchsorted(probabilities[order].cumsum(), 0.6)) + 1
    assert set(draw(top_p=0.6)) == set(order[:nucleus].tolist())
    floor = probabilities >= 0.2 * probabilities.max()
    assert set(draw(min_p=0.2)) == set(np.flatnonzero(floor).tolist())


def test_a_mask_forbids() -> None:
    mask = np.zeros(2, np.uint32)
    mask[7 // 32] |= np.uint32(1 << 7 % 32)
    mask[40 // 32] |= np.uint32(1 << 40 % 32)
    assert set(draw(mask=mask)) == {7, 40}
    assert set(draw(mask=mask, top_p=0.9, top_k=10)) <= {7, 40}


def test_bias_and_penalties() -> None:
    assert set(draw(bias_ids=np.array([9], np.int32), bias_values=np.array([100], np.float32))) == {9}
    best = int(LOGITS.argmax())
    written = np.array([best] * 3, np.int32)
    assert best not in draw(frequency_penalty=20, output_ids=written)
    assert best not in draw(presence_penalty=60, output_ids=written)
    assert best in draw(presence_penalty=60, prompt_ids=written)  # the prompt doesn't count here
    assert draw(temperature=0, repetition_penalty=100.0, prompt_ids=written) != {best: 4000}


def test_logprobs_are_the_raw_distribution_s() -> None:
    expected = log_softmax(LOGITS[0])
    (got,) = sample(LOGITS, [SampleRow(seed=1, position=0, temperature=0, num_logprobs=2)])
    assert got.logprob == pytest.approx(float(expected.max()))
    assert [i for i, _ in got.top] == np.argsort(-expected)[:2].tolist()
    (scored,) = score(LOGITS, np.array([5], np.int32), 0)
    assert scored.logprob == pytest.approx(float(expected[5])) and scored.top == []


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**31))
def test_random_numbers_lie_in_the_unit_interval(seed: int, position: int) -> None:
    assert 0 <= uniform(seed, position) < 1


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 2**32), st.floats(0.1, 3), st.integers(0, 5000), st.floats(0.05, 1), st.floats(0, 0.5))
def test_a_large_vocabulary_gives_what_a_full_sort_gives(
    seed: int, temperature: float, top_k: int, top_p: float, min_p: float
) -> None:
    logits = np.random.default_rng(seed).normal(size=(1, 5000)).astype(np.float32)
    row = SampleRow(seed, 1, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    (got,) = sample(logits, [row])
    order = np.argsort(-logits[0], kind="stable")[: top_k or None]
    weights = np.exp((logits[0][order] - logits.max()).astype(np.float64) / temperature)
    if top_p < 1:
        order = order[: int(np.searchsorted(weights.cumsum(), top_p * weights.sum())) + 1]
    order = order[weights[: len(order)] >= min_p]
    assert got.id in order


@settings(deadline=None, max_examples=80)
@given(
    st.integers(0, 2**32),
    st.integers(1, 5000),
    st.floats(0, 3) | st.just(0.01),
    st.integers(0, 300),
    st.floats(0.01, 1),
    st.floats(0, 0.5),
    st.booleans(),
)
def test_native_passes_choose_what_numpy_chooses(
    seed: int, vocab: int, temperature: float, top_k: int, top_p: float, min_p: float, masked: bool
) -> None:
    rng = np.random.default_rng(seed)
    logits = np.round(rng.normal(size=(4, vocab)) * 3, 1).astype(np.float32)  # many ties
    mask = rng.integers(0, 2**32, (vocab + 31) // 32, dtype=np.uint32) if masked else None
    if mask is not None:
        mask[rng.integers(0, vocab) // 32] = 0xFFFFFFFF
    rows = [SampleRow(seed + i, i, temperature, top_k, top_p, min_p, mask=mask) for i in range(len(logits))]
    native = [s.id for s in sample(logits, rows)]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sampling, "_cpu", None)
        assert [s.id for s in sample(logits, rows)] == native


@pytest.mark.parametrize("isa", available_isas())
def test_every_instruction_set_finds_the_first_of_the_largest(isa: str) -> None:
    before = current_isa()
    try:
        set_isa(isa)
        for vocab in (1, 15, 16, 33, 1024, 1050, 5000):
            values = RNG.integers(0, 9, vocab).astype(np.float32)
            mask = RNG.integers(0, 2**32, (vocab + 31) // 32, dtype=np.uint32)
            expected = np.where(sampling.allowed(mask, vocab), values, -np.inf)
            assert masked_argmax(values, mask) == int(expected.argmax())
            forbid(values, mask)
            assert np.array_equal(values, expected)
    finally:
        set_isa(before)
