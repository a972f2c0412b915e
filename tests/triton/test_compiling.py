"""Every kernel compiles to machine code for real cards: what the interpreter can't show, and no card is needed for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import sapwood.kernels.triton as package

SHARED = {80: 166_912, 90: 232_448}  # bytes of shared memory that one program may have, by compute capability


def compiled(capability: int, configurations: str) -> dict[str, int]:
    done = subprocess.run(
        [
            sys.executable,
            "-W",
            "ignore",
            str(Path(__file__).with_name("compiling.py")),
            str(capability),
            configurations,
        ],
        env=os.environ
        | {"TRITON_INTERPRET": "0", "PYTHONPATH": str(Path(__file__).parent.parent), "PYTHONSAFEPATH": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    shared: dict[str, int] = json.loads(done.stdout)
    return shared


def kernels() -> set[str]:
    """The names of all kernels that are launched from Python."""
    folder = Path(package.__file__).parent
    lines = [line for file in folder.glob("*.py") for line in file.read_text().splitlines()]
    return {
        line.split("(")[0].removeprefix("def ") for line in lines if line.startswith("def _") and "_kernel(" in line
    }


def test_every_kernel_compiles_for_a_card() -> None:
    shared = compiled(90, "first")
    assert set(shared) == kernels()
    assert max(shared.values()) <= SHARED[90]


@pytest.mark.slow
@pytest.mark.parametrize("capability", SHARED)
def test_every_configuration_compiles_and_fits(capability: int) -> None:
    shared = compiled(capability, "all")
    assert set(shared) == kernels() and max(shared.values()) <= SHARED[capability]
