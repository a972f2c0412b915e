"""`sapwood pull | list | rm`: models on this machine."""

from __future__ import annotations

from typing import Annotated

import typer

from sapwood.runtime.cli.options import DEFAULT_MODEL
from sapwood.runtime.cli.terminal import console, note


def pull(
    name: Annotated[
        str,
        typer.Argument(help="smollm2-135m, gemma3-270m, a Hugging Face repository (owner/name), a .gguf or a folder."),
    ] = DEFAULT_MODEL,
) -> None:
    """Fetch a model. Interrupted, it goes on where it stopped; complete, it is checked and does nothing."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    from sapwood.runtime import store

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console(stderr=True)) as bar:
        task = bar.add_task(name, total=None, visible=False)  # shown once there is something to do

        def progress(what: str, done: int, total: int) -> None:
            bar.update(task, description=what, visible=True, completed=done, total=total or None)

        path = store.pull(name, progress)
    note(f"{name} is ready:")
    print(path)


def list_models() -> None:
    """Show the models on this machine."""
    from rich.table import Table

    from sapwood.runtime import store

    found = store.installed()
    if not found:
        note("No model yet. Fetch the default one with: sapwood pull")
        return
    table = Table("name", "size", "path", box=None, pad_edge=False)
    for model in found:
        table.add_row(model.name, f"{model.size / 1e6:,.0f} MB", str(model.path))
    console().print(table, soft_wrap=True)


def remove(name: Annotated[str, typer.Argument(help="A name from `sapwood list`.")]) -> None:
    """Delete a model from this machine."""
    from sapwood.runtime import store

    store.remove(name)
    note(f"{name} is removed.")
