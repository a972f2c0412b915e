"""Who is admitted first, that nobody starves, and that choosing stays cheap."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest
from in_process import Driver, alone

from sapwood.runtime.messages import Generate, Sampling
from sapwood.runtime.scheduler.policies import FirstCome, LongestPrefix, policy_maker
from sapwood.runtime.scheduler.queue import AGING, WaitingQueue
from sapwood.runtime.scheduler.request import RequestState

POLICIES = ["fcfs", "lpm", "dfs-weight", "priority"]


def waiting(order: int, ids: list[int], priority: int = 0) -> RequestState:
    message = Generate(f"{order}", ids, Sampling(), priority=priority)
    return RequestState(b"", message, order, 0.0, 0, list(ids), len(ids), len(ids) + 8, len(ids) - 1)


def order_of_admission(policy: str, prompts: dict[str, str], priorities: dict[str, int] | None = None) -> list[str]:
    """One after the other, behind a first request that brings "hot hot hot" into the tree."""
    driver = Driver(policy=policy, max_running=1)
    driver.submit("first", "hot hot hot", max_tokens=2)
    driver.step()
    for rid, prompt in prompts.items():
        driver.submit(rid, prompt, max_tokens=1, priority=(priorities or {}).get(rid, 0))
    finished: list[str] = []
    while driver.scheduler.num_live:
        driver.step()
        finished += [rid for rid, o in driver.outcomes.items() if o.last is not None and rid not in finished]
    return finished[1:]


def test_first_come_first_served() -> None:
    assert order_of_admission("fcfs", {"a": "cold", "b": "hot hot", "c": "hot"}) == ["a", "b", "c"]


def test_the_longest_cached_prefix_goes_first() -> None:
    prompts = {"a": "cold", "b": "hot", "c": "hot hot!", "d": "hot hot hot!"}
    assert order_of_admission("lpm", prompts) == ["d", "c", "b", "a"]


def test_what_an_admitted_request_brings_into_the_tree_counts_at_once() -> None:
    prompts = {"a": "new one", "b": "other", "c": "new one goes on", "d": "new one goes on and on"}
    assert order_of_admission("lpm", prompts) == ["a", "c", "d", "b"]


def test_depth_first_goes_on_where_it_is_then_takes_the_heaviest_branch() -> None:
    long = "a beginning of sixteen, "
    prompts = {"x": "something else", "a": long + "1", "y": "nothing", "b": long + "2", "c": long + "2 and"}
    assert order_of_admission("dfs-weight", prompts) == ["a", "b", "c", "x", "y"]


@pytest.mark.parametrize("policy", POLICIES)
def test_the_highest_priority_goes_first(policy: str) -> None:
    prompts = {"a": "hot hot hot!", "b": "cold", "c": "hot"}
    assert order_of_admission(policy, prompts, {"b": 2, "c": 1}) == ["b", "c", "a"]


def test_a_higher_priority_takes_the_room_of_a_lower_one() -> None:
    driver = Driver(num_slots=64)
    driver.submit("low", "a low one", max_tokens=50)
    driver.step(20)
    driver.submit("high", "a high one " * 3, max_tokens=10, priority=1)
    while driver.outcomes["high"].last is None:
        assert driver.outcomes["low"].last is None
        driver.step()
    assert driver.finish()["low"].ids == alone("a low one", max_tokens=50).ids


@pytest.mark.parametrize("policy", POLICIES)
def test_an_endless_stream_of_favourites_delays_nobody_beyond_the_bound(policy: str) -> None:
    queue = WaitingQueue(policy_maker(policy, lambda ids, namespace: len(ids)))
    before = 5  # wait already when the cold one comes
    for order in range(before):
        queue.add(waiting(order, [1] * 100, priority=9))
    queue.add(waiting(before, [2], priority=0))
    for admissions in range(1, AGING * (before + 1) + 1):
        queue.add(waiting(before + admissions, [1] * 100, priority=9))
        chosen = queue.choose()
        assert chosen is not None
        queue.admit(chosen)
        if chosen.order == before:
            return
    pytest.fail("the cold request starved")


@pytest.mark.parametrize("policy", POLICIES)
def test_a_policy_may_change_while_requests_wait_and_none_is_lost(policy: str) -> None:
    driver = Driver(max_running=2)
    prompts = [f"prompt {i % 3} {i}" for i in range(12)]
    for i, prompt in enumerate(prompts):
        driver.submit(f"{i}", prompt, max_tokens=3)
    driver.step(2)
    driver.scheduler.set_policy(policy)
    driver.scheduler.abort(b"test", "7")
    outcomes = driver.finish()
    assert {rid for rid, outcome in outcomes.items() if outcome.failed is not None} == {"7"}
    assert outcomes["11"].ids == alone(prompts[11], max_tokens=3).ids


def test_longest_prefix_looks_at_few_however_many_wait() -> None:
    looks = 0

    def matched(ids: Sequence[int], namespace: str) -> int:
        nonlocal looks
        looks += 1
        return ids[0]

    queue = WaitingQueue(lambda: LongestPrefix(matched))
    for order in range(10_000):
        queue.add(waiting(order, [order % 97, order % 89, order]))
    most = 0
    for _ in range(200):
        looks = 0
        chosen = queue.choose()
        assert chosen is not None
        queue.admit(chosen)
        most = max(most, looks)
    assert most <= LongestPrefix.ARRIVALS + LongestPrefix.TRIES


def test_preempted_requests_come_before_others_of_their_priority() -> None:
    queue = WaitingQueue(FirstCome)
    for request in [waiting(1, [1]), waiting(2, [1], priority=1)]:
        queue.add(request)
    for request in [waiting(4, [1]), waiting(3, [1])]:
        queue.put_back(request)
    orders = []
    while (chosen := queue.choose()) is not None:
        orders.append(chosen.order)
        queue.admit(chosen)
    assert orders == [2, 3, 4, 1]


def test_ten_thousand_can_wait() -> None:
    driver = Driver(max_queue=10_000, max_running=4)
    for i in range(10_000):
        driver.submit(f"{i}", [i % 250, i // 250, 7], max_tokens=1)
    began = time.perf_counter()
    driver.step(20)
    assert (time.perf_counter() - began) / 20 < 0.1, "20 times what it takes, for slow machines"
    driver.scheduler.abort(b"test")
    assert driver.scheduler.num_live == 0
