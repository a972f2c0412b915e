"""`sapwood build MODEL --out DIR`: does ahead of time what every start would do again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sapwood.errors import InvalidRequest
from sapwood.runtime.cli.terminal import note, waiting


def build(
    model: Annotated[str, typer.Argument(help="A pulled model's name, or a path to a .gguf or a folder.")],
    out: Annotated[Path, typer.Option("--out", help="The folder to write; serve and generate take it as a model.")],
) -> None:
    """Pack a model's weights for this machine's CPU into a folder that starts without packing them again.

    Processes that start from it share the weights' memory. The model's own file must stay where it is.
    """
    from sapwood.runtime.fake import NAME
    from sapwood.runtime.models.built import read_built, write_built
    from sapwood.runtime.models.load import load_model

    if model == NAME:
        raise InvalidRequest("the fake model has no file to build from; name a real one")
    if read_built(Path(model)) is not None:
        raise InvalidRequest(f"{model} was built already; name the model that it was built of")
    with waiting(f"Packing {model}"):
        source = load_model(model)
        built = write_built(
            out.resolve(),
            name=source.name,
            model=source.path,
            model_fingerprint=source.fingerprint,
            decoder=source.decoder,
        )
    note(f"{out} holds {len(built.parts)} matrices, {built.weight_bytes / 1e6:.0f} MB. Use it: sapwood serve {out}")
