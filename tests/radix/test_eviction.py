"""What goes first, what never goes, and whose."""

from __future__ import annotations

import pytest

from sapwood.errors import OutOfSlots
from sapwood.radix.eviction import Expiry
from sapwood.radix.tree import RadixTree


def cache(tree: RadixTree, ids: list[int], namespace: str = "", priority: int = 0) -> None:
    """Leave computed KV of `ids` in the tree."""
    path = tree.match(ids, namespace, priority=priority)
    path.extend(ids[len(path) :])
    tree.mark_computed(path.slots)
    path.release()
    tree.check()


def test_the_least_frequently_used_goes_first() -> None:
    tree = RadixTree(4, eviction="lfu")
    cache(tree, [1, 1])
    for _ in range(3):
        tree.match([1, 1]).release()
    cache(tree, [2, 2])
    tree.match([2, 2]).release()
    cache(tree, [3, 3])
    assert [tree.peek([n, n]) for n in (1, 2, 3)] == [2, 0, 2]


def test_the_lowest_priority_goes_first() -> None:
    tree = RadixTree(4, eviction="priority")
    cache(tree, [1, 1], priority=5)
    cache(tree, [2, 2])
    cache(tree, [3, 3])
    assert [tree.peek([n, n]) for n in (1, 2, 3)] == [2, 0, 2]


def test_only_as_much_of_a_leaf_goes_as_is_needed() -> None:
    tree = RadixTree(10)
    cache(tree, list(range(10)))
    cache(tree, [50, 51, 52])
    assert tree.peek(range(10)) == 7


def test_a_tenant_within_its_quota_is_not_evicted_for_another() -> None:
    tree = RadixTree(10)
    tree.set_quota("a", 4)
    cache(tree, [1, 2, 3, 4], "a")
    for start in range(10, 100, 6):
        cache(tree, list(range(start, start + 6)), "b")
    assert tree.peek([1, 2, 3, 4], "a") == 4
    with pytest.raises(OutOfSlots):
        tree.match([], "b").extend(list(range(7)))
    assert tree.available("b") == 6 and tree.available("a") == 10


def test_beyond_its_quota_a_tenant_is_evicted_like_everybody() -> None:
    tree = RadixTree(10)
    tree.set_quota("a", 4)
    cache(tree, list(range(10)), "a")
    cache(tree, [1, 2, 3, 4, 5, 6], "b")
    assert tree.peek(range(10), "a") == 4
    cache(tree, list(range(20, 28)), "a")  # takes what is not guaranteed to b, and from itself
    assert tree.peek(range(20, 28), "a") == 8
    tree.set_quota("a", None)
    cache(tree, list(range(10)), "b")
    assert tree.peek(range(20, 28), "a") == 0
    tree.check()


def test_flush_takes_what_quotas_guard_too() -> None:
    tree = RadixTree(10)
    tree.set_quota("a", 10)
    cache(tree, [1, 2, 3], "a")
    assert tree.flush() == 3 and tree.num_free == 10


def aging(seconds: float) -> tuple[RadixTree, list[float]]:
    """A tree, and the time that it goes by."""
    now = [0.0]
    tree = RadixTree(10, ttl=seconds)
    tree._expiry = Expiry(seconds, lambda: now[0])
    return tree, now


def test_unused_cache_expires_at_its_time() -> None:
    tree, now = aging(60)
    assert tree.next_expiry is None
    cache(tree, [1, 2])
    cache(tree, [3, 4])
    held = tree.match([3])
    now[0] = 59.0
    assert tree.next_expiry == 60 and tree.expire() == 0
    now[0] = 60.0
    assert tree.expire() == 3
    assert tree.peek([1, 2]) == 0 and tree.peek([3, 4]) == 1, "what a path holds stays"
    assert tree.next_expiry is None, "nothing is left to wait for"
    held.release()
    assert tree.next_expiry == 120
    tree.check()


def test_what_is_released_late_lives_on_from_then() -> None:
    tree, now = aging(60)
    path = tree.match([1, 2])
    path.extend([1, 2])
    tree.mark_computed(path.slots)
    now[0] = 100.0
    assert tree.expire() == 0
    path.release()
    now[0] = 159.0
    assert tree.expire() == 0 and tree.peek([1, 2]) == 2
    now[0] = 160.0
    assert tree.expire() == 2


def test_an_idle_tree_is_looked_at_a_few_times_and_then_never_again() -> None:
    tree, now = aging(16)
    for turn in range(1000):
        now[0] = turn * 0.016
        cache(tree, [turn % 5, 1])
    looks = 0
    while tree.next_expiry is not None:
        assert now[0] < tree.next_expiry
        now[0] = tree.next_expiry
        tree.expire()
        looks += 1
    assert looks <= 17 and now[0] < 1000 * 0.016 + 16 and tree.num_free == 10


def test_namespaces_that_hold_nothing_leave_nothing_behind() -> None:
    tree = RadixTree(10)
    for tenant in range(100):
        path = tree.match([1, 2], f"tenant-{tenant}")
        path.extend([1, 2])
        path.release()
        tree.available(f"tenant-{tenant}")
    assert not tree.spaces
    cache(tree, [1, 2], "a")
    tree.flush()
    assert not tree.spaces


def test_a_tenant_sees_neither_counts_nor_cache_of_another() -> None:
    tree = RadixTree(100)
    cache(tree, list(range(50)), "a")
    before = tree.stats().spaces["a"]
    path = tree.match(range(50), "b")
    assert len(path) == 0 and tree.peek(range(50), "b") == 0 and tree.weight(range(50), "b") == 0
    path.release()
    cache(tree, list(range(20)), "b")
    counted = tree.stats().spaces
    assert counted["a"] == before and counted["b"].matched == 0 and counted["b"].requested == 20


def test_the_eviction_queue_stays_small_however_often_a_leaf_is_used() -> None:
    tree = RadixTree(100)
    cache(tree, [1, 2])
    for turn in range(2000):
        tree.match([1, 2]).release()
        path = tree.match([3])
        path.extend([3, turn])
        path.release()
    assert len(tree._shared_queue._heap) < 200
