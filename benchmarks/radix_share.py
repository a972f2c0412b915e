"""What part of a backend's work the tree is: 32 questions on 1,500 shared tokens, 16 at once, 16 tokens each, from a cold cache.

Time is CPU time, so that what else runs on the machine counts little. Calls of the tree and of its paths are timed from outside,
each call that isn't made by another one of them; what timing itself takes is measured and taken off.
"""

from __future__ import annotations

import gc
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sapwood.radix.path import Path
from sapwood.radix.tree import RadixTree
from sapwood.runtime.assembly import System, assemble
from sapwood.runtime.cli.bench.workloads import words
from sapwood.runtime.messages import Generate, Sampling
from sapwood.runtime.options import BackendOptions

NUM_SHARED, NUM_OWN, NUM_QUESTIONS, AT_ONCE, NUM_OUTPUT = 1500, 24, 32, 16, 16
TREE_CALLS = ["match", "peek", "weight", "mark_computed", "available"]
PATH_CALLS = ["extend", "push", "truncate", "release", "fork"]


@dataclass(frozen=True, slots=True)
class Share:
    """CPU seconds of one run."""

    tree: float
    process: float  # all threads of the backend
    thread: float  # of the scheduler's thread, which computes too
    calls: dict[str, tuple[int, float]]  # by the name of what was called: how often, and seconds in all


class Stopwatch:
    """CPU time of a thread inside of calls that are watched."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.counts: Counter[str] = Counter()
        self._is_running = False
        self._overhead = 0.0
        idle = self.watched("idle", lambda: None)
        for _ in range(5000):
            idle()
        self._overhead = self.seconds.pop("idle") / self.counts.pop("idle")

    def watched(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """`call`, with its time taken unless a call that is watched makes it."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            if self._is_running:
                return call(*args, **kwargs)
            self._is_running = True
            began = time.thread_time()
            try:
                return call(*args, **kwargs)
            finally:
                self.seconds[name] += time.thread_time() - began - self._overhead
                self.counts[name] += 1
                self._is_running = False

        return timed

    @contextmanager
    def on_trees(self) -> Iterator[None]:
        """Watch what the scheduler calls of all trees and paths."""
        before = [(owner, name, owner.__dict__[name]) for owner, name in _watched_names()]
        for owner, name, value in before:
            label = f"{owner.__name__}.{name}"
            if isinstance(value, property):
                assert value.fget is not None
                setattr(owner, name, property(self.watched(label, value.fget)))
            else:
                setattr(owner, name, self.watched(label, value))
        try:
            yield
        finally:
            for owner, name, value in before:
                setattr(owner, name, value)


def _watched_names() -> list[tuple[type, str]]:
    return [
        *((RadixTree, name) for name in TREE_CALLS),
        *((Path, name) for name in PATH_CALLS),
        (Path, "num_computed"),
    ]


def measure(model: str, rounds: int) -> list[Share]:
    """Some runs on one system, each from an empty tree."""
    system = assemble(BackendOptions(model=model, num_slots=8192))
    try:
        _run(system, _prompts(system, 0))  # whatever is made at the first use
        return [_measured(system, _prompts(system, seed)) for seed in range(1, rounds + 1)]
    finally:
        system.close()


def _prompts(system: System, seed: int) -> list[list[int]]:
    rng = random.Random(seed)
    shared = words(rng, NUM_SHARED)
    return [system.tokenizer.encode(f"{shared} Q: {words(rng, NUM_OWN)} A:") for _ in range(NUM_QUESTIONS)]


def _measured(system: System, prompts: list[list[int]]) -> Share:
    watch = Stopwatch()
    system.tree.flush()
    gc.collect()
    with watch.on_trees():
        process, thread = time.process_time(), time.thread_time()
        _run(system, prompts)
        process, thread = time.process_time() - process, time.thread_time() - thread
    calls = {name: (watch.counts[name], seconds) for name, seconds in watch.seconds.items()}
    return Share(sum(watch.seconds.values()), process, thread, calls)


def _run(system: System, prompts: list[list[int]]) -> None:
    """All questions, none before there is room among AT_ONCE."""
    scheduler = system.scheduler
    for number, ids in enumerate(prompts):
        while scheduler.num_live == AT_ONCE:
            scheduler.step()
        scheduler.submit(b"benchmark", Generate(str(number), ids, Sampling(max_tokens=NUM_OUTPUT, temperature=0.0)))
    while scheduler.num_live:
        scheduler.step()
    replies = scheduler.outbox.take()[b"benchmark"]
    ended = [reply for reply in replies if getattr(reply, "finish_reason", None) is not None]
    assert len(ended) == NUM_QUESTIONS, "a request failed"


def main() -> None:
    """Where the time goes, by call."""
    for share in measure("smollm2-135m", 3):
        print(
            f"tree {share.tree * 1e3:.2f} ms of {share.process:.2f} s: {share.tree / share.process:.3%}, "
            f"of the scheduler's thread {share.tree / share.thread:.3%}"
        )
        for name, (count, seconds) in sorted(share.calls.items(), key=lambda call: -call[1][1]):
            print(f"    {name:<24} {count:6} x {seconds / count * 1e6:7.2f} us = {seconds * 1e3:.2f} ms")


if __name__ == "__main__":
    main()
