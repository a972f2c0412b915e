"""Requests that wait to be admitted: by priority, then by a policy, with aging so that nobody starves.

Every AGING-th admission goes to whoever has waited longest, whatever priority and policy say. So a request that finds q others
waiting is admitted after at most AGING * (q + 1) admissions, however many favourites come after it. Preempted requests come
before all others of their priority or less: their work must not be lost for long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sapwood.runtime.scheduler.policies import Policy
from sapwood.runtime.scheduler.request import RequestState

AGING = 8


class WaitingQueue:
    """Who waits, and who is next."""

    def __init__(self, make_policy: Callable[[], Policy]) -> None:
        self._make_policy = make_policy
        self._by_age: dict[int, RequestState] = {}  # without the preempted; in order of arrival
        self._levels: dict[int, dict[int, RequestState]] = {}  # the same by priority
        self._policies: dict[int, Policy] = {}  # of each priority
        self._preempted: dict[int, RequestState] = {}
        self._num_admitted = 0

    def __len__(self) -> int:
        return len(self._by_age) + len(self._preempted)

    def __iter__(self) -> Iterator[RequestState]:
        yield from self._preempted.values()
        yield from self._by_age.values()

    def add(self, request: RequestState) -> None:
        """A new request comes to wait."""
        self._by_age[request.order] = request
        self._rank(request)

    def put_back(self, request: RequestState) -> None:
        """A preempted request waits again."""
        self._preempted[request.order] = request

    def choose(self) -> RequestState | None:
        """Who is next. Stays in the queue until `admit` or `discard`."""
        highest = max(self._levels, default=None)
        if self._preempted:
            first = min(self._preempted.values(), key=lambda r: (-r.message.priority, r.order))
            if highest is None or first.message.priority >= highest:
                return first
        if highest is None:
            return None
        if self._num_admitted % AGING == AGING - 1:
            return next(iter(self._by_age.values()))
        return self._policies[highest].choose()

    def admit(self, request: RequestState) -> None:
        """It was chosen, and runs now."""
        resumed = request.order in self._preempted
        self.discard(request)
        if not resumed:
            self._num_admitted += 1
            for policy in self._policies.values():
                policy.admitted(request)

    def discard(self, request: RequestState) -> None:
        """It doesn't wait any more."""
        self._preempted.pop(request.order, None)
        if self._by_age.pop(request.order, None) is not None:
            priority = request.message.priority
            self._policies[priority].discard(request)
            level = self._levels[priority]
            del level[request.order]
            if not level:
                del self._levels[priority], self._policies[priority]

    def change_policy(self, make_policy: Callable[[], Policy]) -> None:
        """Rank by another policy from now on."""
        self._make_policy = make_policy
        self._levels, self._policies = {}, {}
        for request in self._by_age.values():
            self._rank(request)

    def _rank(self, request: RequestState) -> None:
        priority = request.message.priority
        if priority not in self._levels:
            self._levels[priority], self._policies[priority] = {}, self._make_policy()
        self._levels[priority][request.order] = request
        self._policies[priority].add(request)
