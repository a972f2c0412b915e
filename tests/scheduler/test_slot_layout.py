"""Where in memory a token's keys and values lie never shows: pages of 1, of 16, or no order at all give the same bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from decoders import VOCAB, decoder, run
from in_process import Driver
from numpy.typing import NDArray

from sapwood.kernels import open_plan

NUM_SLOTS = 1024
PAGE = 16
PROMPT = [1 + (i * 37) % 250 for i in range(300)]
SETTINGS: dict[str, Any] = {"max_tokens": 12, "temperature": 1.0, "seed": 5, "logprobs": 2, "prompt_logprobs": 2}

Slots = NDArray[np.int32]


def runs_of(size: int) -> Slots:
    """All slots, as runs of `size` neighbours that begin at multiples of it, in a random order."""
    starts = np.random.default_rng(size).permutation(NUM_SLOTS // size) * size
    return (starts[:, None] + np.arange(size)).ravel().astype(np.int32)


LAYOUTS = {
    "pages of 16": runs_of(PAGE),
    "single slots": runs_of(1),
    "backwards": np.arange(NUM_SLOTS, dtype=np.int32)[::-1],
}


def logprobs(layout: Slots, **options: Any) -> list[tuple[int, float | None]]:
    """Of a prompt and its answer, with slots handed out in this order; beside another request that takes slots in between."""
    driver = Driver(num_slots=NUM_SLOTS, **options)
    driver.tree.pool._stack[:] = layout[::-1]
    driver.submit("other", [7] * 40, max_tokens=30)
    driver.step(3)
    driver.submit("it", PROMPT, **SETTINGS)
    driver.step()
    (mine,) = (r for r in driver.scheduler.running if r.message.rid == "it")
    assert mine.path is not None and set(mine.path.slots[:200]) <= set(layout[:400]), "slots come in that order"
    outcome = driver.finish()["it"]
    assert outcome.last is not None, outcome.failed
    return [(one.id, one.logprob) for one in [*outcome.prompt_logprobs, *outcome.logprobs]]


@pytest.mark.parametrize("name", LAYOUTS)
def test_logprobs_are_the_same_bits_wherever_slots_lie(name: str) -> None:
    assert logprobs(LAYOUTS[name]) == logprobs(np.arange(NUM_SLOTS, dtype=np.int32))


@pytest.mark.parametrize("kind", ["llama", "gemma", "qwen"])
def test_logits_of_every_kind_of_decoder_are_too(kind: str) -> None:
    ids = np.random.default_rng(7).integers(0, VOCAB, 300).tolist()

    def logits(table: Slots) -> NDArray[np.float32]:
        plan = open_plan(decoder(kind), num_slots=NUM_SLOTS)
        chunks = [run(plan, ids, table, at, min(at + 64, 300)) for at in range(0, 300, 64)]
        return np.concatenate(chunks)

    expected = logits(np.arange(300, dtype=np.int32))
    for layout in LAYOUTS.values():
        assert np.array_equal(logits(layout[:300].copy()), expected)


def test_logprobs_of_a_real_model_are_too(smollm2_path: Path) -> None:
    expected = logprobs(runs_of(PAGE), model=str(smollm2_path))
    assert logprobs(runs_of(1), model=str(smollm2_path)) == expected
