"""Programs in programs, searches, tools, traces and reports."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import sapwood as sw
from sapwood.lang.mock import MockBackend


@sw.function
def shout(s: Any, word: str) -> str:
    s += f"[{word}]" + sw.gen("loud", max_tokens=4)
    return str(s["loud"])


def test_a_program_goes_on_in_another_s_state_or_on_a_fork() -> None:
    @sw.function
    def outer(s: Any) -> str:
        s += "before "
        s += shout.bind(word="in")
        return str(s.call(shout, word="beside").text())

    state = outer.run(backend=MockBackend(["AAAA", "BBBB"]))
    assert state.text() == "before [in]AAAA" and state["loud"] == "AAAA"
    assert state.ret_value == "before [in]AAAA[beside]BBBB"


def test_parallel_sets_each_variable_on_the_parent() -> None:
    @sw.function
    def both(s: Any) -> None:
        s += "t: "
        s.parallel("a=" + sw.gen("a"), "b=" + sw.gen("b"))
        s += f"{s['a']}{s['b']}"

    assert both.run(backend=MockBackend(["1", "2"])).text() == "t: 12"


def test_best_of_goes_on_from_the_best_fork() -> None:
    @sw.function
    def search(s: Any) -> None:
        s += "n="
        s.best_of(3, sw.gen("n"), key=lambda fork: int(fork["n"]))
        s += "!"

    assert search.run(backend=MockBackend(["3", "7", "5"])).text() == "n=7!"


def test_vote_takes_the_most_frequent_value() -> None:
    @sw.function
    def poll(s: Any) -> Any:
        return s.vote(5, "a: " + sw.gen("a"), "a")

    state = poll.run(backend=MockBackend(["x", "y", "y", "x", "y"]))
    assert state.ret_value == "y" and state["a_votes"] == {"x": 2, "y": 3} and state.text() == "a: y"


def test_beam_keeps_the_best_at_each_depth() -> None:
    @sw.function
    def climb(s: Any) -> None:
        s.beam(
            lambda step: sw.gen(f"d{step}", max_tokens=1), key=lambda state: state.text(), depth=3, width=2, branch=2
        )

    answers = [*"13", *"9205", *"7411"]
    assert climb.run(backend=MockBackend(answers)).text() == "397"


def test_likelihood_is_a_key_on_a_real_backend() -> None:
    @sw.function
    def likely(s: Any) -> float:
        s += "The "
        best = s.best_of(3, sw.gen("w", max_tokens=4, logprobs=0), key=sw.likelihood("w"))
        return float(sw.likelihood("w")(best))

    assert -20 < likely.run(seed=1).ret_value <= 0


def test_a_tool_is_called_with_typed_arguments_and_answers_in_a_turn() -> None:
    def add(a: int, b: int = 1) -> int:
        """Add two numbers."""
        return a + b

    def upper(text: str) -> str:
        """In capitals."""
        return text.upper()

    @sw.function
    def agent(s: Any) -> Any:
        s += sw.system(sw.describe_tools([add, upper])) + sw.user("What is 2 + 40?")
        s += sw.assistant(sw.gen("call", tools=[add, upper]))
        return s.call_tools()

    state = agent.run(backend=MockBackend(['{"name": "add", "arguments": {"a": 2, "b": 40}}']))
    assert state.ret_value == 42 and state["call"].name == "add"
    assert state.messages()[-1] == {"role": "user", "content": "add returned: 42"}
    real = agent.run(max_tokens=200, temperature=0)  # the grammar makes a call of the fake model's noise too
    assert real["call"].name in ("add", "upper")


def test_an_async_program_awaits_its_variables_by_name() -> None:
    @sw.function
    async def later(s: Any) -> str:
        s += "a" + sw.gen("x", max_tokens=3)
        x: str = await s["x"]
        return x * 2

    async def main() -> Any:
        return await later.run_async()

    state = asyncio.run(main())
    assert state.ret_value == state["x"] * 2


def test_a_trace_shows_forks_joins_and_what_is_independent() -> None:
    @sw.function
    def tips(s: Any, topic: str) -> None:
        s += "Tips for everybody about "
        s += topic
        forks = s.fork(2)
        forks += lambda i: f" {i}:" + sw.gen("tip")
        forks.join()
        s += sw.select("good", ["yes", "no"])

    graph = tips.trace()
    assert graph.ended_early is None and graph.prefix() == "Tips for everybody about "
    assert [node.kind for node in graph.nodes] == ["text", "text", "gen", "text", "gen", "join", "select"]
    assert [[node.label for node in level] for level in graph.independent()] == [["tip", "tip"], ["good: yes | no"]]
    assert str(graph).startswith("flowchart TD") and "n4 --> n5" in str(graph)
    assert graph.svg().count("<rect") == 7
    assert tips.cache(MockBackend([""])) == len("Tips for everybody about ")


def test_a_report_shows_the_calls(tmp_path: Path) -> None:
    state = shout.run(word="<b>")
    page = state.report(tmp_path / "run.html").read_text()
    assert "1 calls" in page and "loud" in page and "[&lt;b&gt;]" in page


def test_sglang_s_way_of_writing_runs() -> None:
    import sapwood as sgl

    @sgl.function
    def multi_turn(s: Any, q: str) -> None:
        s += sgl.system("You are helpful.")
        s += sgl.user_begin() + q + sgl.user_end()
        s += sgl.assistant(sgl.gen("a", max_tokens=8, stop=["."], min_tokens=1, top_k=-1, return_logprob=True))
        with s.copy() as side:
            side += sgl.user("?")
        with s.var_scope("scoped"):
            s += sgl.gen_string("quoted", max_tokens=30)
        s += sgl.select("c", choices=["x", "yy"], temperature=0.0, choices_method=sgl.greedy_token_selection)

    states = multi_turn.run_batch(
        [{"q": "a"}, {"q": "b"}], max_new_tokens=16, temperature=0, num_threads=2, progress_bar=False
    )
    for state in states:
        assert state["scoped"] == state["quoted"] and state["c"] in ("x", "yy")
        assert len(state.get_meta_info("a")["output_token_logprobs"]) == len(state.get_meta_info("a")["output_ids"])
    assert sgl.flush_cache() and sgl.get_server_info()
    with pytest.raises(sgl.SapwoodError, match="images"):
        sgl.image("x.png")
