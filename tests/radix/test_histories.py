"""The tree against a naive twin: a dict from prefix to slot, checked over long random histories of everything it can do."""

from __future__ import annotations

import random
from pathlib import Path as FilePath

import numpy as np
import pytest
from fake_memory import FakeKV, record
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sapwood.errors import OutOfSlots
from sapwood.radix import snapshot
from sapwood.radix.path import Path
from sapwood.radix.tiers import Tiers
from sapwood.radix.tree import RadixTree

NAMESPACES = ["", "a", "b"]


class Held:
    """A live path and what it should say."""

    def __init__(self, path: Path, ids: list[int], namespace: str) -> None:
        self.path = path
        self.ids = ids
        self.namespace = namespace


class Twin:
    """Does things to a tree and to its naive model alike."""

    def __init__(
        self, num_slots: int, eviction: str = "lru", folder: FilePath | None = None, tiers: bool = False
    ) -> None:
        self.tree = RadixTree(num_slots, eviction=eviction)
        self.kv = FakeKV(num_slots, 4)
        self.tiers = Tiers(self.tree, self.kv, fingerprint="m", host_bytes=64 * 64) if tiers else None
        self.live: list[Held] = []
        self.pins: list[tuple[list[int], str]] = []
        self.folder = folder

    def begin(self, ids: list[int], namespace: str, priority: int = 0) -> None:
        path = self.tree.match(ids, namespace, priority=priority)
        assert path.ids.tolist() == ids[: len(path)]
        assert len(path) == self.tree.peek(ids, namespace)
        held = Held(path, ids[: len(path)], namespace)
        self.live.append(held)
        self.grow(held, ids[len(path) :])
        if self.tiers is not None:
            self.tiers.restore(path)

    def grow(self, held: Held, more: list[int]) -> None:
        before = held.path.slots.tolist()
        try:
            new = held.path.extend(more).tolist()
        except OutOfSlots:
            assert held.path.slots.tolist() == before
            assert self.tree.available(held.namespace) < len(more)
        else:
            assert held.path.slots.tolist() == before + new
            held.ids += more

    def compute(self, held: Held, count: int) -> None:
        """`count` more positions, in order, as a step does."""
        start = held.path.num_computed
        end = min(start + count, len(held.path))
        for position in range(start, end):
            self.kv.records[held.path.slots[position]] = self.record(held, position)
        self.tree.mark_computed(held.path.slots[start:end].copy())

    def fork(self, held: Held) -> None:
        self.live.append(Held(held.path.fork(), list(held.ids), held.namespace))

    def truncate(self, held: Held, length: int, discard: bool) -> None:
        held.path.truncate(length, discard=discard)
        del held.ids[length:]

    def release(self, held: Held) -> None:
        self.live.remove(held)
        held.path.release()

    def pin(self, ids: list[int], namespace: str) -> None:
        if len(self.pins) < 4:
            self.tree.pin(ids, namespace)
            self.pins.append((ids, namespace))

    def unpin(self, index: int) -> None:
        assert self.tree.unpin(*self.pins.pop(index))

    def save_and_load(self, namespace: str) -> None:
        assert self.folder is not None
        file = self.folder / "snapshot"
        snapshot.save(self.tree, self.kv, file, fingerprint="m", namespace=namespace)
        snapshot.load(self.tree, self.kv, file, fingerprint="m")

    def record(self, held: Held, position: int) -> np.ndarray:
        return record(np.array(held.ids[: position + 1], np.int32), held.namespace, 4)

    def verify(self) -> None:
        """Every path says what it should, equal prefixes have one slot, and no slot has two prefixes."""
        self.tree.check()
        slot_of: dict[tuple[str, bytes], int] = {}
        prefix_of: dict[int, tuple[str, bytes]] = {}
        for held in self.live:
            assert held.path.ids.tolist() == held.ids
            for position, slot in enumerate(held.path.slots.tolist()):
                prefix = (held.namespace, np.array(held.ids[: position + 1], np.int32).tobytes())
                assert slot_of.setdefault(prefix, slot) == slot and prefix_of.setdefault(slot, prefix) == prefix
            for position in range(held.path.num_computed):
                assert np.array_equal(self.kv.records[held.path.slots[position]], self.record(held, position))

    def end(self) -> None:
        while self.live:
            self.release(self.live[-1])
        while self.pins:
            self.unpin(0)
        self.tree.check()
        self.tree.flush()
        assert self.tree.num_free == self.tree.num_slots and self.tree.num_nodes == 0


def random_step(twin: Twin, rng: random.Random) -> None:
    """One thing that a scheduler, a user or an administrator does."""
    action = rng.random()
    if not twin.live or (action < 0.25 and len(twin.live) < 12):
        ids = [rng.randrange(3) for _ in range(rng.randrange(1, 24))]
        twin.begin(ids, rng.choice(NAMESPACES), rng.randrange(3))
        return
    held = rng.choice(twin.live)
    if action < 0.5:
        twin.grow(held, [rng.randrange(3) for _ in range(rng.choice([1, 1, 1, 5]))])
    elif action < 0.7:
        twin.compute(held, rng.randrange(1, 20))
    elif action < 0.75:
        twin.fork(held)
    elif action < 0.82:
        twin.truncate(held, rng.randint(0, len(held.ids)), rng.random() < 0.5)
    elif action < 0.98:
        twin.release(held)
    else:
        administer(twin, held, rng)


def administer(twin: Twin, held: Held, rng: random.Random) -> None:
    action = rng.randrange(5)
    if action == 0:
        twin.pin(list(held.ids), held.namespace)
    elif action == 1 and twin.pins:
        twin.unpin(rng.randrange(len(twin.pins)))
    elif action == 2:
        twin.tree.set_quota("b", rng.choice([None, 5, 20]))
    elif action == 3 and twin.folder is not None:
        twin.save_and_load(held.namespace)
    elif action == 4 and rng.random() < 0.2:
        twin.tree.flush(demote=rng.random() < 0.5)


def run_history(twin: Twin, seed: int, num_steps: int, verify_every: int, check_every: int = 1) -> None:
    rng = random.Random(seed)
    for step in range(num_steps):
        random_step(twin, rng)
        if step % check_every == 0:
            twin.tree.check()
        if step % verify_every == 0:
            twin.verify()
    twin.tree.set_quota("b", None)
    twin.end()


@pytest.mark.parametrize("eviction", ["lru", "lfu", "priority"])
def test_a_random_history_is_right_after_every_step(eviction: str, tmp_path: FilePath) -> None:
    run_history(Twin(60, eviction, tmp_path), seed=1, num_steps=1500, verify_every=1)


def test_a_random_history_with_tiers_below(tmp_path: FilePath) -> None:
    run_history(Twin(60, folder=tmp_path, tiers=True), seed=2, num_steps=1500, verify_every=1)


@pytest.mark.parametrize(
    ("num_slots", "num_steps", "check_every"), [(20, 40_000, 1), (100, 30_000, 1), (1000, 30_000, 50)]
)
def test_a_hundred_thousand_random_steps(num_slots: int, num_steps: int, check_every: int, tmp_path: FilePath) -> None:
    run_history(Twin(num_slots, folder=tmp_path), num_slots, num_steps, verify_every=50, check_every=check_every)


class Histories(RuleBasedStateMachine):
    """Hypothesis looks for a short history that breaks something."""

    ids = st.lists(st.integers(0, 2), max_size=12)
    which = st.integers(0, 100)

    @initialize(num_slots=st.integers(1, 40), quota=st.none() | st.integers(0, 20))
    def start(self, num_slots: int, quota: int | None) -> None:
        self.twin = Twin(num_slots)
        self.twin.tree.set_quota("a", quota)

    def held(self, which: int) -> Held:
        return self.twin.live[which % len(self.twin.live)]

    def any_live(self) -> bool:
        return bool(self.twin.live)

    @rule(ids=ids, namespace=st.sampled_from(NAMESPACES), priority=st.integers(0, 1))
    def begin(self, ids: list[int], namespace: str, priority: int) -> None:
        self.twin.begin(ids, namespace, priority)

    @precondition(any_live)
    @rule(which=which, ids=ids)
    def grow(self, which: int, ids: list[int]) -> None:
        self.twin.grow(self.held(which), ids)

    @precondition(any_live)
    @rule(which=which, count=st.integers(1, 12))
    def compute(self, which: int, count: int) -> None:
        self.twin.compute(self.held(which), count)

    @precondition(any_live)
    @rule(which=which)
    def fork(self, which: int) -> None:
        self.twin.fork(self.held(which))

    @precondition(any_live)
    @rule(which=which, length=which, discard=st.booleans())
    def truncate(self, which: int, length: int, discard: bool) -> None:
        held = self.held(which)
        self.twin.truncate(held, length % (len(held.ids) + 1), discard)

    @precondition(any_live)
    @rule(which=which)
    def release(self, which: int) -> None:
        self.twin.release(self.held(which))

    @precondition(any_live)
    @rule(which=which)
    def pin(self, which: int) -> None:
        held = self.held(which)
        self.twin.pin(list(held.ids), held.namespace)

    @rule()
    def flush(self) -> None:
        self.twin.tree.flush()

    @invariant()
    def is_right(self) -> None:
        if hasattr(self, "twin"):
            self.twin.verify()


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
