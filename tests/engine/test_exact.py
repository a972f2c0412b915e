"""Logprobs are the same bits however a token came to be computed (CPU backend)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from in_process import Driver, Outcome

from sapwood.runtime.messages import GrammarSpec

PROMPT = [1 + (i * 37) % 250 for i in range(300)]
SETTINGS: dict[str, Any] = {"max_tokens": 12, "temperature": 1.0, "seed": 5, "logprobs": 2}


def bits(outcome: Outcome) -> list[tuple[int, float | None]]:
    assert outcome.last is not None, outcome.failed
    return [(one.id, one.logprob) for one in [*outcome.prompt_logprobs, *outcome.logprobs]]


def cold(**options: Any) -> list[tuple[int, float | None]]:
    return bits(Driver(**options).complete(PROMPT, **SETTINGS))


def test_chunked_or_whole() -> None:
    assert cold(max_rows=7) == cold(max_rows=64) == cold(max_rows=512)


def test_with_one_thread_or_two() -> None:
    assert cold(threads=1) == cold(threads=2)


def test_warm_or_cold_or_evicted_and_computed_again() -> None:
    expected = cold()
    driver = Driver()
    driver.complete(PROMPT[:123], max_tokens=0)
    partly = driver.complete(PROMPT, **SETTINGS)
    assert partly.usage.cached_tokens == 123
    warm = driver.complete(PROMPT, **SETTINGS)
    assert warm.usage.cached_tokens == 299
    driver.tree.flush()
    again = driver.complete(PROMPT, **SETTINGS)
    assert bits(partly) == bits(warm) == bits(again) == expected


def test_alone_or_in_a_crowd() -> None:
    driver = Driver()
    for i in range(9):
        driver.submit(f"{i}", PROMPT[: 20 * i + 1], max_tokens=30)
    driver.step(4)
    driver.submit("it", PROMPT, **SETTINGS)
    assert bits(driver.finish()["it"]) == cold()


def test_preempted_or_not() -> None:
    driver = Driver(num_slots=420)
    for i in range(6):
        driver.submit(f"{i}", [200 + i] * 40, max_tokens=60)
    driver.step(2)
    driver.submit("it", PROMPT, **SETTINGS)
    outcomes = driver.finish()
    assert driver.scheduler.stats.num_preempted
    assert bits(outcomes["it"]) == cold()


def test_read_or_decoded() -> None:
    """The logprobs of an answer are those that it has as a part of the prompt."""
    driver = Driver()
    answer = driver.complete(PROMPT, **SETTINGS)
    read = Driver().complete([*PROMPT, *answer.ids], max_tokens=0, prompt_logprobs=2, prompt_logprobs_start=300)
    assert bits(read) == bits(answer)


def test_jumped_or_decoded() -> None:
    grammar = GrammarSpec("regex", "A fixed text, (one|two|three) and the rest")
    jumped = Driver().complete(PROMPT, grammar=grammar, logprobs=2, max_tokens=60)
    decoded = Driver().complete(PROMPT, grammar=grammar, logprobs=2, max_tokens=60, jump=False)
    assert jumped.usage.jumped_tokens > 20
    assert bits(jumped) == bits(decoded)


def test_jumping_does_not_change_the_ids_of_a_real_tokenizer(smollm2_path: Path) -> None:
    driver = Driver(model=str(smollm2_path))
    schema = (
        '{"type":"object","properties":{"full_name":{"type":"string","maxLength":20},"nationality":'
        '{"enum":["English","French"]}},"required":["full_name","nationality"],"additionalProperties":false}'
    )
    grammar = GrammarSpec("json_schema", schema)
    jumped = driver.complete([504, 3575, 282, 4649, 314, 7042], grammar=grammar, max_tokens=40)
    decoded = driver.complete([504, 3575, 282, 4649, 314, 7042], grammar=grammar, max_tokens=40, jump=False)
    assert jumped.ids == decoded.ids and jumped.usage.jumped_tokens > decoded.usage.jumped_tokens == 0


def test_a_real_model_too(smollm2_path: Path) -> None:
    prompt = [(i * 7919) % 49000 for i in range(150)]
    driver = Driver(model=str(smollm2_path), num_slots=700, max_rows=48)
    first = driver.complete(prompt, **SETTINGS)
    for i in range(5):
        driver.submit(f"{i}", [*prompt[: 30 * i], 11, 12, 13, i], max_tokens=80)
    driver.step(3)
    driver.submit("again", prompt, **SETTINGS)
    outcomes = driver.finish()
    assert bits(outcomes["again"]) == bits(first)
