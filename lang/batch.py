"""Many runs of one program on one thread: a bounded number at a time, results in order, nothing kept that isn't wanted."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sapwood.lang.state import ProgramState
from sapwood.lang.waiting import Hub

AHEAD = 4  # times the limit: programs that may have ended before one that is older

Start = Callable[[int], tuple[ProgramState, Callable[[], None]]]


def in_order(total: int, start: Start, limit: int, ended: Callable[[], None]) -> Iterator[ProgramState]:
    """The states of runs 0 to total - 1, in order. `start(i)` gives a run's state and its body.

    At most `limit` run at a time, and at most `AHEAD` times as many are held, however many there are.
    """
    hub, running, states, next_run = Hub(), 0, deque[tuple[ProgramState, list[bool]]](), 0
    try:
        while next_run < total or states:
            while next_run < total and running < limit and len(states) < AHEAD * limit:
                state, body = start(next_run)
                next_run += 1
                done: list[bool] = []

                def job(state: ProgramState = state, body: Callable[[], None] = body, done: list[bool] = done) -> None:
                    body()
                    state.sync()
                    done.append(True)
                    ended()

                states.append((state, done))
                running += 1 - hub.start(job)
            while states and states[0][1]:
                yield states.popleft()[0]
            if states and not states[0][1] and (running >= limit or next_run == total or len(states) >= AHEAD * limit):
                running -= hub.step()
    finally:
        for state, done in states:
            if not done:
                state.cancel()


def awaited_in_order(
    total: int, start: Callable[[int], Coroutine[Any, Any, ProgramState]], limit: int, ended: Callable[[], None]
) -> Iterator[ProgramState]:
    """As `in_order`, for bodies that are coroutines: an event loop of its own, `limit` tasks at a time."""
    loop, tasks, next_run = asyncio.new_event_loop(), deque[asyncio.Task[ProgramState]](), 0
    try:
        while next_run < total or tasks:
            while next_run < total and len(tasks) < limit:
                tasks.append(loop.create_task(start(next_run)))
                next_run += 1
            yield loop.run_until_complete(tasks.popleft())
            ended()
    finally:
        for task in tasks:
            task.cancel()
        if tasks:
            loop.run_until_complete(asyncio.wait(tasks))
        loop.close()


class Results:
    """A JSONL file of results: one line a run, written as it ends. Runs that are in it already are not run again."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._known: set[str] = set()
        if self._path.exists():
            whole = self._path.read_bytes()
            whole = whole[: whole.rfind(b"\n") + 1]  # a line that was cut off by an end is run again
            self._path.write_bytes(whole)
            self._known = {json.loads(line)["key"] for line in whole.splitlines()}

    def has(self, arguments: dict[str, Any]) -> bool:
        return key_of(arguments) in self._known

    def write(self, arguments: dict[str, Any], state: ProgramState) -> None:
        """Keep a run's variables, text and error. Values that are no JSON become their `str`."""
        error = state.error()
        record = {
            "key": key_of(arguments), "arguments": arguments, "variables": state.variables(),
            "text": state.text() if error is None else None, "error": None if error is None else str(error),
        }  # fmt: skip
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record, ensure_ascii=False, default=str) + "\n")


def key_of(arguments: dict[str, Any]) -> str:
    """What tells one run from another: its arguments."""
    return hashlib.sha256(json.dumps(arguments, sort_keys=True, default=str).encode()).hexdigest()[:16]


@contextmanager
def progress(total: int, shown: bool) -> Iterator[Callable[[], None]]:
    """A progress bar over a batch, if one is wanted; calling what it gives advances it."""
    if not shown:
        yield lambda: None
        return
    from rich.progress import Progress

    with Progress() as bar:
        task = bar.add_task("programs", total=total)
        yield lambda: bar.advance(task)
