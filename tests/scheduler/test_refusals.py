"""What can't be done is refused with a sentence; what takes too long or is too much ends."""

from __future__ import annotations

import time
from typing import Any

import pytest
from in_process import Driver

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"prompt": [1, 999]}, "999"),
    ({"prompt": [-1]}, "-1"),
    ({"prompt": [65] * 4096}, "context length"),
    ({"temperature": -1.0}, "temperature"),
    ({"temperature": float("nan")}, "temperature"),
    ({"top_p": 0.0}, "top_p"),
    ({"top_p": 1.5}, "top_p"),
    ({"top_k": -1}, "top_k"),
    ({"max_tokens": -1}, "max_tokens"),
    ({"min_tokens": 200}, "min_tokens"),
    ({"seed": -1}, "seed"),
    ({"seed": 2**64 - 1, "stop": [""]}, "stop"),
    ({"stop_token_ids": [259]}, "stop_token_ids"),
    ({"logit_bias": {-5: 1.0}}, "logit_bias"),
    ({"logit_bias": {5: float("inf")}}, "logit_bias"),
    ({"logprobs": 1000}, "logprobs"),
    ({"prompt_logprobs": 1, "prompt_logprobs_start": 8}, "prompt_logprobs_start"),
    ({"timeout": 0.0}, "timeout"),
]


@pytest.mark.parametrize(("fields", "named"), WRONG, ids=lambda value: str(value)[:40])
def test_nonsense_is_refused_by_name(fields: dict[str, Any], named: str) -> None:
    driver = Driver()
    failed = driver.complete(**{"prompt": "Tell me", **fields}).failed
    assert failed is not None and failed.kind == "invalid" and named in failed.message


def test_an_empty_prompt_begins_at_the_beginning() -> None:
    assert len(Driver().complete([], max_tokens=3).ids) == 3


def test_an_id_in_use_is_refused_but_another_client_may_have_it() -> None:
    driver = Driver()
    driver.submit("same", "Tell me", max_tokens=4)
    driver.submit("same", "Tell me", max_tokens=4)
    driver.collect()
    failed = driver.outcomes["same"].failed
    assert failed is not None and "same" in failed.message
    driver.submit("same", "Tell me", max_tokens=4, client=b"other")
    assert driver.scheduler.num_live == 2


def test_the_queue_is_bounded() -> None:
    driver = Driver(max_queue=3, max_running=1)
    for i in range(6):
        driver.submit(f"{i}", "Tell me", max_tokens=2)
    outcomes = driver.finish()
    overloaded = [rid for rid, o in outcomes.items() if o.failed is not None and o.failed.kind == "overloaded"]
    assert overloaded == ["3", "4", "5"]


def test_a_deadline_ends_a_request_running_or_waiting() -> None:
    driver = Driver(max_running=1)
    driver.submit("running", "Tell me", max_tokens=4000, timeout=0.2)
    driver.submit("waiting", "Tell me", max_tokens=4000, timeout=0.1)
    began = time.monotonic()
    outcomes = driver.finish()
    assert time.monotonic() - began < 2
    for outcome in outcomes.values():
        assert outcome.failed is not None and outcome.failed.kind == "deadline"
    assert outcomes["running"].ids
    assert driver.tree.num_evictable + driver.tree.num_free == driver.tree.num_slots


def test_a_client_that_is_gone_leaves_nothing_locked() -> None:
    driver = Driver()
    for i in range(3):
        driver.submit(f"{i}", f"Tell me {i}", max_tokens=100, client=b"gone" if i else b"here")
    driver.step(3)
    driver.scheduler.drop_client(b"gone")
    assert driver.scheduler.num_live == 1
    assert len(driver.finish()["0"].ids) == 100
    assert driver.tree.num_evictable + driver.tree.num_free == driver.tree.num_slots


def test_a_step_that_fails_fails_its_requests_and_the_next_ones_work(capsys: pytest.CaptureFixture[str]) -> None:
    driver = Driver()
    working = driver.system.plan.run

    def broken(batch: object) -> Any:
        raise RuntimeError("the kernels are on fire")

    driver.system.plan.run = broken  # type: ignore[method-assign]
    failed = driver.complete("Tell me", max_tokens=4).failed
    assert failed is not None and failed.kind == "internal"
    assert "on fire" in capsys.readouterr().err
    driver.system.plan.run = working  # type: ignore[method-assign]
    assert len(driver.complete("Tell me", max_tokens=4).ids) == 4
