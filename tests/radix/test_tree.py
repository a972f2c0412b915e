"""What the tree promises, one promise a test. Long random histories are in test_histories.py."""

from __future__ import annotations

import numpy as np
import pytest

from sapwood.errors import OutOfSlots
from sapwood.radix.tree import RadixTree


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


def test_a_decoded_token_grows_the_leaf_in_place_and_a_shared_tip_makes_a_child() -> None:
    tree = RadixTree(100)
    path = tree.match([1])
    path.extend([1])
    for token in range(40):
        path.extend([token])
    assert tree.stats().num_nodes == 1 and path.ids.tolist() == [1, *range(40)]
    twin = path.fork()
    path.extend([7])
    twin.extend([8])
    tree.check()
    assert tree.stats().num_nodes == 3 and tree.stats().depth == 2


def test_two_requests_that_decode_the_same_tokens_share_their_slots() -> None:
    tree = RadixTree(20)
    first, second = (tree.match([1, 2]) for _ in range(2))
    for path in (first, second):
        path.extend([1, 2])
    for token in (5, 6, 7):
        assert first.extend([token]).tolist() == second.extend([token]).tolist()
    assert tree.num_free == 15
    tree.check()


def test_counts_add_up() -> None:
    tree = RadixTree(10)
    path = tree.match([1, 2, 3])
    path.extend([1, 2, 3])
    tree.mark_computed(path.slots)
    path.release()
    tree.match([1, 2, 9]).release()
    tree.match([7]).extend(range(100, 109))
    counted = tree.stats()
    assert (counted.requested, counted.matched, counted.extended, counted.evicted) == (7, 2, 12, 2)
    assert counted.num_paths == 1 and counted.num_free == 0 and counted.num_evictable == 1
    assert counted.hit_rate == 2 / 7 and counted.spaces[""].held == 10 and counted.spaces[""].locked == 9


def test_a_leaf_that_grows_after_others_looked_at_it_is_compared_as_it_is_now() -> None:
    tree = RadixTree(20)
    path = tree.match([1])
    path.extend([1])
    for token in range(2, 8):
        path.extend([token])
        assert tree.peek([1, 2, 3, 4, 5, 6, 7]) == token
        assert tree.peek([1, *range(2, token), 19]) == token - 1
    path.truncate(3, discard=True)
    path.extend([9])
    assert tree.peek([1, 2, 3, 4]) == 3 and tree.peek([1, 2, 3, 9]) == 4
