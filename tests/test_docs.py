"""The Python in the README and in docs/programs.md runs as it stands, on the fake model."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sapwood.lang.backends import set_default_backend
from sapwood.runtime.client import Client

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(autouse=True)
def fake_backend() -> Iterator[None]:
    with Client.launch("fake") as client:
        set_default_backend(client)
        yield
        set_default_backend(None)


@pytest.mark.parametrize("page", ["README.md", "docs/programs.md"])
def test_every_example_runs(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {"__name__": "docs"}
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.S)
    assert blocks
    for block in blocks:
        exec(compile(block, page, "exec", dont_inherit=True), names)
    assert capsys.readouterr().out
