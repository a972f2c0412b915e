"""Which configuration a kernel runs with: measured once for each shape on each kind of card, and kept on disk.

Each kernel states its configurations beside itself; the first is what serves where nothing is measured: in the
interpreter, without a card, while a graph is being recorded, and in invariant plans, whose bits must not depend on what
was fastest one day. A configuration is a kernel's block sizes with Triton's num_warps and num_stages.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
import triton
from platformdirs import user_cache_path
from triton.runtime.errors import OutOfResources

from sapwood.kernels.triton.dot import INTERPRETED

Config = dict[str, int]
Launch = Callable[[Config], object]


class Tuner:
    """Measures, remembers, and keeps what it remembers in a file of JSON that several processes may share.

    `measure` gives the time of a call in any unit. A file that can't be read or written is done without.
    """

    def __init__(self, measure: Callable[[Callable[[], object]], float], file: Path | None) -> None:
        self._measure = measure
        self._file = file
        self._best = self._read()

    def best(self, kernel: str, shape: Sequence[object], configs: Sequence[Config], launch: Launch) -> Config:
        """The fastest of `configs` for a kernel on a shape (anything that its speed depends on).

        OutOfResources where the card can run none of them.
        """
        key = _key(kernel, shape)
        if self._best.get(key) not in configs:
            self._best[key] = self._measured(configs, launch)
            self._write()
        return self._best[key]

    def known(self, kernel: str, shape: Sequence[object], configs: Sequence[Config]) -> Config:
        """What `best` found before, or the first: nothing is launched."""
        found = self._best.get(_key(kernel, shape))
        return found if found is not None and found in configs else configs[0]

    def _measured(self, configs: Sequence[Config], launch: Launch) -> Config:
        times: list[tuple[float, int]] = []
        refusal: OutOfResources | None = None
        for index, config in enumerate(configs):
            try:
                times.append((self._measure(lambda config=config: launch(config)), index))  # type: ignore[misc]
            except OutOfResources as error:  # too large for this card
                refusal = error
        if refusal is not None and not times:
            raise refusal
        return configs[min(times)[1]]

    def _read(self) -> dict[str, Config]:
        try:
            found = json.loads(self._file.read_text()) if self._file is not None else {}
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def _write(self) -> None:
        """Add what is known here to the file; others may have written meanwhile."""
        if self._file is None:
            return
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            new = self._file.with_suffix(f".{os.getpid()}")
            new.write_text(json.dumps(self._read() | self._best, indent=1))
            new.replace(self._file)
        except OSError:
            return


def _key(kernel: str, shape: Sequence[object]) -> str:
    return " ".join(map(str, (kernel, *shape)))


def card_file() -> Path:
    """Where choices for this card and this version of Triton are kept."""
    card = torch.cuda.get_device_name().replace(" ", "-")
    return user_cache_path("sapwood") / "tuning" / f"{card}-triton-{triton.__version__}.json"


_tuners: list[Tuner] = []  # the one in use, once there is one


def use(tuner: Tuner | None) -> None:
    """Choose with this tuner from now on; None: with the card's own."""
    _tuners[:] = [] if tuner is None else [tuner]


def choose(
    kernel: str, shape: Sequence[object], configs: Sequence[Config], launch: Launch, *, fixed: bool = False
) -> Config:
    """The configuration to launch with. `launch` may be called many times; `fixed`: the first one, whatever was measured."""
    if fixed or len(configs) == 1:
        return configs[0]
    if not _tuners:
        if INTERPRETED or not torch.cuda.is_available():
            return configs[0]
        _tuners.append(Tuner(triton.testing.do_bench, card_file()))
    if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
        return _tuners[0].known(kernel, shape, configs)
    return _tuners[0].best(kernel, shape, configs, launch)
