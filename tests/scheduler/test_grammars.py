"""Grammars of requests: compiled beside the loop, stopped when nobody waits for them."""

from __future__ import annotations

import time

import pytest
from in_process import CLIENT, Driver

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
