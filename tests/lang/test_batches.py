"""Many programs at once: order, bounds, results on disk, failures."""

from __future__ import annotations

import gc
import json
import threading
from pathlib import Path
from typing import Any

import pytest

import sapwood as sw
from sapwood.lang.mock import MockBackend
from sapwood.lang.state import ProgramState


@sw.function
def echo(s: Any, n: int) -> int:
    s += f"{n}:" + sw.gen("x", max_tokens=8)
    return n


def test_a_batch_holds_a_bounded_number_of_states_however_long_it_is() -> None:
    backend = MockBackend(lambda text, request: "abc")
    seen, most = 0, 0
    for seen, state in enumerate(
        echo.run_batch([(n,) for n in range(1500)], num_threads=8, generator_style=True, backend=backend), start=1
    ):
        assert state.ret_value == seen - 1
        if seen % 500 == 0:
            del state
            gc.collect()
            most = max(most, sum(type(thing) is ProgramState for thing in gc.get_objects()))
    assert seen == 1500 and most <= 4 * 8 + 1


def test_results_go_to_a_file_and_a_second_run_goes_on_where_it_ended(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    asked: list[str] = []
    backend = MockBackend(lambda text, request: asked.append(text) or f"<{text}>")  # type: ignore[func-returns-value]
    batch = [{"n": n} for n in range(6)]
    assert echo.run_batch(batch[:3], output=file, backend=backend) == 3
    with file.open("a") as unfinished:
        unfinished.write('{"key": "cut o')
    assert echo.run_batch(batch, output=file, backend=backend) == 3
    records = [json.loads(line) for line in file.read_text().splitlines()]
    assert [record["arguments"]["n"] for record in records] == list(range(6)) and len(asked) == 6
    assert records[4]["variables"] == {"x": "<4:>"} and records[4]["error"] is None
    assert echo.run_batch(batch, output=file, backend=backend) == 0


def test_a_batch_in_a_batch_finishes() -> None:
    @sw.function
    def outer(s: Any, n: int) -> int:
        inner = echo.run_batch([(n,), (n + 1,)])
        s += sw.gen("y", max_tokens=2)
        return len(inner) + len(s["y"])

    assert [state.ret_value for state in outer.run_batch([(n,) for n in range(4)])] == [4] * 4


def test_leaving_a_batch_early_gives_up_the_rest() -> None:
    @sw.function
    def endless(s: Any, n: int) -> None:
        s += f"{n}" + sw.gen("x", max_tokens=3 if n == 0 else 3000, ignore_eos=True)

    states = endless.run_batch([(n,) for n in range(4)], generator_style=True)
    assert len(next(states)["x"]) == 3
    states.close()
    assert threading.active_count() < 20


def test_wrong_arguments_are_refused_before_anything_runs() -> None:
    with pytest.raises(TypeError, match="takes 1 arguments"):
        echo.run_batch([(1, 2)])
    assert echo.run_batch([]) == []


def test_a_batch_of_async_programs_keeps_order_and_errors() -> None:
    @sw.function
    async def later(s: Any, n: int) -> str:
        s += f"{n}:" + sw.gen("x", max_tokens=3)
        if n == 2:
            raise RuntimeError("not two")
        x: str = await s["x"]
        return f"{n}{x}"

    states = later.run_batch([(n,) for n in range(7)], num_threads=3)
    assert [state.ret_value for state in states] == [
        None if n == 2 else f"{n}{state['x']}" for n, state in enumerate(states)
    ]
    assert str(states[2].error()) == "not two"
