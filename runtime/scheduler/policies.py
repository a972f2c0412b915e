"""In which order waiting requests of one priority are admitted. The queue (`queue.py`) sees to priorities and aging.

    fcfs        first come, first served; `priority` is another name for it, since priorities always count
    lpm         longest prefix match: those whose prompt is already in the tree, to the longest, first
    dfs-weight  depth first: those that go on where the last admitted one went, then the largest group of those with a
                common beginning

Each choice costs at most a few matches against the tree, however many wait.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sapwood.errors import InvalidRequest
from sapwood.runtime.scheduler.request import RequestState

Beginning = tuple[str, tuple[int, ...]]  # namespace and first ids
Key = tuple[str, bytes, int]  # namespace, ids (big-endian, so that bytes sort as ids do), order of arrival
# How many of the first ids are in the tree, in a namespace. Costs a walk.
Matched = Callable[[NDArray[np.int32], str], int]


class Policy(Protocol):
    """Ranks waiting requests. They are named by their order of arrival."""

    def add(self, request: RequestState) -> None: ...

    def discard(self, request: RequestState) -> None:
        """It doesn't wait any more."""
        ...

    def choose(self) -> RequestState:
        """Who should be next; there is somebody. Nothing is removed."""
        ...

    def admitted(self, request: RequestState) -> None:
        """It runs now, so the tree holds its prompt (after `discard`)."""
        ...


class FirstCome:
    """fcfs."""

    def __init__(self) -> None:
        self._waiting: dict[int, RequestState] = {}

    def add(self, request: RequestState) -> None:
        self._waiting[request.order] = request

    def discard(self, request: RequestState) -> None:
        self._waiting.pop(request.order, None)

    def choose(self) -> RequestState:
        return next(iter(self._waiting.values()))

    def admitted(self, request: RequestState) -> None:
        """The order doesn't depend on it."""


class Shelf:
    """Waiting requests in the lexicographic order of their ids, so that those with a common prefix stand side by side."""

    def __init__(self) -> None:
        self._keys: list[Key] = []
        self._key_of: dict[int, Key] = {}
        self.waiting: dict[int, RequestState] = {}

    def add(self, request: RequestState) -> None:
        key = _key(request)
        insort(self._keys, key)
        self._key_of[request.order] = key
        self.waiting[request.order] = request

    def discard(self, request: RequestState) -> None:
        if self.waiting.pop(request.order, None) is not None:
            del self._keys[bisect_left(self._keys, self._key_of.pop(request.order))]

    def around(self, key: Key, count: int) -> list[tuple[RequestState, int]]:
        """Up to `count` neighbours on either side of where `key` stands or would stand, with the ids they have in common."""
        at = bisect_left(self._keys, key)
        near = self._keys[max(0, at - count) : at + count]
        return [(self.waiting[other[-1]], _num_common(key, other)) for other in near]


def _key(request: RequestState) -> Key:
    return request.message.namespace, request.array.astype(">i4").tobytes(), request.order


def _num_common(a: Key, b: Key) -> int:
    """How many of their first ids are equal."""
    if a[0] != b[0]:
        return 0
    size = min(len(a[1]), len(b[1])) // 4
    differs = np.frombuffer(a[1], np.int32, size) != np.frombuffer(b[1], np.int32, size)
    first = int(differs.argmax()) if size else 0
    return first if size and differs[first] else size


class LongestPrefix:
    """lpm. Matches are estimates, renewed where the tree changed: beside the one just admitted, and before one is chosen."""

    NEIGHBOURS = 8  # looked at anew on either side of an admitted request
    TRIES = 8  # most estimates that are checked for one choice
    ARRIVALS = 8  # most newcomers that are matched for one choice

    def __init__(self, matched: Matched) -> None:
        self._matched = matched
        self._shelf = Shelf()
        self._estimates: dict[int, int] = {}
        self._heap: list[tuple[int, int]] = []  # (-estimate, order); those that don't agree with _estimates are stale
        self._new: dict[int, RequestState] = {}

    def add(self, request: RequestState) -> None:
        self._shelf.add(request)
        self._new[request.order] = request
        self._estimate(request, 0)

    def discard(self, request: RequestState) -> None:
        self._shelf.discard(request)
        self._estimates.pop(request.order, None)
        self._new.pop(request.order, None)

    def choose(self) -> RequestState:
        for _ in range(min(self.ARRIVALS, len(self._new))):
            newcomer = self._new.pop(next(iter(self._new)))
            self._estimate(newcomer, self._matched(newcomer.array, newcomer.message.namespace))
        best = self._best()
        for _ in range(self.TRIES):
            now = self._matched(best.array, best.message.namespace)
            if now >= self._estimates[best.order]:
                break
            self._estimate(best, now)
            best = self._best()
        return best

    def admitted(self, request: RequestState) -> None:
        for neighbour, num_common in self._shelf.around(_key(request), self.NEIGHBOURS):
            self._estimate(neighbour, max(num_common, self._estimates[neighbour.order]))

    def _estimate(self, request: RequestState, matched: int) -> None:
        if self._estimates.get(request.order) != matched:
            self._estimates[request.order] = matched
            heapq.heappush(self._heap, (-matched, request.order))

    def _best(self) -> RequestState:
        while self._estimates.get(self._heap[0][1]) != -self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._shelf.waiting[self._heap[0][1]]


class DepthFirst:
    """dfs-weight. The weight of a beginning is the number of waiting requests that have it."""

    BEGINNING = 16  # ids that make a beginning

    def __init__(self) -> None:
        self._shelf = Shelf()
        self._groups: dict[Beginning, dict[int, RequestState]] = {}
        self._last: Key | None = None

    def add(self, request: RequestState) -> None:
        self._shelf.add(request)
        self._groups.setdefault(self._beginning(request), {})[request.order] = request

    def discard(self, request: RequestState) -> None:
        self._shelf.discard(request)
        beginning = self._beginning(request)
        group = self._groups.get(beginning, {})
        group.pop(request.order, None)
        if not group:
            self._groups.pop(beginning, None)

    def choose(self) -> RequestState:
        if self._last is not None:
            near = self._shelf.around(self._last, 1)
            best, num_common = max(near, key=lambda found: found[1], default=(None, 0))
            if best is not None and num_common:
                return best
        return next(iter(max(self._groups.values(), key=len).values()))

    def admitted(self, request: RequestState) -> None:
        self._last = _key(request)

    def _beginning(self, request: RequestState) -> Beginning:
        return request.message.namespace, tuple(request.message.ids[: self.BEGINNING])


def policy_maker(name: str, matched: Matched) -> Callable[[], Policy]:
    """What makes policies of that name, with nobody in them. Raises InvalidRequest."""
    makers: dict[str, Callable[[], Policy]] = {
        "fcfs": FirstCome,
        "lpm": lambda: LongestPrefix(matched),
        "dfs-weight": DepthFirst,
        "priority": FirstCome,
    }
    if name not in makers:
        raise InvalidRequest(f"there is no policy '{name}'; choose fcfs, lpm, dfs-weight or priority")
    return makers[name]
