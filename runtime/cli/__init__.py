"""The command line. Importing it is cheap: each command imports what it needs when it runs."""

from __future__ import annotations

from sapwood.runtime.cli.app import main

__all__ = ["main"]
