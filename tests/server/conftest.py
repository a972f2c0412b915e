"""A real server in a thread: real sockets, and the real backend process with the fake model behind it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import openai
import pytest
import uvicorn

from sapwood.runtime.client import Client
from sapwood.runtime.server.config import ServerConfig
from sapwood.runtime.server.serving import listen, server_of, url_of

SECONDS = 30.0
KERNELS = os.environ.get("SAPWOOD_BACKEND", "cpu")
Serve = Callable[..., str]


@pytest.fixture(scope="session")
def backend() -> Iterator[Client]:
    """One backend with the fake model for all tests of this folder."""
    with Client.launch("fake", backend=KERNELS) as client:
        yield client


class Servers:
    """Servers in threads; they end with the fixture that made them."""

    def __init__(self, backend: Client, folder: Path) -> None:
        self._backend = backend
        self._folder = folder
        self._running: list[tuple[uvicorn.Server, threading.Thread]] = []

    def start(self, client: Client | None = None, **settings: object) -> str:
        """Serve on a free port; returns the URL. The port is taken at once, so requests may be sent at once."""
        config = ServerConfig(**{"data_dir": str(self._folder), "port": 0, **settings})  # type: ignore[arg-type]
        taken = listen(config.host, config.port)
        server = server_of(client or self._backend, config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [taken]}, daemon=True)
        thread.start()
        self._running.append((server, thread))
        return url_of(taken, config)

    def close(self) -> None:
        """End all of them."""
        for server, thread in self._running:
            server.should_exit = server.force_exit = True
            thread.join(SECONDS)


@pytest.fixture
def serve(backend: Client, tmp_path: Path) -> Iterator[Serve]:
    """Start a server with settings of one's own."""
    servers = Servers(backend, tmp_path)
    yield servers.start
    servers.close()


@pytest.fixture(scope="session")
def url(backend: Client, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server with default settings, for all tests that change none."""
    servers = Servers(backend, tmp_path_factory.mktemp("server"))
    yield servers.start()
    servers.close()


@pytest.fixture
def http(url: str) -> Iterator[httpx.Client]:
    """Plain HTTP to it."""
    with httpx.Client(base_url=url, timeout=SECONDS) as client:
        yield client


@pytest.fixture
def ai(url: str) -> Iterator[openai.OpenAI]:
    """The official client to it."""
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=SECONDS) as client:
        yield client
