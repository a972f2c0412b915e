"""Ways to wait: a thread blocks, a greenlet lets others run, a coroutine is awaited. The executor knows only `Waiter`."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Protocol


class Waiter(Protocol):
    """Something that is set once, from any thread."""

    def set(self) -> None: ...


class ThreadWaiter:
    """Blocks its thread."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        self._event.set()

    def wait(self, timeout: float | None = None) -> bool:
        return self._event.wait(timeout)


class AsyncWaiter:
    """Is awaited in an event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._future: asyncio.Future[None] = self._loop.create_future()

    def set(self) -> None:
        self._loop.call_soon_threadsafe(self._resolve)

    def _resolve(self) -> None:
        if not self._future.done():
            self._future.set_result(None)

    async def wait(self) -> None:
        await self._future


class Hub:
    """Runs many blocking functions on one thread: where one of them waits, the others go on."""

    def __init__(self) -> None:
        self._ready: SimpleQueue[Any] = SimpleQueue()
        self._greenlet: Any = None

    def start(self, job: Callable[[], None]) -> int:
        """Begin a job and let it run until it waits or ends; 1 if it ended. Jobs should not raise."""
        import greenlet

        return self._switch(greenlet.greenlet(job))

    def step(self) -> int:
        """Wait until a job is woken, and let it run until it waits again or ends; 1 if it ended."""
        return self._switch(self._ready.get())

    def _switch(self, job: Any) -> int:
        import greenlet

        self._greenlet = greenlet.getcurrent()
        outer, _local.hub = getattr(_local, "hub", None), self
        try:
            job.switch()
        finally:
            _local.hub = outer
        return int(job.dead)

    def waker(self) -> Callable[[], None]:
        """What wakes the current job after it called `pause`."""
        import greenlet

        me = greenlet.getcurrent()
        return lambda: self._ready.put(me)

    def pause(self) -> None:
        """Let the others run until the current job is woken."""
        self._greenlet.switch()


class GreenletWaiter:
    """Lets the other jobs of its hub run."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._wake = hub.waker()
        self._lock = threading.Lock()
        self._is_set = False
        self._is_paused = False  # only a paused job may be woken, and only once

    def set(self) -> None:
        with self._lock:
            wakes = self._is_paused and not self._is_set
            self._is_set = True
        if wakes:
            self._wake()

    def wait(self, timeout: float | None = None) -> bool:
        with self._lock:
            if self._is_set:
                return True
            self._is_paused = True
        if timeout is None:
            self._hub.pause()
            return True
        expired = threading.Event()

        def expire() -> None:
            expired.set()
            self.set()

        timer = threading.Timer(max(timeout, 0), expire)
        timer.daemon = True
        timer.start()
        self._hub.pause()
        timer.cancel()
        return not expired.is_set()


_local = threading.local()


def current_waiter() -> ThreadWaiter | GreenletWaiter:
    """The way to wait that fits the calling code."""
    hub = getattr(_local, "hub", None)
    return ThreadWaiter() if hub is None else GreenletWaiter(hub)
