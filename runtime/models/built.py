"""What `sapwood build` writes: a folder with a model's weights packed for one backend, beside the model's own file.

    plan.json      what it was made of, by what, and where each matrix lies
    weights.bin    the packed weights (kernels/cpu_packed.py), mapped at the start

The model's file stays needed: its header says what the model is and holds the vocabulary. Its matrices aren't read.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

import sapwood
from sapwood.errors import ModelError
from sapwood.kernels.cpu_packed import packed_size, packing_mark, places_of, write_packed
from sapwood.kernels.decoder import Decoder
from sapwood.runtime.models.fingerprint import fingerprint

PLAN, WEIGHTS = "plan.json", "weights.bin"
FORM = 1  # of plan.json


class Part(msgspec.Struct, frozen=True):
    """One matrix in the memory map."""

    name: str
    format: str
    shape: tuple[int, ...]
    start: int  # byte in weights.bin


class Built(msgspec.Struct, frozen=True, kw_only=True):
    """plan.json."""

    form: int
    sapwood: str  # the version that built it
    backend: str
    name: str
    model: str  # path of the model's file or folder
    fingerprint: str  # of the model
    packing: str  # `packing_mark` of the kernels that packed
    weights_fingerprint: str
    weight_bytes: int
    parts: tuple[Part, ...]

    def model_path(self, folder: Path) -> Path:
        """Where the model that this was built of lies. ModelError where it is gone."""
        path = Path(self.model)
        if not path.exists() or (path / PLAN).exists():
            raise ModelError(
                f"{folder} was built of {path}, where no model is any more; bring it back, or build again: "
                f"sapwood build MODEL --out {folder}"
            )
        return path

    def weights(self, folder: Path, model_fingerprint: str, decoder: Decoder) -> Path:
        """The packed weights' file. ModelError where it doesn't belong to this model and these kernels, or is damaged."""
        again = f"build it again: sapwood build {self.model} --out {folder}"
        if self.form != FORM or self.packing != packing_mark(decoder):
            raise ModelError(
                f"{folder} was built by Sapwood {self.sapwood}, which packs weights differently from this one "
                f"({sapwood.__version__}); {again}"
            )
        if self.fingerprint != model_fingerprint or self.parts != _parts(decoder):
            raise ModelError(f"{self.model} has changed since {folder} was built of it; {again}")
        file = folder / WEIGHTS
        size = file.stat().st_size if file.is_file() else 0
        if not size == self.weight_bytes == packed_size(decoder) or fingerprint(file) != self.weights_fingerprint:
            raise ModelError(f"{file} is damaged or not the file that was built; {again}")
        return file


def read_built(folder: Path) -> Built | None:
    """plan.json of a folder; None where there is none, so that the folder is something else."""
    if not (folder / PLAN).is_file():
        return None
    try:
        return msgspec.json.decode((folder / PLAN).read_bytes(), type=Built)
    except (OSError, msgspec.DecodeError) as error:
        raise ModelError(
            f"{folder / PLAN} is damaged or of another version of Sapwood ({error}); build it again: sapwood build MODEL --out {folder}"
        ) from None


def write_built(folder: Path, *, name: str, model: Path, model_fingerprint: str, decoder: Decoder) -> Built:
    """Pack a model's weights into a folder. What the folder held of this kind is replaced; plan.json comes last, so a build
    that was broken off is no plan. ModelError where the folder is something else or can't be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / PLAN).is_file() and set(os.listdir(folder)) - {WEIGHTS, _partial(WEIGHTS), _partial(PLAN)}:
            raise ModelError(f"{folder} holds other files; name a folder of its own with --out")
        write_packed(decoder, folder / _partial(WEIGHTS))
        (folder / PLAN).unlink(missing_ok=True)
        (folder / _partial(WEIGHTS)).replace(folder / WEIGHTS)
        built = Built(
            form=FORM,
            sapwood=sapwood.__version__,
            backend="cpu",
            name=name,
            model=str(model),
            fingerprint=model_fingerprint,
            packing=packing_mark(decoder),
            weights_fingerprint=fingerprint(folder / WEIGHTS),
            weight_bytes=packed_size(decoder),
            parts=_parts(decoder),
        )
        (folder / _partial(PLAN)).write_bytes(msgspec.json.format(msgspec.json.encode(built), indent=1))
        (folder / _partial(PLAN)).replace(folder / PLAN)
    except OSError as error:
        raise ModelError(f"can't write the plan to {folder}: {error.strerror or error}") from None
    return built


def _partial(name: str) -> str:
    return f"{name}.partial"


def _parts(decoder: Decoder) -> tuple[Part, ...]:
    return tuple(Part(w.name, w.format.value, w.shape, start) for w, start in places_of(decoder))
