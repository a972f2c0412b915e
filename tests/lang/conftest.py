"""Programs run on the fake model through the whole real stack."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sapwood.lang.backends import set_default_backend
from sapwood.runtime.client import Client


@pytest.fixture(scope="session")
def client() -> Iterator[Client]:
    with Client.launch("fake") as client:
        yield client


@pytest.fixture(autouse=True)
def default_backend(client: Client) -> Iterator[None]:
    set_default_backend(client)
    yield
    set_default_backend(None)
