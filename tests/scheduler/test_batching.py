"""Whatever shares the batch, whatever is cached, however prompts are cut: the same tokens."""

from __future__ import annotations

from dataclasses import replace

import pytest
from in_process import Driver, Outcome, alone

PROMPTS = ["Once upon a time", "Once upon a hill", "The quick brown fox", "Once", "x", "The quick brown dog" * 9]
SETTINGS = [{"temperature": 0.0}, {"temperature": 1.0, "seed": 7}, {"temperature": 0.8, "seed": 3, "top_p": 0.9}]


def tokens(outcomes: dict[str, Outcome]) -> dict[str, list[int]]:
    return {rid: outcome.ids for rid, outcome in outcomes.items()}


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_requests_in_one_batch_get_what_they_get_alone(settings: dict[str, float]) -> None:
    driver = Driver()
    for i, prompt in enumerate(PROMPTS):
        driver.submit(f"{i}", prompt, max_tokens=16 + i, **settings)
    together = tokens(driver.finish())
    assert together == {f"{i}": alone(p, max_tokens=16 + i, **settings).ids for i, p in enumerate(PROMPTS)}


def test_requests_that_come_while_others_decode_get_what_they_get_alone() -> None:
    driver = Driver()
    for i, prompt in enumerate(PROMPTS):
        driver.submit(f"{i}", prompt, max_tokens=20)
        driver.step(3)
    assert tokens(driver.finish()) == {f"{i}": alone(p, max_tokens=20).ids for i, p in enumerate(PROMPTS)}


@pytest.mark.parametrize("max_rows", [1, 2, 7, 64])
def test_prompts_cut_into_chunks_of_any_size_give_the_same_tokens(max_rows: int) -> None:
    driver = Driver(max_rows=max_rows)
    for i, prompt in enumerate(PROMPTS):
        driver.submit(f"{i}", prompt, max_tokens=12)
    assert tokens(driver.finish()) == {f"{i}": alone(p, max_tokens=12).ids for i, p in enumerate(PROMPTS)}
    assert max(driver.batches) <= max_rows


def test_decodes_go_on_while_a_long_prompt_is_read() -> None:
    driver = Driver(max_rows=64)
    driver.scheduler._capacity = replace(driver.scheduler._capacity, chunk_rows=16)
    driver.submit("short", "a", max_tokens=40)
    driver.step(2)
    driver.submit("long", "b" * 160, max_tokens=1)
    driver.step(5)
    assert len(driver.outcomes["short"].ids) == 7
    assert driver.batches[-5:] == [17] * 5
    driver.finish()


def test_a_short_prompt_does_not_wait_for_a_long_one_to_be_read() -> None:
    driver = Driver(max_rows=64)
    driver.submit("long", "b" * 1500, max_tokens=1)
    driver.step(2)
    driver.submit("short", "a short one", max_tokens=4)
    driver.step(2)
    assert driver.outcomes["short"].ids and not driver.outcomes["long"].ids
    assert driver.batches[2] == 64, "the long one goes on"
    assert driver.finish()["short"].ids == alone("a short one", max_tokens=4).ids


def test_a_long_prompt_is_read_however_many_short_ones_come() -> None:
    driver = Driver(max_rows=64)
    driver.submit("long", "b" * 300, max_tokens=1)
    for i in range(40):
        driver.submit(f"{i}", f"short {i} {'x' * 40}", max_tokens=2)
        driver.step()
        if driver.outcomes["long"].last is not None:
            break
    assert i <= 300 // 32
    driver.finish()


def test_a_cached_prompt_gives_the_same_tokens_and_computes_one_row() -> None:
    driver = Driver()
    cold = driver.complete("The quick brown fox", max_tokens=10)
    before = driver.num_rows
    warm = driver.complete("The quick brown fox", max_tokens=1)
    assert warm.ids == cold.ids[:1]
    assert (cold.usage.cached_tokens, warm.usage.cached_tokens) == (0, 18)
    assert driver.num_rows - before == 1


def test_tokens_are_the_same_after_eviction_and_recomputation() -> None:
    driver = Driver()
    cold = driver.complete("The quick brown fox", max_tokens=20)
    assert driver.tree.flush() > 0
    again = driver.complete("The quick brown fox", max_tokens=20)
    assert again.ids == cold.ids
    assert again.usage.cached_tokens == 0


def test_max_tokens_0_only_reads_the_prompt() -> None:
    driver = Driver()
    read = driver.complete("The quick brown fox", max_tokens=0)
    assert read.ids == [] and read.last is not None and read.last.finish_reason == "length"
    assert (read.usage.cached_tokens, driver.num_rows) == (0, 19)
    again = driver.complete("The quick brown fox", max_tokens=0)
    assert (again.usage.cached_tokens, driver.num_rows) == (19, 19)


def test_the_last_hidden_state_comes_with_the_end() -> None:
    for max_tokens in (0, 3):
        last = alone("The quick", max_tokens=max_tokens, want_hidden=True).last
        assert last is not None and len(last.hidden) == 64
    beside = Driver()
    beside.submit("other", "something else", max_tokens=5)
    beside.submit("it", "The quick", max_tokens=0, want_hidden=True)
    outcomes = beside.finish()
    assert outcomes["it"].last is not None and outcomes["other"].last is not None
    assert len(outcomes["it"].last.hidden) == 64 and not outcomes["other"].last.hidden
