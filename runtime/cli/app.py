"""The commands' list, and how any of them ends: with a result, one sentence about what to do, or Ctrl-C."""

from __future__ import annotations

import os
import signal
import sys

import typer

import sapwood
from sapwood.errors import SapwoodError
from sapwood.runtime.cli import build, chat, doctor, generate, models, run, serve
from sapwood.runtime.cli.bench import command as bench
from sapwood.runtime.cli.terminal import exit_on_sigterm, say_error

app = typer.Typer(
    name="sapwood",
    help="Run programs over language models: one radix tree for all memory, exact results, grammars that jump.",
    epilog="Start with: sapwood pull, then sapwood chat. Every command explains itself: sapwood COMMAND --help.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.command(rich_help_panel="Models")(models.pull)
app.command("list", rich_help_panel="Models")(models.list_models)
app.command("rm", rich_help_panel="Models")(models.remove)
app.command(rich_help_panel="Models")(build.build)
app.command(rich_help_panel="Use", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(run.run)
app.command(rich_help_panel="Use")(generate.generate)
app.command(rich_help_panel="Use")(chat.chat)
app.command(rich_help_panel="Use")(serve.serve)
app.add_typer(bench.app, name="bench", rich_help_panel="Measure and check")
app.command(rich_help_panel="Measure and check")(doctor.doctor)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"sapwood {sapwood.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", help="Print the version and exit.", callback=_version, is_eager=True
    ),
) -> None:
    pass


def main() -> None:
    """Entry point of `sapwood`."""
    exit_on_sigterm(128 + signal.SIGTERM)
    try:
        app()
    except SapwoodError as error:
        say_error(str(error))
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output, such as `head`, went away
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
