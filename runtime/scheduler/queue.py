"""Requests that wait to be admitted: ranked by a policy, with aging so that nobody starves.

Every AGING-th admission goes to whoever has waited longest, whatever the policy says. So a request that finds q others waiting
is admitted after at most AGING * (q + 1) admissions, however many newcomers the policy prefers. Preempted requests come
before all others: their work must not be lost for long.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from sapwood.runtime.scheduler.policies import Policy
from sapwood.runtime.scheduler.request import RequestState

AGING = 8


class WaitingQueue:
    """Who waits, and who is next."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._by_age: dict[int, RequestState] = {}  # without the preempted; in order of arrival
        self._preempted: deque[RequestState] = deque()
        self._num_admitted = 0

    def __len__(self) -> int:
        return len(self._by_age) + len(self._preempted)

    def __iter__(self) -> Iterator[RequestState]:
        yield from self._preempted
        yield from self._by_age.values()

    def add(self, request: RequestState) -> None:
        """A new request comes to wait."""
        self._by_age[request.order] = request
        self._policy.add(request)

    def put_back(self, request: RequestState) -> None:
        """A preempted request waits again, before all others."""
        self._preempted.appendleft(request)

    def choose(self) -> RequestState | None:
        """Who is next. Stays in the queue until `admit` or `discard`."""
        if self._preempted:
            return self._preempted[0]
        if not self._by_age:
            return None
        if self._num_admitted % AGING == AGING - 1:
            return next(iter(self._by_age.values()))
        return self._policy.choose()

    def admit(self, request: RequestState) -> None:
        """It was chosen, and runs now."""
        resumed = request.order not in self._by_age
        self.discard(request)
        if not resumed:
            self._num_admitted += 1
            self._policy.admitted(request)

    def discard(self, request: RequestState) -> None:
        """It doesn't wait any more."""
        if self._by_age.pop(request.order, None) is not None:
            self._policy.discard(request)
        elif request in self._preempted:
            self._preempted.remove(request)

    def change_policy(self, policy: Policy) -> None:
        """Rank by another policy from now on."""
        self._policy = policy
        for request in self._by_age.values():
            policy.add(request)
