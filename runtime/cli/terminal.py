"""How the commands talk: results on stdout, everything about them on stderr."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


@cache
def console(stderr: bool = False) -> Console:
    """The terminal, or what stands in for it in a pipe."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False)


def say_error(message: str) -> None:
    """One sentence on stderr."""
    console(stderr=True).print(f"[bold red]sapwood:[/] {escaped(message)}", soft_wrap=True)


def note(message: str) -> None:
    """Something worth knowing that is not the result."""
    console(stderr=True).print(escaped(message), style="dim", soft_wrap=True)


@contextmanager
def waiting(message: str) -> Iterator[Callable[[str], None]]:
    """A spinner on stderr while something takes time; call what it yields with what is being done. Silent in a pipe."""
    with console(stderr=True).status(escaped(message)) as status:
        yield lambda text: status.update(escaped(f"{message}: {text}"))


def exit_on_sigterm(status: int) -> None:
    """Make SIGTERM unwind like Ctrl-C does, so that what owns a backend ends it."""

    def leave(sig: int, frame: FrameType | None) -> None:
        sys.exit(status)

    signal.signal(signal.SIGTERM, leave)


def escaped(message: str) -> str:
    """Text that rich prints as it is."""
    from rich.markup import escape

    return escape(message)
