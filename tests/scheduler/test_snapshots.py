"""Saving and loading go on beside requests, and neither holds the other up."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from in_process import Driver, alone

from sapwood.radix.snapshot_file import SnapshotReader, SnapshotWriter

LONG = [[part, *(1 + i % 250 for i in range(1999))] for part in (1, 2)]


class Gate:
    """Files can't be written or read while it is closed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._open = threading.Event()
        self._open.set()
        for owner, name in ((SnapshotWriter, "put"), (SnapshotReader, "read")):
            monkeypatch.setattr(owner, name, self._behind(getattr(owner, name)))

    def close(self) -> None:
        self._open.clear()

    def open(self) -> None:
        self._open.set()

    def _behind(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def waiting(*args: Any) -> Any:
            assert self._open.wait(30)
            return call(*args)

        return waiting


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate = Gate(monkeypatch)
    yield gate
    gate.open()


def begin(driver: Driver, what: str, file: Path) -> list[int | Exception]:
    """Start a save or a load; the list has its result when it has ended."""
    ended: list[int | Exception] = []
    getattr(driver.scheduler.snapshots, what)(str(file), ended.append, fingerprint=driver.system.info.fingerprint)
    return ended


def finish(driver: Driver, ended: list[int | Exception]) -> int:
    """Step until it has ended; the number of tokens."""
    while not ended:
        driver.step()
    assert isinstance(ended[0], int), ended[0]
    return ended[0]


def filled(**options: Any) -> Driver:
    driver = Driver(num_slots=8192, **options)
    for ids in LONG:
        driver.complete(ids, max_tokens=1)
    return driver


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    driver = filled()
    assert finish(driver, begin(driver, "save", tmp_path / "saved")) == 4000
    return tmp_path / "saved"


@pytest.mark.parametrize("what", ["save", "load"])
def test_requests_go_on_while_the_file_is_slow(gate: Gate, saved: Path, what: str) -> None:
    driver = filled() if what == "save" else Driver(num_slots=8192)
    gate.close()
    ended = begin(driver, what, saved)
    outcome = driver.complete("Somebody asks in between", max_tokens=100)
    assert outcome.ids == alone("Somebody asks in between", max_tokens=100).ids and not ended
    gate.open()
    assert finish(driver, ended) == 4000


def test_while_the_file_is_slow_an_idle_scheduler_has_nothing_to_do(gate: Gate, saved: Path) -> None:
    driver = filled()
    gate.close()
    ended = begin(driver, "save", saved)
    steps = 0
    while driver.scheduler.busy:
        driver.step()
        steps += 1
    assert steps < 20 and not ended
    gate.open()
    assert finish(driver, ended) == 4000


def test_the_last_of_the_room_is_there_for_requests_while_all_of_it_is_saved(gate: Gate, tmp_path: Path) -> None:
    driver = Driver(num_slots=2100)
    driver.complete(LONG[0], max_tokens=1)
    gate.close()
    ended = begin(driver, "save", tmp_path / "saved")
    driver.step(3)
    assert driver.complete([7] * 1900, max_tokens=100).ids == alone([7] * 1900, max_tokens=100).ids
    assert not ended and driver.tree.peek(LONG[0]) < 300, "what is being saved was evicted"
    gate.open()
    assert finish(driver, ended) == 2000
    other = Driver(num_slots=2100)
    finish(other, begin(other, "load", tmp_path / "saved"))
    warm = other.complete(LONG[0], max_tokens=8, logprobs=2)
    cold = alone(LONG[0], max_tokens=8, logprobs=2)
    assert warm.usage.cached_tokens == 1999 and warm.logprobs == cold.logprobs


def test_a_load_gives_way_to_requests_that_need_its_room(gate: Gate, saved: Path) -> None:
    driver = Driver(num_slots=2100)
    ended = begin(driver, "load", saved)
    while driver.tree.peek(LONG[0]) + driver.tree.peek(LONG[1]) < 1000:
        driver.step()
    gate.close()
    outcome = driver.complete([7] * 1900, max_tokens=100)
    assert outcome.ids == alone([7] * 1900, max_tokens=100).ids
    gate.open()
    assert finish(driver, ended) < 4000


def test_a_prompt_that_is_being_loaded_can_be_asked_for_at_any_moment(gate: Gate, saved: Path) -> None:
    cold = alone(LONG[0], max_tokens=8, logprobs=2)
    for steps in range(1, 12, 2):
        driver = Driver(num_slots=8192)
        ended = begin(driver, "load", saved)
        driver.step(steps)
        warm = driver.complete(LONG[0], max_tokens=8, logprobs=2)
        assert warm.logprobs == cold.logprobs
        finish(driver, ended)
        assert [driver.tree.peek(ids) for ids in LONG] == [2000, 2000]


def test_jobs_wait_for_each_other_and_one_that_fails_stops_no_other(tmp_path: Path) -> None:
    driver = filled()
    results = [begin(driver, what, tmp_path / name) for what, name in [("load", "none"), ("save", "a"), ("load", "a")]]
    assert finish(driver, results[2]) == 0 and results[1] == [4000]
    assert "can't be read" in str(results[0][0])


def test_what_is_under_way_when_a_system_ends_leaves_nothing_behind(gate: Gate, tmp_path: Path) -> None:
    driver = filled()
    begin(driver, "save", tmp_path / "saved")
    driver.step(3)
    driver.system.close()
    assert not list(tmp_path.iterdir()) and driver.tree.on_free is None
    driver.tree.check()
