"""`sapwood run FILE.py`: a program with a backend at hand."""

from __future__ import annotations

import os
import runpy
import sys
import traceback
from pathlib import Path
from typing import Annotated

import typer

from sapwood.errors import InvalidRequest, SapwoodError
from sapwood.runtime.cli.opening import open_client
from sapwood.runtime.cli.options import (
    DEFAULT_MODEL,
    Connect,
    ContextLength,
    Kernels,
    Model,
    Slots,
    Threads,
)


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

    if not file.is_file():
        raise InvalidRequest(f"there is no file {str(file)!r}; give the path of a Python file")
    check_syntax(file)
    with open_client(
        model, connect, backend=backend, threads=threads, num_slots=num_slots, context_length=context_length
    ) as client:
        sapwood.set_default_backend(client)
        sys.argv = [str(file), *context.args]
        sys.path.insert(0, os.fspath(file.resolve().parent))
        execute(file)


def check_syntax(file: Path) -> None:
    """Find out before a model is loaded that a file is no Python."""
    try:
        compile(file.read_bytes(), str(file), "exec")
    except SyntaxError as error:
        raise InvalidRequest(f"{file}, line {error.lineno}: {error.msg}") from None
    except (OSError, ValueError) as error:
        raise InvalidRequest(f"can't read {file}: {error}") from None


def execute(file: Path) -> None:
    """Run a file as a program. What it raises is shown from its own first line on, without ours."""
    try:
        runpy.run_path(str(file), run_name="__main__")
    except SapwoodError:
        raise
    except Exception as error:
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename != str(file):
            trace = trace.tb_next
        traceback.print_exception(error.with_traceback(trace))
        raise typer.Exit(1) from None
