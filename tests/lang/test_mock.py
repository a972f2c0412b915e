"""Programs against a script, without any model."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import sapwood as sw
from sapwood.lang.mock import MockBackend


@sw.function
def ask(s: Any, question: str) -> None:
    s += f"Q: {question}\nA:" + sw.gen("answer", max_tokens=20, stop="\n")


def test_a_list_of_answers_is_given_out_in_order() -> None:
    backend = MockBackend([" one\nrest", " two"])
    assert [ask.run(question=q, backend=backend)["answer"] for q in ("a", "b")] == [" one", " two"]
    with pytest.raises(sw.ProgramError, match="no more answers"):
        ask.run(question="c", backend=backend)["answer"]


def test_a_function_sees_the_text_and_the_request() -> None:
    backend = MockBackend(lambda text, request: text[-5:-3].upper())
    state = ask.run(question="hello", backend=backend, temperature=0.3)
    assert state["answer"] == "LO"
    assert backend.requests[0].sampling.temperature == 0.3 and backend.requests[0].sampling.stop == ["\n"]


def test_a_thousand_programs_of_three_forks_need_one_thread() -> None:
    @sw.function
    def three(s: Any, n: int) -> int:
        s += f"{n}:"
        forks = s.fork(3)
        for fork in forks:
            fork += sw.gen("x", max_tokens=4)
        forks.join()
        return len(s["x"])

    threads = []
    backend = MockBackend(lambda text, request: threads.append(threading.active_count()) or "abcd")  # type: ignore[func-returns-value]
    before = threading.active_count()
    states = three.run_batch([{"n": n} for n in range(1000)], backend=backend)
    assert [state.ret_value for state in states] == [3] * 1000 and max(threads) <= before
