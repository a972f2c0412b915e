"""From a name or path to a `Model`: finds the file, knows the architectures, computes the fingerprint."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from sapwood.errors import ModelError
from sapwood.kernels.decoder import Decoder
from sapwood.runtime.models.built import read_built
from sapwood.runtime.models.checkpoint import Checkpoint
from sapwood.runtime.models.fingerprint import fingerprint
from sapwood.runtime.models.folder import HuggingFaceFolder
from sapwood.runtime.models.gemma3 import gemma3
from sapwood.runtime.models.gguf import GgufFile
from sapwood.runtime.models.llama import llama
from sapwood.runtime.models.qwen import qwen
from sapwood.runtime.models.sizes import Sizes
from sapwood.runtime.store import resolve

ARCHITECTURES: dict[str, Callable[[Checkpoint, Sizes], Decoder]] = {
    "llama": llama,
    "qwen2": qwen,
    "qwen3": qwen,
    "phi3": qwen,
    "gemma3": gemma3,
}


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    name: str
    path: Path
    architecture: str
    decoder: Decoder
    context_length: int
    fingerprint: str
    packed: Path | None = None  # its matrices as the CPU backend packs them, where they were built ahead of time


def open_checkpoint(path: Path) -> Checkpoint:
    return HuggingFaceFolder(path) if path.is_dir() else GgufFile(path)


def load_model(name_or_path: str | Path) -> Model:
    """A model that was pulled, a .gguf file, a Hugging Face folder, or what `sapwood build` made of one. ModelError says
    what is wrong and what to do."""
    path = resolve(name_or_path)
    if (built := read_built(path)) is not None:
        model = load_model(built.model_path(path))
        return replace(model, name=built.name, packed=built.weights(path, model.fingerprint, model.decoder))
    checkpoint = open_checkpoint(path)
    architecture = str(checkpoint.get("general.architecture"))
    describe = ARCHITECTURES.get(architecture)
    if describe is None:
        raise ModelError(f"{path} has architecture '{architecture}'; supported are {', '.join(ARCHITECTURES)}")
    sizes = Sizes.of(checkpoint)
    decoder = describe(checkpoint, sizes)
    name = str(name_or_path) if not Path(name_or_path).exists() else path.stem
    return Model(name, path, architecture, decoder, sizes.context_length, fingerprint(path))
