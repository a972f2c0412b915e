"""From a name or path to a `Model`: finds the file, knows the architectures, computes the fingerprint."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sapwood.errors import ModelError
from sapwood.kernels.decoder import Decoder
from sapwood.runtime.models.checkpoint import Checkpoint
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

# Raise when the arithmetic of any backend changes: caches written before are then not read any more.
ARITHMETIC = 1


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    name: str
    path: Path
    architecture: str
    decoder: Decoder
    context_length: int
    fingerprint: str


def open_checkpoint(path: Path) -> Checkpoint:
    return HuggingFaceFolder(path) if path.is_dir() else GgufFile(path)


def load_model(name_or_path: str | Path) -> Model:
    """A model that was pulled, a .gguf file or a Hugging Face folder. ModelError says what is wrong and what to do."""
    path = resolve(name_or_path)
    checkpoint = open_checkpoint(path)
    architecture = str(checkpoint.get("general.architecture"))
    describe = ARCHITECTURES.get(architecture)
    if describe is None:
        raise ModelError(f"{path} has architecture '{architecture}'; supported are {', '.join(ARCHITECTURES)}")
    sizes = Sizes.of(checkpoint)
    decoder = describe(checkpoint, sizes)
    name = str(name_or_path) if not Path(name_or_path).exists() else path.stem
    return Model(name, path, architecture, decoder, sizes.context_length, fingerprint(path))


def fingerprint(path: Path) -> str:
    """Tells models apart without reading them whole: 1 MiB from the start, samples from the rest, all sizes."""
    digest = hashlib.sha256(f"arithmetic {ARITHMETIC}".encode())
    files = [path] if path.is_file() else sorted(p for p in path.iterdir() if p.suffix in {".safetensors", ".json"})
    for file in files:
        size = file.stat().st_size
        digest.update(f"{size}".encode())
        with open(file, "rb") as stream:
            digest.update(stream.read(1 << 20))
            for part in range(64):
                stream.seek(size * part // 64)
                digest.update(stream.read(4096))
    return digest.hexdigest()[:32]
