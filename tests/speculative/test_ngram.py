"""The n-gram drafter proposes what followed before, and forgets what it must."""

from __future__ import annotations

import numpy as np
from hypothesis import given, strategies as st

from sapwood.runtime.speculative.drafter import Wish
from sapwood.runtime.speculative.ngram import LONGEST, SHORTEST, NgramDrafter


def propose(drafter: NgramDrafter, rid: str, most: int) -> list[int]:
    (draft,) = drafter.propose([Wish(rid, 0, np.zeros(0, np.int32), most, 0.0)])
    return draft.ids


def test_it_proposes_what_followed_last_time() -> None:
    drafter = NgramDrafter()
    drafter.start("a", [1, 2, 3, 4, 5, 9, 9, 1, 2, 3])
    assert propose(drafter, "a", 3) == [4, 5, 9]


def test_a_longer_match_wins_over_a_later_one() -> None:
    drafter = NgramDrafter()
    drafter.start("a", [1, 2, 3, 50, 7, 2, 3, 60, 1, 2, 3])
    assert propose(drafter, "a", 1) == [50]


def test_a_loop_is_drafted_beyond_the_end_of_the_text() -> None:
    drafter = NgramDrafter()
    drafter.start("a", [1, 2, 1, 2, 1, 2])
    assert propose(drafter, "a", 5) == [1, 2, 1, 2, 1]


def test_finished_requests_teach_later_ones() -> None:
    drafter = NgramDrafter()
    drafter.start("a", [10, 11, 12])
    drafter.accept("a", [13, 14, 15])
    drafter.finish("a")
    drafter.start("b", [99, 11, 12, 13])
    assert propose(drafter, "b", 8) == [14, 15]


def test_another_namespace_learns_nothing() -> None:
    drafter = NgramDrafter()
    drafter.start("a", [10, 11, 12, 13, 14], "tenant")
    drafter.finish("a")
    drafter.start("b", [10, 11, 12, 13])
    assert propose(drafter, "b", 8) == []


def test_nothing_is_proposed_without_a_precedent() -> None:
    drafter = NgramDrafter()
    drafter.start("a", [1, 2, 3])
    assert propose(drafter, "a", 4) == []


def test_memory_is_bounded() -> None:
    drafter = NgramDrafter(capacity=1000)
    for i in range(200):
        drafter.start(str(i), range(i * 100, i * 100 + 100))
        drafter.finish(str(i))
    assert drafter._num_finished_ids <= 1000
    assert len(drafter._shared) <= 1000 * LONGEST
    assert not drafter._running


@given(st.lists(st.integers(0, 3), min_size=1, max_size=60), st.integers(1, 8))
def test_every_proposal_followed_a_shared_suffix(ids: list[int], most: int) -> None:
    drafter = NgramDrafter()
    drafter.start("a", ids[:1])
    for token in ids[1:]:
        drafter.accept("a", [token])
    proposal = propose(drafter, "a", most)
    assert len(proposal) <= most
    if proposal:
        suffix = ids[-SHORTEST:]
        places = [i for i in range(len(ids) - SHORTEST) if ids[i : i + SHORTEST] == suffix]
        assert any(ids[i + SHORTEST] == proposal[0] for i in places)
    else:
        assert all(ids[i : i + SHORTEST] != ids[-SHORTEST:] for i in range(len(ids) - SHORTEST))
