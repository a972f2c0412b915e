"""The `sapwood` command in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys

SAPWOOD = [sys.executable, "-m", "sapwood.runtime.cli"]


def sapwood(*args: str, stdin: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    """Run it to its end. `env`: variables on top of the test's own."""
    return subprocess.run(
        [*SAPWOOD, *args],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "COLUMNS": "120", **env},
    )
