"""What happens when a call fails: said where it is read, with the line; forks don't wait for ever; policies."""

from __future__ import annotations

import time
from typing import Any

import pytest

import sapwood as sw
from sapwood.errors import DeadlineExceeded, InvalidRequest
from sapwood.lang.mock import MockBackend
from sapwood.runtime.client import Client
from sapwood.runtime.messages import Failed, Generate


def test_forks_of_a_failed_parent_fail_with_it() -> None:
    @sw.function
    def broken(s: Any) -> None:
        s += sw.gen("x", regex="(never closed")
        forks = s.fork(2)
        forks += sw.gen("y", max_tokens=2)
        forks.join()

    with pytest.raises(sw.ProgramError, match="gen\\('x'\\) at .*test_failures.py"):
        broken.run()


def test_a_failed_call_may_be_none_or_what_a_function_makes_of_it() -> None:
    @sw.function
    def tolerant(s: Any) -> None:
        s += "a" + sw.gen("x", on_error="none") + "b" + sw.gen("y", on_error=lambda error: "sorry") + "c"
        s += sw.gen("z")

    state = tolerant.run(backend=MockBackend([RuntimeError("one"), RuntimeError("two"), "fine"]))
    assert (state["x"], state["y"], state["z"]) == (None, "sorry", "fine") and state.text() == "absorrycfine"
    assert "one" in (state.get_meta_info("x") or {})["error"]


def test_a_text_of_the_wrong_form_is_a_failure_that_a_program_can_survive() -> None:
    @sw.function
    def tolerant(s: Any, policy: Any) -> None:
        s += "a" + sw.gen("x", schema=int, on_error=policy) + sw.gen("y")

    state = tolerant.run(policy=lambda error: -1, backend=MockBackend(["seven", "!"]))
    assert (state["x"], state["y"], state.text()) == (-1, "!", "aseven!")
    with pytest.raises(sw.ProgramError, match=r"gen\('x'\)"):
        tolerant.run(policy="raise", backend=MockBackend(["seven", "!"]))["y"]


def test_time_runs_out_for_the_whole_program() -> None:
    @sw.function
    def slow(s: Any) -> None:
        for n in range(50):
            s += sw.gen(f"x{n}", max_tokens=500, ignore_eos=True)

    began = time.monotonic()
    state = slow.run(timeout=0.3)
    error = state.error()
    assert error is not None and isinstance(error.__cause__, DeadlineExceeded) and time.monotonic() - began < 5


def test_calls_that_found_no_room_are_tried_again() -> None:
    class Busy(MockBackend):
        refusals = 2

        def _reply(self, request: Generate) -> Any:
            if self.refusals:
                self.refusals -= 1
                return Failed(request.rid, "overloaded", "the queue is full")
            return super()._reply(request)

    @sw.function
    def ask(s: Any) -> None:
        s += sw.gen("x")

    assert ask.run(backend=Busy(["there"]), retries=2)["x"] == "there"
    with pytest.raises(sw.ProgramError, match="queue is full"):
        ask.run(backend=Busy(["there"]))["x"]


def test_what_a_backend_lacks_is_said_before_anything_is_asked() -> None:
    @sw.function
    def ask(s: Any) -> None:
        s += "x" + sw.gen("word", regex="[a-z]+")

    backend = sw.OpenAI("m", base_url="http://127.0.0.1:9/v1")
    with pytest.raises(InvalidRequest, match="needs regex, which its backend doesn't offer"):
        ask.run(backend=backend)


def test_cancelling_reaches_all_forks(client: Client) -> None:
    @sw.function
    def wide(s: Any) -> Any:
        s += "x"
        forks = s.fork(3)
        forks += sw.gen("long", max_tokens=3000, ignore_eos=True)
        return forks

    state = wide.run()
    state.cancel()
    for fork in state.ret_value:
        with pytest.raises(sw.ProgramError, match="cancelled"):
            fork["long"]


def test_a_wrong_choices_method_is_refused_at_the_line() -> None:
    with pytest.raises(ValueError, match="no choices_method 'best'"):
        sw.select("x", ["a", "b"], choices_method="best")


def test_reading_with_a_timeout_gives_up_waiting_not_the_program() -> None:
    @sw.function
    def slow(s: Any) -> str:
        s += sw.gen("x", max_tokens=2000, ignore_eos=True)
        try:
            s.get_var("x", timeout=0.01)
        except TimeoutError:
            s.cancel()
            return "too slow"
        return "in time"

    assert slow.run().ret_value == "too slow"
    assert [state.ret_value for state in slow.run_batch([{}, {}])] == ["too slow"] * 2
