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

from sapwood.errors import InvalidRequest
from sapwood.runtime.scheduler.request import RequestState

Beginning = tuple[str, tuple[int, ...]]  # namespace and first ids
# How many of a request's ids are in the tree. Costs a walk.
Matched = Callable[[RequestState], int]


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
        self._keys: list[tuple[str, bytes, int]] = []
        self.waiting: dict[int, RequestState] = {}

    def add(self, request: RequestState) -> None:
        insort(self._keys, self._key(request))
        self.waiting[request.order] = request

    def discard(self, request: RequestState) -> None:
        if self.waiting.pop(request.order, None) is not None:
            del self._keys[bisect_left(self._keys, self._key(request))]

    def around(self, request: RequestState, count: int) -> list[RequestState]:
        """Up to `count` neighbours on either side of where `request` stands or would stand."""
        at = bisect_left(self._keys, self._key(request))
        return [self.waiting[order] for *_, order in self._keys[max(0, at - count) : at + count]]

    @staticmethod
    def _key(request: RequestState) -> tuple[str, bytes, int]:
        return request.message.namespace, np.array(request.ids, ">i4").tobytes(), request.order


class LongestPrefix:
    """lpm. Matches are estimates, renewed where the tree changed: beside the one just admitted, and before one is chosen."""

    NEIGHBOURS = 8  # matched anew on either side of an admitted request
    TRIES = 8  # most estimates that are checked for one choice
    ARRIVALS = 16  # most newcomers that are matched for one choice

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
            self._estimate(newcomer, self._matched(newcomer))
        best = self._best()
        for _ in range(self.TRIES):
            now = self._matched(best)
            if now >= self._estimates[best.order]:
                break
            self._estimate(best, now)
            best = self._best()
        return best

    def admitted(self, request: RequestState) -> None:
        for neighbour in self._shelf.around(request, self.NEIGHBOURS):
            self._estimate(neighbour, self._matched(neighbour))

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
        self._last: RequestState | None = None

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
            best = max(near, key=lambda r: self._common(r, self._last), default=None)
            if best is not None and self._common(best, self._last):
                return best
        return next(iter(max(self._groups.values(), key=len).values()))

    def admitted(self, request: RequestState) -> None:
        self._last = request

    def _beginning(self, request: RequestState) -> Beginning:
        return request.message.namespace, tuple(request.message.ids[: self.BEGINNING])

    @staticmethod
    def _common(a: RequestState, b: RequestState | None) -> int:
        if b is None or a.message.namespace != b.message.namespace:
            return 0
        size = min(len(a.ids), len(b.ids))
        differ = np.flatnonzero(np.array(a.ids[:size]) != np.array(b.ids[:size]))
        return int(differ[0]) if len(differ) else size


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
