"""What programs do: append, generate, select, fork, join, talk in turns."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from typing import Any

import pytest

import sapwood as sw
from sapwood.runtime.client import Client


@sw.function
def greet(s: Any, name: str) -> str:
    s += f"Hello {name}, " + sw.gen("rest", max_tokens=8, temperature=0)
    return "done"


def test_a_program_appends_and_generates() -> None:
    state = greet.run("Ada")
    assert state.text() == "Hello Ada, " + state["rest"] and len(state["rest"]) == 8
    assert state.ret_value == "done" and "rest" in state and "nothing" not in state


def test_the_state_holds_the_ids_that_were_generated(client: Client) -> None:
    state = greet.run("Ada")
    tokenizer = client.tokenizer
    assert state.ids() == tokenizer.encode("Hello Ada, ", bos=True) + tokenizer.encode(state["rest"])


def test_a_second_call_reuses_the_first() -> None:
    @sw.function
    def twice(s: Any) -> None:
        s += "x" * 300 + sw.gen("a", max_tokens=8) + " and " + sw.gen("b", max_tokens=8)

    state = twice.run()
    meta = state.get_meta_info("b")
    assert meta is not None and meta["cached_tokens"] >= 300


def test_reading_what_is_never_written_is_a_key_error() -> None:
    with pytest.raises(KeyError, match="never wrote the variable 'other'"):
        greet.run("Ada")["other"]


def test_a_failed_call_says_where_and_why_where_it_is_read() -> None:
    @sw.function
    def broken(s: Any) -> None:
        s += "x" + sw.gen("word", regex="(unclosed")

    state = broken.run()
    with pytest.raises(sw.ProgramError, match=r"gen\('word'\) at .*test_programs.py:\d+ failed"):
        state["word"]
    assert state.error() is not None


def test_forks_run_side_by_side_and_join_gathers() -> None:
    @sw.function
    def branches(s: Any) -> None:
        s += "root "
        forks = s.fork(3)
        for i, fork in enumerate(forks):
            fork += f"{i} " + sw.gen("leaf", max_tokens=4, temperature=0)
        forks.join()

    state = branches.run()
    assert len(state["leaf"]) == 3
    assert [len(leaf) for leaf in state["leaf"]] == [4, 4, 4] and state.text() == "root "


def test_join_concat_appends_what_the_forks_wrote() -> None:
    @sw.function
    def parts(s: Any) -> None:
        s += "a"
        forks = s.fork(2)
        forks += lambda i: [f"[{i}]"]
        forks.join("concat")

    assert parts.run().text() == "a[0][1]"


@pytest.mark.parametrize(
    "method", ["token_length_normalized", "greedy_token_selection", "unconditional_likelihood_normalized"]
)
def test_select_takes_one_of_the_choices(method: str) -> None:
    @sw.function
    def choose(s: Any) -> None:
        s += "I like " + sw.select("fruit", ["apples", "pears", "figs"], choices_method=method) + "."

    state = choose.run()
    assert state["fruit"] in ("apples", "pears", "figs")
    assert state.text() == f"I like {state['fruit']}."
    meta = state.get_meta_info("fruit")
    assert meta is not None and max(meta["scores"]) == meta["scores"][meta["choices"].index(state["fruit"])]


def test_turns_follow_the_model_s_own_template(client: Client) -> None:
    @sw.function
    def chat(s: Any) -> None:
        s += sw.system("Be brief.")
        s += sw.user("Hi")
        s += sw.assistant(sw.gen("answer", max_tokens=5))
        with s.user():
            s += "Bye"

    state = chat.run()
    messages = state.messages()
    assert [m["role"] for m in messages] == ["system", "user", "assistant", "user"]
    assert messages[2]["content"] == state["answer"]
    assert state.text() == client.tokenizer.render(messages, add_generation_prompt=False)


def test_grammars_types_and_lists_of_samples() -> None:
    @dataclass
    class Point:
        x: int
        y: int

    @sw.function
    def typed(s: Any) -> None:
        s += sw.gen("digits", regex="[0-9]{3}") + sw.gen_int("int", max_tokens=20) + sw.gen_bool("bool")
        s += sw.gen("point", schema=Point, max_tokens=200)
        s += sw.gen("several", n=3, max_tokens=4, temperature=1.0, seed=5)

    state = typed.run()
    assert state["digits"].isdigit() and len(state["digits"]) == 3
    assert state["bool"] in ("True", "False") and int(state["int"]) is not None
    assert isinstance(state["point"], Point)
    assert len(state["several"]) == 3 and len(set(state["several"])) > 1


def test_a_stop_string_is_not_in_the_text() -> None:
    first = greet.run("Ada")["rest"]

    @sw.function
    def stopped(s: Any) -> None:
        s += "Hello Ada, " + sw.gen("rest", max_tokens=8, temperature=0, stop=first[3:5]) + "!"

    state = stopped.run()
    assert state["rest"] == first[:3] and state.text() == f"Hello Ada, {first[:3]}!"


def test_streaming_gives_the_text_piece_by_piece() -> None:
    state = greet.run("Ada", stream=True)
    pieces = list(state.text_iter())
    assert "".join(pieces) == state.text() and len(pieces) > 2
    again = greet.run("Ada", stream=True)
    assert "".join(again.text_iter("rest")) == again["rest"]


def test_a_batch_runs_in_order_without_a_thread_per_program() -> None:
    before = threading.active_count()
    counts = []

    @sw.function
    def count(s: Any, n: int) -> int:
        s += f"{n}: " + sw.gen("word", max_tokens=3)
        counts.append(threading.active_count())
        return len(s["word"]) + n

    states = count.run_batch([{"n": n} for n in range(120)], num_threads=16)
    assert [state.ret_value for state in states] == [3 + n for n in range(120)]
    assert max(counts) <= before + 1


def test_one_program_s_failure_leaves_the_others_alone() -> None:
    @sw.function
    def picky(s: Any, n: int) -> None:
        if n == 2:
            raise RuntimeError("not two")
        s += f"{n}" + sw.gen("x", max_tokens=2)

    states = picky.run_batch([(n,) for n in range(4)])
    assert [state.error() is None for state in states] == [True, True, False, True]
    with pytest.raises(RuntimeError, match="not two"):
        states[2].text()


def test_async_programs_await_their_variables() -> None:
    @sw.function
    async def later(s: Any, n: int) -> str:
        s += f"{n} " + sw.gen("word", max_tokens=4)
        word: str = await s.aget("word")
        return word.upper()

    async def main() -> list[Any]:
        return await asyncio.gather(*(later.run_async(n) for n in range(5)))

    states = asyncio.run(main())
    assert [state.ret_value for state in states] == [state["word"].upper() for state in states]


def test_bound_arguments_are_fixed_and_wrong_ones_refused() -> None:
    assert greet.bind(name="Bob").run().text().startswith("Hello Bob, ")
    with pytest.raises(TypeError):
        greet.run()
    with pytest.raises(TypeError, match="no parameter wrong"):
        greet.bind(wrong=1)


def test_cancelling_ends_the_program() -> None:
    @sw.function
    def endless(s: Any) -> None:
        s += "x" + sw.gen("long", max_tokens=3000, ignore_eos=True)

    state = endless.run()
    state.cancel()
    with pytest.raises(sw.ProgramError, match="cancelled"):
        state["long"]


def test_healing_takes_the_last_token_back_and_changes_no_text_before_it() -> None:
    @sw.function
    def link(s: Any, heal: bool) -> None:
        s += "See http:" + sw.gen("rest", max_tokens=6, temperature=0, heal=heal) + "!"

    healed, plain = link.run(heal=True), link.run(heal=False)
    assert healed.text() == plain.text() and healed["rest"] == plain["rest"]  # of bytes no longer token can be made
    assert healed.ids() == plain.ids()
    pieces = list(link.run(heal=True, stream=True).text_iter("rest"))
    assert "".join(pieces) == plain["rest"]
    with pytest.raises(sw.ProgramError, match="heal goes with a regex"):
        sw.function(lambda s: s.__iadd__("a" + sw.gen("x", heal=True, json_schema={}))).run().text()
