"""A backend that is killed costs its running requests a clear error, at once, and nothing more."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator

import httpx
import pytest

from sapwood.runtime.client import Client

ENDLESS = {"prompt": "on and on", "max_tokens": 10**6, "ignore_eos": True}
NUM_CLIENTS = 8


@pytest.fixture
def own_backend() -> Iterator[Client]:
    """A backend that a test may kill."""
    with Client.launch("fake") as client:
        yield client


def kill(client: Client) -> None:
    assert client._process is not None
    os.kill(client._process.pid, signal.SIGKILL)


def test_every_client_gets_an_error_within_a_second_and_then_answers_again(
    own_backend: Client, serve: Callable[..., str]
) -> None:
    url = serve(own_backend)
    begun = threading.Barrier(NUM_CLIENTS + 1)
    ends: list[tuple[float, str]] = []

    def streaming() -> None:
        with httpx.stream("POST", f"{url}/v1/completions", json={**ENDLESS, "stream": True}, timeout=30) as stream:
            lines = stream.iter_lines()
            next(lines)
            begun.wait(10)
            events = [line for line in lines if line]
        ends.append((time.monotonic(), json.loads(events[-2].removeprefix("data: "))["error"]["message"]))
        assert events[-1] == "data: [DONE]"

    def waiting() -> None:
        begun.wait(10)
        response = httpx.post(f"{url}/v1/completions", json=ENDLESS, timeout=30)
        assert response.status_code == 503
        ends.append((time.monotonic(), response.json()["error"]["message"]))

    threads = [threading.Thread(target=streaming if i % 2 else waiting) for i in range(NUM_CLIENTS)]
    for thread in threads:
        thread.start()
    begun.wait(10)
    time.sleep(0.1)
    killed = time.monotonic()
    kill(own_backend)
    for thread in threads:
        thread.join(10)
    assert len(ends) == NUM_CLIENTS
    assert all(when - killed < 1 and "backend" in message for when, message in ends), ends
    deadline = time.monotonic() + 15
    while (response := httpx.post(f"{url}/v1/completions", json={"prompt": "a", "max_tokens": 2})).status_code == 503:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert response.status_code == 200 and httpx.get(f"{url}/health").status_code == 200


def test_health_says_that_the_backend_is_away(own_backend: Client, serve: Callable[..., str]) -> None:
    url = serve(own_backend)
    assert httpx.get(f"{url}/health").status_code == 200
    kill(own_backend)
    statuses = []
    deadline = time.monotonic() + 15
    while statuses[-1:] != [200] or 503 not in statuses:
        statuses.append(httpx.get(f"{url}/health").status_code)
        assert time.monotonic() < deadline, statuses[-5:]
        time.sleep(0.005)
