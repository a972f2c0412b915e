"""`sapwood run FILE.py`: a program with a backend at hand."""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path
from typing import Annotated

import typer

from sapwood.errors import InvalidRequest
from sapwood.runtime.cli.options import (
    DEFAULT_MODEL,
    Connect,
    ContextLength,
    Kernels,
    Model,
    Slots,
    Threads,
    backend_options,
)
from sapwood.runtime.cli.terminal import waiting


def run(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(help="A Python file with programs. What follows it goes to the file.")],
    model: Model = DEFAULT_MODEL,
    connect: Connect = None,
    backend: Kernels = "cpu",
    threads: Threads = None,
    num_slots: Slots = None,
    context_length: ContextLength = None,
) -> None:
    """Run a Python file whose programs use a backend that this command starts, and ends with the file."""
    import sapwood
    from sapwood.runtime.client import Client

    if not file.is_file():
        raise InvalidRequest(f"there is no file {str(file)!r}; give the path of a Python file")
    with waiting(f"Loading {model}") as progress:
        options = backend_options(backend=backend, threads=threads, num_slots=num_slots, context_length=context_length)
        client = Client.connect(connect) if connect else Client.launch(model, progress=progress, **options)
    with client:
        sapwood.set_default_backend(client)
        sys.argv = [str(file), *context.args]
        sys.path.insert(0, os.fspath(file.resolve().parent))
        runpy.run_path(str(file), run_name="__main__")
