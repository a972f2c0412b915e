"""Options that several commands share, each with its help, default and environment variable in one place."""

from __future__ import annotations

from typing import Annotated

import typer

DEFAULT_MODEL = "smollm2-135m"
BACKEND_PANEL = "Backend"

Model = Annotated[
    str,
    typer.Option(
        "--model",
        "-m",
        envvar="SAPWOOD_MODEL",
        show_envvar=False,
        help="A pulled model's name, or a path to a .gguf or a folder.",
    ),
]
Connect = Annotated[
    str | None,
    typer.Option(
        help="Use the backend that listens at this address instead of starting one, e.g. ipc:///run/sapwood.sock."
    ),
]
Kernels = Annotated[
    str,
    typer.Option(
        "--backend",
        envvar="SAPWOOD_BACKEND",
        show_envvar=False,
        help="What computes: cpu (our C++), reference (plain torch, slow, the specification) or cuda.",
        rich_help_panel=BACKEND_PANEL,
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        min=1,
        envvar="SAPWOOD_THREADS",
        show_envvar=False,
        help="Threads that compute. Default: one for each core. Lower it to leave cores to others.",
        rich_help_panel=BACKEND_PANEL,
    ),
]
Slots = Annotated[
    int | None,
    typer.Option(
        "--num-slots",
        min=1,
        envvar="SAPWOOD_NUM_SLOTS",
        show_envvar=False,
        help="Tokens of KV memory, for running requests and cache together. Default: from the memory that is free.",
        rich_help_panel=BACKEND_PANEL,
    ),
]
ContextLength = Annotated[
    int | None,
    typer.Option(
        min=1,
        envvar="SAPWOOD_CONTEXT_LENGTH",
        show_envvar=False,
        help="Longest prompt plus answer, in tokens. Default: the model's own.",
        rich_help_panel=BACKEND_PANEL,
    ),
]
