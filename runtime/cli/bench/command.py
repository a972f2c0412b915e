"""The command: runs workloads against one or two servers, prints what came out, and keeps it."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Annotated

import typer

from sapwood.errors import InvalidRequest
from sapwood.runtime.cli.bench.api import Api, Failure
from sapwood.runtime.cli.bench.engine import engine
from sapwood.runtime.cli.bench.report import Row, plot, table
from sapwood.runtime.cli.bench.speculative import speculative
from sapwood.runtime.cli.bench.workloads import WORKLOADS
from sapwood.runtime.cli.terminal import console, note, waiting

app = typer.Typer(help="Measure a server, the CPU engine alone, or drafting.", no_args_is_help=True)
app.command()(engine)
app.command()(speculative)


@app.callback()
def _group() -> None:
    """Measure a server, the CPU engine alone, or drafting."""


@app.command()
def serve(
    urls: Annotated[list[str], typer.Argument(help="One server, or two to compare: http://127.0.0.1:8000/v1.")],
    only: Annotated[str, typer.Option(help=f"Some of {', '.join(WORKLOADS)}, with commas. Default: all.")] = "",
    repeat: Annotated[int, typer.Option(min=1, help="Rounds; the table shows each workload's best.")] = 1,
    seed: Annotated[
        int | None, typer.Option(help="Of the prompts. Default: the time, so that caches are cold.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="The model's name. Default: the first that the server lists.")
    ] = None,
    api_key: Annotated[str, typer.Option(envvar="SAPWOOD_API_KEY", show_envvar=False, help="The server's key.")] = "",
    ignore_eos: Annotated[
        bool, typer.Option(help="Ask for full-length answers, so that servers do equal work.")
    ] = True,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write all figures here.")] = None,
    plot_file: Annotated[Path | None, typer.Option("--plot", help="Draw them here (.png, .svg).")] = None,
) -> None:
    """Run workloads against OpenAI-compatible servers: one stream, long prompts, batches, shared prefixes, JSON.

    With two servers each round measures both, one after the other, and the table shows their ratio.
    """
    if len(urls) > 2:
        raise InvalidRequest(f"{len(urls)} servers are too many; give one, or two to compare")
    names = [name for name in only.split(",") if name] or list(WORKLOADS)
    for name in names:
        if name not in WORKLOADS:
            raise InvalidRequest(f"there is no workload {name!r}; there are {', '.join(WORKLOADS)}")
    seed = time.time_ns() if seed is None else seed
    extra = {"ignore_eos": True} if ignore_eos else {}
    rows: list[Row] = []
    for name in names:
        for round in range(repeat):
            for server, url in enumerate(urls):
                with waiting(f"{name}, round {round + 1} of {repeat}: {url}"):
                    api = Api(url, model, api_key, extra)
                    rows.append(measure(api, server, name, f"{seed} {round} {server}"))
    console().print(table(rows, urls))
    for row in rows:
        if row.error:
            note(f"{row.workload} on {row.url}: {row.error}")
    if json_file:
        json_file.write_text(json.dumps([row.as_dict() for row in rows], indent=1))
    if plot_file:
        plot(rows, urls, plot_file)
    if any(row.error for row in rows):
        raise typer.Exit(1)


def measure(api: Api, server: int, name: str, seed: str) -> Row:
    """One workload on one server. A workload that fails is a row that says so."""
    error = ""
    started = time.perf_counter()
    try:
        WORKLOADS[name](api, random.Random(f"{seed} {name}"))
    except (Failure, OSError) as failure:
        error = str(failure)
    return Row(name, server, api.url, time.perf_counter() - started, api.tally, error)
