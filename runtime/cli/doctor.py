"""`sapwood doctor`: what this machine has, what is missing, and what to do about it."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import typer

from sapwood.runtime.cli.options import DEFAULT_MODEL
from sapwood.runtime.cli.terminal import console, escaped

State = Literal["ok", "note", "missing"]
SIGNS: dict[State, str] = {"ok": "[green]ok[/]", "note": "[yellow]--[/]", "missing": "[red]no[/]"}
MIN_FREE_DISK = 2 * 2**30
MIN_MEMORY = 2 * 2**30


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    name: str
    state: State
    text: str


def doctor() -> None:
    """Look at this machine: what is there, what is missing, what to do."""
    findings = list(examine())
    for finding in findings:
        console().print(f"{SIGNS[finding.state]}  {finding.name:<12} {escaped(finding.text)}", soft_wrap=True)
    if any(finding.state == "missing" for finding in findings):
        raise typer.Exit(1)


def examine() -> Iterator[Finding]:
    """All findings, cheap ones first."""
    yield Finding("python", "ok", f"{platform.python_version()} at {sys.executable}")
    yield from _machine()
    for module in ("_cpu", "_grammar"):
        yield _native(module)
    yield from _optional()
    yield from _models()


def _machine() -> Iterator[Finding]:
    flags = _cpu_flags()
    useful = [flag for flag in ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile") if flag in flags]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    yield Finding("processor", "ok" if useful else "note", f"{cores} cores, {', '.join(useful) or 'no AVX: slow'}")
    memory = _available_memory()
    if memory is not None:
        hint = "" if memory > MIN_MEMORY else "; little: close something, or lower --num-slots"
        yield Finding("memory", "ok" if memory > MIN_MEMORY else "note", f"{memory / 2**30:.1f} GB available{hint}")


def _cpu_flags() -> set[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return set()
    return next(
        (set(line.partition(":")[2].split()) for line in lines if line.startswith(("flags", "Features"))), set()
    )


def _available_memory() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")), None)


def _native(module: str) -> Finding:
    found = importlib.util.find_spec(f"sapwood.kernels.{module}")
    if found is None:
        return Finding(
            module, "missing", "not built; reinstall with a C++ compiler at hand: pip install --force-reinstall ."
        )
    return Finding(module, "ok", str(found.origin))


def _optional() -> Iterator[Finding]:
    wanted = {
        "torch": "needed by --backend reference and cuda; pip install torch",
        "triton": "only for NVIDIA cards; pip install 'sapwood[gpu]'",
        "flashinfer": "only for NVIDIA cards; pip install 'sapwood[gpu]'",
        "opentelemetry.exporter": "only for `serve --otlp-endpoint`; pip install 'sapwood[otel]'",
        "matplotlib": "only for `bench --plot`; pip install 'sapwood[plot]'",
    }
    for name, hint in wanted.items():
        found = _is_there(name)
        yield Finding(name, "ok" if found else "note", "installed" if found else hint)
    card = shutil.which("nvidia-smi")
    yield Finding("gpu", "ok" if card else "note", card or "no NVIDIA driver: the CPU computes")


def _is_there(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # of the package that it would be in
        return False


def _models() -> Iterator[Finding]:
    from sapwood.runtime.store import installed

    found = installed()
    if found:
        yield Finding("models", "ok", ", ".join(model.name for model in found))
    else:
        yield Finding("models", "missing", f"none yet; fetch {DEFAULT_MODEL} with: sapwood pull")
