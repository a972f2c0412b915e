"""Drafts change neither a greedy text nor what sampled texts are distributed like."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from decoders import int32, run
from in_process import TOKENIZER, Driver

from sapwood.kernels import open_plan
from sapwood.kernels.sampling import log_softmax
from sapwood.runtime.client import Client
from sapwood.runtime.fake import fake_model
from sapwood.runtime.messages import Sampling

PROMPT = TOKENIZER.encode("one two, one two, one")
TOP_K, LENGTH, TEMPERATURE = 3, 4, 0.6


def expected_chances() -> dict[tuple[int, ...], float]:
    """The chance of every text of LENGTH tokens, by the model's own logits."""
    plan = open_plan(fake_model().decoder, num_slots=64, threads=1)
    table = int32(range(64))
    chances: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(LENGTH):
        longer: dict[tuple[int, ...], float] = {}
        for text, chance in chances.items():
            ids = [*PROMPT, *text]
            logits = run(plan, ids, table, 0, len(ids))[-1]
            best = np.argsort(-logits)[:TOP_K]
            shares = np.exp(log_softmax(logits[best] / np.float32(TEMPERATURE)))
            longer |= {(*text, int(token)): chance * float(share) for token, share in zip(best, shares, strict=True)}
        chances = longer
    return chances


def test_sampled_texts_are_distributed_as_the_model_says() -> None:
    """Pearson's chi-square over 20,000 samples, most of whose tokens were drafted from what earlier ones wrote."""
    samples, at_once = 20_000, 250
    driver = Driver(speculative="ngram", check=False, max_running=at_once, num_slots=8192)
    drafts = driver.scheduler._drafts
    assert drafts is not None
    drafts._depth = lambda request: (request.max_len - len(request.ids) - 1, 0.0)  # type: ignore[method-assign]
    found: Counter[tuple[int, ...]] = Counter()
    drafted = accepted = 0
    for first in range(0, samples, at_once):
        for seed in range(first, first + at_once):
            settings = {"temperature": TEMPERATURE, "top_k": TOP_K, "seed": seed, "ignore_eos": True}
            driver.submit(str(seed), PROMPT, max_tokens=LENGTH, **settings)
        for outcome in driver.finish().values():
            found[tuple(outcome.ids)] += 1
            drafted += outcome.usage.drafted_tokens
            accepted += outcome.usage.accepted_tokens
        driver.outcomes.clear()
    assert drafted > samples and accepted > samples / 4
    expected = expected_chances()
    assert set(found) <= set(expected) and len(expected) == TOP_K**LENGTH
    often = [text for text, chance in expected.items() if chance * samples >= 5]
    means = [expected[text] * samples for text in often]
    counts = [found[text] for text in often]
    cells = [*zip(counts, means, strict=True), (samples - sum(counts), samples - sum(means))]  # the last: all rare ones
    cells = [(count, mean) for count, mean in cells if mean >= 5]
    statistic = sum((count - mean) ** 2 / mean for count, mean in cells)
    degrees = len(cells) - 1
    assert degrees > 10
    assert statistic < degrees + 4 * np.sqrt(2 * degrees), (statistic, degrees)


QUESTIONS = ("What is {}?", "Write three sentences about {}.", "Why do people care about {}?", "Describe {} as JSON.")
TOPICS = (
    "rain", "bread", "the moon", "glass", "a bridge", "music", "chess", "salt", "a school", "winter", "paper", "gold", "sleep",
    "a river", "honey", "the alphabet", "a clock", "cotton", "dreams", "an island", "tea", "maps", "a garden", "iron", "shadows",
    "the sea", "numbers", "a market", "wool", "trains", "fire", "a poem", "silk", "clouds", "a mirror", "ice", "wheat", "colours",
    "a library", "dust", "laughter", "stone", "a lighthouse", "sugar", "birds", "weather", "a village", "wine", "steel", "stars",
)  # fmt: skip


def greedy_texts(model: Path, speculative: str) -> Iterator[list[int]]:
    """128 tokens for each of 200 prompts, sixteen at once, so that drafts and plain rows share batches."""
    with Client.launch(str(model), speculative=speculative) as client, ThreadPoolExecutor(16) as pool:
        render = client.tokenizer.render
        prompts = [
            client.tokenizer.encode(
                render([{"role": "user", "content": question.format(topic)}], add_generation_prompt=True), special=True
            )
            for topic in TOPICS
            for question in QUESTIONS
        ]
        settings = Sampling(max_tokens=128, temperature=0.0, ignore_eos=True)
        yield from pool.map(lambda ids: client.generate(ids, settings).ids, prompts)


@pytest.fixture(scope="module")
def plain_texts(smollm2_path: Path) -> list[list[int]]:
    return list(greedy_texts(smollm2_path, "off"))


@pytest.mark.slow
@pytest.mark.parametrize("speculative", ["auto", "ngram", "lookahead", "draft:smollm2-135m"])
def test_greedy_texts_of_the_real_model_are_equal(
    smollm2_path: Path, plain_texts: list[list[int]], speculative: str
) -> None:
    assert len(plain_texts) == 200
    for got, expected in zip(greedy_texts(smollm2_path, speculative), plain_texts, strict=True):
        assert got == expected and len(got) == 128
