"""Cache that nobody uses is forgotten at its time, by a loop that sleeps until then and after."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import zmq
from in_process import Driver

from sapwood.runtime.backend import Backend, bind


def test_a_scheduler_without_requests_asks_to_be_woken_when_something_expires() -> None:
    driver = Driver(ttl=60)
    assert driver.scheduler.next_deadline is None
    began = time.monotonic()
    driver.complete("Forget me", max_tokens=2)
    deadline = driver.scheduler.next_deadline
    assert deadline is not None and began + 60 <= deadline <= time.monotonic() + 60
    driver.submit("soon", "A request with a deadline", timeout=5)
    assert driver.scheduler.next_deadline < deadline
    assert Driver().scheduler.next_deadline is None


def test_a_sleeping_backend_forgets_at_the_time_and_sleeps_on(tmp_path: Path) -> None:
    driver = Driver(ttl=0.3)
    driver.complete("Forget me", max_tokens=2)
    forgotten, ended = threading.Event(), threading.Event()
    driver.tree.on_free = lambda slots: forgotten.set()
    steps = 0
    inner = driver.scheduler.step

    def counted() -> None:
        nonlocal steps
        steps += 1
        inner()

    driver.scheduler.step = counted  # type: ignore[method-assign]
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    backend = Backend(bind(context, f"ipc://{tmp_path}/socket"))
    thread = threading.Thread(target=backend.serve, args=(driver.system, ended))
    thread.start()
    try:
        assert forgotten.wait(30), "nobody asked it anything, and it forgot nothing"
    finally:
        ended.set()
        backend.wake()
        thread.join()
        context.destroy()
    assert driver.tree.num_free == driver.tree.num_slots
    assert driver.scheduler.next_deadline is None and steps <= 18
