"""How snapshots of 10,000 tokens go with a real model: beside a request that decodes, and into a process that has just started."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable

import numpy as np

from sapwood.runtime.assembly import System, assemble
from sapwood.runtime.client import Client
from sapwood.runtime.messages import Generate, Sampling
from sapwood.runtime.options import BackendOptions

NUM_BRANCHES, BRANCH_LEN = 10, 1000  # tokens
STEPS = 40  # at least, of the request that decodes
NUM_SLOTS = 16_384
SAMPLING = Sampling(max_tokens=2000, temperature=0.0, ignore_eos=True)


def _branches() -> list[list[int]]:
    rng = np.random.default_rng(0)
    return [rng.integers(100, 40_000, BRANCH_LEN).tolist() for _ in range(NUM_BRANCHES)]


def steps(model: str) -> dict[str, list[float]]:
    """Seconds from token to token of one request: alone, while all is saved, and while it is loaded."""
    system = assemble(BackendOptions(model=model, num_slots=NUM_SLOTS, speculative="off"))
    scheduler = system.scheduler
    try:
        for number, ids in enumerate(_branches()):
            scheduler.submit(b"benchmark", Generate(str(number), ids, Sampling(max_tokens=0)))
        while scheduler.num_live:
            scheduler.step()
        scheduler.submit(b"benchmark", Generate("decodes", [1], SAMPLING))
        scheduler.step()
        with tempfile.TemporaryDirectory() as folder:
            file, fingerprint = f"{folder}/snapshot", system.info.fingerprint
            found = {"alone": _timed(system, lambda end: None)}
            found["saving"] = _timed(system, lambda end: scheduler.snapshots.save(file, end, fingerprint=fingerprint))
            system.tree.flush()
            found["loading"] = _timed(system, lambda end: scheduler.snapshots.load(file, end, fingerprint=fingerprint))
        return found
    finally:
        system.close()


def _timed(system: System, begin: Callable[[Callable[[object], None]], None]) -> list[float]:
    """Seconds of each step until what was begun has ended, and of STEPS if it ends earlier."""
    pending = [True]
    times: list[float] = []
    begin(lambda result: pending.clear())
    if not system.scheduler.snapshots.is_due:
        pending.clear()
    while pending or len(times) < STEPS:
        began = time.perf_counter()
        system.scheduler.step()
        times.append(time.perf_counter() - began)
    return times


def restart(model: str) -> list[float]:
    """Seconds that a backend which has just started takes to load the snapshot, through its socket, three times."""
    times: list[float] = []
    with tempfile.TemporaryDirectory() as folder, Client.launch(model, num_slots=NUM_SLOTS) as client:
        for ids in _branches():
            client.generate(ids, Sampling(max_tokens=0))
        client.ask("save", path=f"{folder}/snapshot")
        for _ in range(3):
            client.restart()
            began = time.perf_counter()
            count = client.ask("load", path=f"{folder}/snapshot")["num_tokens"]
            times.append(time.perf_counter() - began)
            assert count == NUM_BRANCHES * BRANCH_LEN
    return times
