"""Grammars of requests: compiled beside the loop, stopped when nobody waits for them."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from in_process import CLIENT, Driver

from sapwood.constrained.automaton import AutomatonMatcher
from sapwood.errors import GrammarError
from sapwood.runtime.messages import GrammarSpec

# Two to the power of 24 states to be searched in vain: it takes until a limit ends it.
ENDLESS = GrammarSpec("regex", "(?=[ab]*a[ab]{23}$)[ab]*b[ab]{23}")
QUICK = GrammarSpec("regex", "[ab]{2}")


@pytest.mark.parametrize("gone", ["aborted", "disconnected", "expired"])
def test_a_compile_that_nobody_waits_for_is_stopped(gone: str) -> None:
    driver = Driver()
    driver.submit("slow", "Tell me", grammar=ENDLESS, timeout=0.1 if gone == "expired" else None)
    driver.submit("after", "Tell me", grammar=QUICK, max_tokens=9)  # compiled by the same thread
    begin = time.monotonic()
    if gone == "aborted":
        driver.scheduler.abort(CLIENT, "slow")
    elif gone == "disconnected":
        driver.submit("mine", "Tell me", client=b"gone", grammar=ENDLESS)
        driver.scheduler.abort(CLIENT, "slow")
        assert driver.scheduler.num_live == 2  # somebody still waits for it
        driver.scheduler.drop_client(b"gone")
    outcome = driver.finish()["after"]
    assert len(outcome.text) == 2 and time.monotonic() - begin < 5


def test_a_stopped_compile_is_begun_anew_for_whoever_asks_again() -> None:
    driver = Driver()
    driver.submit("first", "Tell me", grammar=ENDLESS)
    driver.submit("second", "Tell me", grammar=QUICK, max_tokens=9)  # waits behind it
    driver.scheduler.abort(CLIENT)
    driver.submit("third", "Tell me", grammar=QUICK, max_tokens=9)
    assert len(driver.finish()["third"].text) == 2


@pytest.mark.parametrize("jump", [True, False])
def test_masks_are_filled_while_the_batch_runs(monkeypatch: pytest.MonkeyPatch, jump: bool) -> None:
    driver = Driver()
    run, mask = driver.system.plan.run, AutomatonMatcher.mask
    filled = threading.Event()
    threads: list[str] = []
    met: list[bool] = []

    def observed(matcher: AutomatonMatcher) -> Any:
        threads.append(threading.current_thread().name)
        filled.set()
        return mask(matcher)

    def waiting(batch: Any) -> Any:
        met.append(filled.wait(10))  # nobody else would fill it before this returns
        filled.clear()
        return run(batch)

    monkeypatch.setattr(AutomatonMatcher, "mask", observed)
    monkeypatch.setattr(driver.system.plan, "run", waiting)
    outcome = driver.complete("Tell me", grammar=GrammarSpec("regex", "[ab]x[cd]y[ef]"), max_tokens=9, jump=jump)
    assert len(outcome.text) == 5
    assert met and all(met)
    assert all(name.startswith("masks") for name in threads)


def test_a_mask_that_can_t_be_filled_ends_its_own_request_only(monkeypatch: pytest.MonkeyPatch) -> None:
    mask = AutomatonMatcher.mask
    broken: list[AutomatonMatcher] = []

    def breaking(matcher: AutomatonMatcher) -> Any:
        if not broken:
            broken.append(matcher)
        if matcher is broken[0]:
            raise GrammarError("too much")
        return mask(matcher)

    monkeypatch.setattr(AutomatonMatcher, "mask", breaking)
    driver = Driver()
    driver.submit("breaks", "Tell me", grammar=QUICK, max_tokens=9)
    driver.submit("works", "Tell me", grammar=QUICK, max_tokens=9)
    outcomes = driver.finish()
    failed = [outcome.failed for outcome in outcomes.values() if outcome.failed]
    assert [failure.kind for failure in failed] == ["grammar"]
    assert sorted(len(outcome.ids) for outcome in outcomes.values()) == [0, 2]
