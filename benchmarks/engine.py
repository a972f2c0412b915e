"""The CPU engine alone, from the source tree: `python benchmarks/engine.py --help`. The same as `sapwood bench engine`."""

from __future__ import annotations

import typer

from sapwood.runtime.cli.bench.engine import engine

if __name__ == "__main__":
    typer.run(engine)
