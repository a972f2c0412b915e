"""Requests whose beginning lies on disk: it is read while others are computed, and put into their slots when they run."""

from __future__ import annotations

from sapwood.radix.path import Path
from sapwood.radix.tiers import Prefetch, Tiers
from sapwood.runtime.scheduler.request import RequestState


class Fetches:
    """Knows who waits for pages. Without `tiers` nobody ever does."""

    def __init__(self, tiers: Tiers | None) -> None:
        self._tiers = tiers
        self._waiting: dict[RequestState, Prefetch] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def start(self, request: RequestState) -> bool:
        """Have a request's pages read; False when it must wait for `ready`."""
        prefetch = None if self._tiers is None else self._tiers.prefetch(request.array, request.message.namespace)
        if prefetch is None:
            return True
        self._waiting[request] = prefetch
        return False

    def ready(self) -> list[RequestState]:
        """Requests whose pages have come since the last call."""
        if self._tiers is not None:
            self._tiers.poll()
        ended = [request for request, prefetch in self._waiting.items() if prefetch.is_done]
        for request in ended:
            del self._waiting[request]
        return ended

    def restore(self, path: Path) -> None:
        """Fill a path's positions that the tiers have; they are computed then."""
        if self._tiers is not None:
            self._tiers.restore(path)

    def finish(self, request: RequestState) -> None:
        """Forget a request."""
        self._waiting.pop(request, None)
