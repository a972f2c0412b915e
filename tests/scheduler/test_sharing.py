"""Prompts that arrive together share their prefix while it is being computed."""

from __future__ import annotations

import pytest
from in_process import Driver, alone

PREFIX = [1 + i % 250 for i in range(1500)]


def prompt(i: int) -> list[int]:
    return [*PREFIX, 200, i, i + 1, i + 2]


def test_a_prefix_of_32_requests_that_arrive_together_is_computed_once() -> None:
    driver = Driver(num_slots=4000)
    for i in range(32):
        driver.submit(f"{i}", prompt(i), max_tokens=1)
    outcomes = driver.finish()
    own = 1 + 3 * 32  # the 200 is common too
    assert driver.num_rows == len(PREFIX) + own
    computed = sum(o.usage.prompt_tokens - o.usage.cached_tokens for o in outcomes.values())
    assert computed == driver.num_rows, "usage says who computed what"
    assert outcomes["31"].ids == alone(prompt(31), max_tokens=1).ids


def test_the_same_prompt_many_times_is_computed_once_and_sampled_for_each() -> None:
    driver = Driver()
    for i in range(8):
        driver.submit(f"{i}", "The same prompt", max_tokens=1, temperature=1.0, seed=i)
    outcomes = driver.finish()
    assert driver.batches == [15]
    assert len({tuple(o.ids) for o in outcomes.values()}) > 1
    for i in range(8):
        assert outcomes[f"{i}"].ids == alone("The same prompt", max_tokens=1, temperature=1.0, seed=i).ids


@pytest.mark.parametrize("step", [1, 2])
def test_when_the_first_is_aborted_half_way_the_next_takes_over(step: int) -> None:
    driver = Driver(num_slots=4000, max_rows=600)
    for i in range(3):
        driver.submit(f"{i}", prompt(i), max_tokens=4)
    driver.step(step)
    driver.scheduler.abort(b"test", "0")
    outcomes = driver.finish()
    assert outcomes["0"].failed is not None and outcomes["0"].failed.kind == "cancelled"
    assert outcomes["1"].ids == alone(prompt(1), max_tokens=4).ids
    assert outcomes["2"].ids == alone(prompt(2), max_tokens=4).ids
    assert driver.num_rows <= len(PREFIX) + 1 + 3 * 2 + 2 * 3, "nothing was computed twice"


@pytest.mark.parametrize("evicted", [False, True])
def test_when_the_first_is_preempted_half_way_the_next_takes_over(evicted: bool) -> None:
    """Those who share the prefix hold it, so it isn't computed again; alone, it is what was evicted meanwhile."""
    driver = Driver(num_slots=4000, max_rows=600)
    for i in range(1 if evicted else 3):
        driver.submit(f"{i}", prompt(i), max_tokens=4)
    driver.step()
    (first,) = (request for request in driver.scheduler.running if request.message.rid == "0")
    assert first.path is not None and 0 < first.path.num_computed < len(PREFIX)
    computed = first.path.num_computed
    driver.scheduler._preempt(first)
    if evicted:
        assert driver.tree.flush() == computed
        driver.submit("1", prompt(1), max_tokens=4)
    outcomes = driver.finish()
    for rid, outcome in outcomes.items():
        assert outcome.ids == alone(prompt(int(rid)), max_tokens=4).ids
    num_own = 1 + 3 * len(outcomes) + 3 * len(outcomes)  # the 200 once; what ends a prompt, and what is decoded
    assert driver.num_rows <= len(PREFIX) + num_own + (computed if evicted else 0), "nothing was computed twice"


def test_namespaces_share_nothing() -> None:
    driver = Driver()
    first = driver.complete("The same prompt", max_tokens=4, namespace="a")
    second = driver.complete("The same prompt", max_tokens=4, namespace="b")
    assert second.usage.cached_tokens == 0
    assert first.ids == second.ids
