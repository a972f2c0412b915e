"""One backend with the fake model for the tests that don't break it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sapwood.runtime.client import Client


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with Client.launch("fake", num_slots=4096, threads=1, check=True) as launched:
        yield launched
