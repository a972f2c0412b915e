"""`sapwood bench serve URL`: what a server feels like to its users."""

from __future__ import annotations

import typer

app = typer.Typer(help="Measure a server.", no_args_is_help=True)
