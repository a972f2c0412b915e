"""The tree keeps its invariant and never mixes up what a slot holds, over long random histories."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from sapwood.errors import OutOfSlots
from sapwood.radix.path import Path
from sapwood.radix.tree import RadixTree

Prefix = tuple[str, tuple[int, ...]]


class Model:
    """A naive twin: what each slot should hold, and what each live path should say."""

    def __init__(self, num_slots: int, eviction: str = "lru") -> None:
        self.tree = RadixTree(num_slots, eviction=eviction)
        self.holds: dict[int, Prefix] = {}  # by slot: the prefix whose last token's KV was "computed" into it
        self.live: list[tuple[Path, str, list[int]]] = []

    def compute(self, path: Path, namespace: str, ids: list[int], until: int) -> None:
        begin = path.num_computed
        for position in range(begin, until):
            self.holds[int(path.slots[position])] = (namespace, tuple(ids[: position + 1]))
        self.tree.mark_computed(path.slots[begin:until].copy())

    def verify(self, path: Path, namespace: str, ids: list[int]) -> None:
        assert path.ids.tolist() == ids
        for position in range(path.num_computed):
            assert self.holds[int(path.slots[position])] == (namespace, tuple(ids[: position + 1]))

    def verify_all(self) -> None:
        self.tree.check()
        owner: dict[int, Prefix] = {}
        for path, namespace, ids in self.live:
            self.verify(path, namespace, ids)
            for position, slot in enumerate(path.slots.tolist()):
                prefix = (namespace, tuple(ids[: position + 1]))
                assert owner.setdefault(slot, prefix) == prefix

    def step(self, rng: random.Random) -> None:
        action = rng.random()
        if action < 0.3 or not self.live:
            self.begin(rng)
            return
        index = rng.randrange(len(self.live))
        path, namespace, ids = self.live[index]
        if action < 0.5:
            self.grow(path, ids, [rng.randrange(3) for _ in range(rng.randrange(1, 6))])
        elif action < 0.65:
            self.compute(path, namespace, ids, rng.randint(path.num_computed, len(ids)))
        elif action < 0.72:
            self.live.append((path.fork(), namespace, list(ids)))
        elif action < 0.8:
            length = rng.randint(0, len(ids))
            path.truncate(length, discard=rng.random() < 0.5)
            del ids[length:]
        else:
            path.release()
            del self.live[index]

    def begin(self, rng: random.Random) -> None:
        namespace = rng.choice(["", "tenant"])
        ids = [rng.randrange(3) for _ in range(rng.randrange(1, 24))]
        path = self.tree.match(ids, namespace)
        known = ids[: len(path)]
        self.verify(path, namespace, known)
        self.live.append((path, namespace, known))
        self.grow(path, known, ids[len(path) :])

    def grow(self, path: Path, ids: list[int], more: list[int]) -> None:
        before = path.ids.tolist()
        try:
            slots = path.extend(more)
        except OutOfSlots:
            assert path.ids.tolist() == before
            assert self.tree.num_free + self.tree.num_evictable < len(more) or len(more) > 0
        else:
            assert slots.tolist() == path.slots[len(before) :].tolist()
            ids.extend(more)


@pytest.mark.parametrize("eviction", ["lru", "lfu", "priority"])
@pytest.mark.parametrize("num_slots", [20, 200])
def test_a_long_random_history(num_slots: int, eviction: str) -> None:
    rng, model = random.Random(num_slots), Model(num_slots, eviction)
    for step in range(3000):
        model.step(rng)
        if step % 10 == 0:
            model.verify_all()
    for path, _, _ in model.live:
        path.release()
    model.tree.check()
    model.tree.flush()
    assert model.tree.num_free == num_slots


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(5, 60), st.integers(1, 120))
def test_any_short_history(seed: int, num_slots: int, steps: int) -> None:
    rng, model = random.Random(seed), Model(num_slots)
    for _ in range(steps):
        model.step(rng)
        model.verify_all()


def test_a_second_request_waits_on_the_same_slots() -> None:
    tree = RadixTree(10)
    first, second = tree.match([1, 2, 3]), None
    first.extend([1, 2, 3])
    second = tree.match([1, 2, 3, 4])
    second.extend([4])
    assert second.slots[:3].tolist() == first.slots.tolist() and second.num_computed == 0
    first.release()  # the second still holds the uncomputed slots
    tree.check()
    tree.mark_computed(second.slots[:3])
    assert second.num_computed == 3


def test_what_was_never_computed_is_free_after_release() -> None:
    tree = RadixTree(10)
    path = tree.match([1, 2, 3, 4])
    path.extend([1, 2, 3, 4])
    tree.mark_computed(path.slots[:2])
    path.release()
    assert tree.num_free == 8 and len(tree.match([1, 2, 3, 4])) == 2


def test_namespaces_share_nothing() -> None:
    tree = RadixTree(10)
    path = tree.match([1, 2], "a")
    path.extend([1, 2])
    tree.mark_computed(path.slots)
    path.release()
    assert len(tree.match([1, 2], "b")) == 0 and len(tree.match([1, 2], "a")) == 2


def test_the_least_recently_used_goes_first() -> None:
    tree = RadixTree(4)
    for token in (1, 2):
        path = tree.match([token, token])
        path.extend([token, token])
        tree.mark_computed(path.slots)
        path.release()
    tree.match([1, 1]).release()
    path = tree.match([3])
    path.extend([3])
    assert len(tree.match([1, 1])) == 2 and len(tree.match([2, 2])) == 1


def test_a_pinned_prefix_survives_flush() -> None:
    tree = RadixTree(8)
    path = tree.match([1, 2, 3])
    path.extend([1, 2, 3])
    tree.mark_computed(path.slots)
    path.release()
    assert tree.pin([1, 2]) == 2
    tree.flush()
    tree.check()
    assert tree.num_free == 6
    assert tree.unpin([1, 2]) and not tree.unpin([1, 2])
    tree.flush()
    assert tree.num_free == 8


def test_too_large_a_request_changes_nothing() -> None:
    tree = RadixTree(5)
    path = tree.match([1])
    path.extend([1])
    with pytest.raises(OutOfSlots, match="5 more KV slots"):
        path.extend([2, 3, 4, 5, 6])
    tree.check()
    assert np.array_equal(path.ids, [1]) and tree.num_free == 4
