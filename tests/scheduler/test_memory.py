"""Too few slots for the load: requests are preempted and resumed, and nobody can tell from the tokens."""

from __future__ import annotations

from in_process import Driver, alone

PROMPTS = [f"Prompt number {i} {'x' * (i * 3)}" for i in range(12)]


def test_preempted_requests_give_the_same_tokens() -> None:
    driver = Driver(num_slots=96)
    for i, prompt in enumerate(PROMPTS):
        driver.submit(f"{i}", prompt, max_tokens=24, temperature=1.0, seed=i)
    outcomes = driver.finish()
    assert driver.scheduler.stats.num_preempted > 0
    for i, prompt in enumerate(PROMPTS):
        assert outcomes[f"{i}"].ids == alone(prompt, max_tokens=24, temperature=1.0, seed=i).ids


def test_the_lowest_priority_is_preempted_first_then_the_newest() -> None:
    driver = Driver(num_slots=64)
    for rid, priority in [("low", 0), ("first", 1), ("second", 1)]:
        driver.submit(rid, f"{rid:>8}", max_tokens=40, priority=priority)
    finished: list[str] = []
    while driver.scheduler.num_live:
        driver.step()
        finished += [rid for rid, o in driver.outcomes.items() if o.last is not None and rid not in finished]
    assert finished == ["first", "second", "low"]


def test_a_request_that_can_never_fit_is_refused_with_the_reason() -> None:
    driver = Driver(num_slots=64)
    driver.complete("p" * 40, max_tokens=0)
    driver.tree.pin([ord("p")] * 40)
    failed = driver.complete("q" * 30, max_tokens=4).failed
    assert failed is not None and failed.kind == "invalid" and "slots" in failed.message


def test_a_request_that_outgrows_the_pool_alone_fails_and_frees_what_it_held() -> None:
    driver = Driver(num_slots=64)
    driver.complete("p" * 32, max_tokens=0)
    driver.tree.pin([ord("p")] * 32)
    failed = driver.complete("q" * 20, max_tokens=30).failed
    assert failed is not None and failed.kind == "invalid"
    assert driver.tree.num_free + driver.tree.num_evictable == 32


def test_slots_are_all_given_back_at_the_end() -> None:
    driver = Driver(num_slots=128)
    for i, prompt in enumerate(PROMPTS):
        driver.submit(f"{i}", prompt, max_tokens=10)
    driver.step(4)
    driver.scheduler.abort(b"test")
    driver.finish()
    driver.tree.flush()
    assert driver.tree.num_free == 128


def test_a_quota_keeps_one_tenant_from_evicting_another() -> None:
    driver = Driver(num_slots=128)
    driver.tree.set_quota("mine", 32)
    driver.complete("m" * 30, max_tokens=1, namespace="mine")
    for i in range(20):
        driver.complete(f"other tenant {i} {'x' * 40}", max_tokens=4, namespace="others")
    assert driver.complete("m" * 30, max_tokens=1, namespace="mine").usage.cached_tokens == 29


def test_a_priority_protects_what_it_computed_from_eviction() -> None:
    driver = Driver(num_slots=128, eviction="priority")
    driver.complete("p" * 30, max_tokens=1, priority=5)
    for i in range(20):
        driver.complete(f"nothing special {i} {'x' * 40}", max_tokens=4)
    assert driver.complete("p" * 30, max_tokens=1).usage.cached_tokens == 29
