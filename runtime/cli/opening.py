"""Connects a command to its backend: one that it starts and then owns, or one that listens already."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sapwood.runtime.cli.terminal import waiting

if TYPE_CHECKING:
    from sapwood.runtime.client import Client


def open_client(model: str, connect: str | None = None, **options: Any) -> Client:
    """A client, after a spinner. Options that are None are the backend's own choice."""
    from sapwood.runtime.client import Client

    if connect:
        return Client.connect(connect)
    chosen = {name: value for name, value in options.items() if value is not None}
    with waiting(f"Loading {model}") as progress:
        return Client.launch(model, progress=progress, **chosen)
