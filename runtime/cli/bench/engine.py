"""`sapwood bench engine`: how fast this machine computes a model, beside what its memory and arithmetic allow."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sapwood.errors import InvalidRequest
from sapwood.runtime.cli.terminal import console, waiting

if TYPE_CHECKING:
    import numpy as np
    from rich.table import Table

    from sapwood.kernels.cpu_backend import CpuPlan
    from sapwood.kernels.plan import Batch

STREAMS = (1, 2, 4, 8, 16, 32, 64)
PREFIX = 128  # tokens that all streams share when they decode
CHUNK = 512  # rows of a prefill batch
COLD_BYTES = 96 << 20  # more than caches hold
DOTS = 100_000_000  # operations of one look at the arithmetic ceiling


@dataclass(frozen=True)
class Ceilings:
    """What all threads of the plan together reach at best when they do nothing else."""

    gigabytes_per_second: float  # read from memory
    gigaoperations_per_second: float  # int8 dot products with vectors; AMX tiles can do more


@dataclass(frozen=True)
class Result:
    """The best and the middle of several rounds."""

    what: str  # "decode" or "prefill"
    tokens: int  # streams of a decode step, prompt tokens of a prefill
    best_ms: float
    median_ms: float
    tokens_per_second: float  # by the best
    gigabytes_per_second: float  # of weights, each batch reading them once
    gigaoperations_per_second: float  # of matmuls


class Bench:
    """One model, opened in this process, and the batches that are timed."""

    def __init__(self, plan: CpuPlan, slots: int, matmul_weights: int, head_weights: int) -> None:
        self.plan = plan
        self._slots = slots
        self._matmul_weights = matmul_weights
        self._head_weights = head_weights

    def decode(self, streams: int, steps: int) -> Result:
        """Steps of `streams` sequences behind one shared prefix."""
        self.prefill_once(PREFIX)
        times = [self._timed(self._step(streams, step)) for step in range(steps)]
        return self._result("decode", streams, times, batches=1, outputs=streams)

    def prefill(self, tokens: int, rounds: int) -> Result:
        """A prompt, read from nothing."""
        times = [_seconds(lambda: self.prefill_once(tokens)) for _ in range(rounds)]
        return self._result("prefill", tokens, times, batches=-(-tokens // CHUNK), outputs=1)

    def prefill_once(self, tokens: int) -> None:
        for begin in range(0, tokens, CHUNK):
            self.plan.run(self._chunk(begin, min(tokens, begin + CHUNK)))

    def _chunk(self, begin: int, end: int) -> Batch:
        import numpy as np

        from sapwood.kernels.plan import Batch

        at = np.arange(begin, end, dtype=np.int32)
        table = np.arange(end, dtype=np.int32)
        return Batch(at % 1000 + 5, at, at, np.zeros_like(at), [table], np.array([end - begin - 1], np.int32))

    def _step(self, streams: int, step: int) -> Batch:
        import numpy as np

        from sapwood.kernels.plan import Batch

        rows = np.arange(streams, dtype=np.int32)
        room = (self._slots - PREFIX) // streams
        tables = [_table(PREFIX + int(row) * room, step + 1) for row in rows]
        slots = np.array([table[-1] for table in tables], np.int32)
        return Batch(rows + 9, np.full(streams, PREFIX + step, np.int32), slots, rows, tables, rows)

    def _timed(self, batch: Batch) -> float:
        return _seconds(lambda: self.plan.run(batch))

    def _result(self, what: str, tokens: int, times: list[float], batches: int, outputs: int) -> Result:
        best = min(times)
        operations = 2 * (tokens * self._matmul_weights + outputs * self._head_weights)
        return Result(
            what,
            tokens,
            1e3 * best,
            1e3 * sorted(times)[len(times) // 2],
            tokens / best,
            self.plan.weight_bytes * batches / best / 1e9,
            operations / best / 1e9,
        )


def engine(
    model: Annotated[str, typer.Argument(help="A model's name, or a path.")] = "smollm2-135m",
    threads: Annotated[int | None, typer.Option(min=1, help="Default: one for each usable core.")] = None,
    steps: Annotated[int, typer.Option(min=3, max=128, help="Decode steps for each number of streams.")] = 40,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of each prefill and of the ceilings.")] = 5,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write all figures here.")] = None,
    plot_file: Annotated[Path | None, typer.Option("--plot", help="Draw the batch sweep here (.png, .svg).")] = None,
) -> None:
    """Measure the CPU engine alone: decode of 1 to 64 streams, prefill, and the machine's ceilings in the same run."""
    with waiting(f"Loading {model}"):
        bench = _opened(model, threads)
    with waiting("Measuring"):
        ceilings = measure_ceilings(bench.plan.threads, rounds)
        results = [bench.decode(streams, steps) for streams in STREAMS]
        results += [bench.prefill(tokens, rounds) for tokens in (128, 512, 2048)]
    console().print(table(results, ceilings, bench.plan.threads))
    if json_file:
        report = {"model": model, "threads": bench.plan.threads, "weight_bytes": bench.plan.weight_bytes}
        figures = {"ceilings": asdict(ceilings), "results": [asdict(result) for result in results]}
        json_file.write_text(json.dumps(report | figures, indent=1))
    if plot_file:
        plot(results, plot_file)


def measure_ceilings(threads: int, rounds: int) -> Ceilings:
    """The best of several rounds, all threads at once."""
    import numpy as np

    from sapwood.kernels import _cpu

    memories = [np.ones(COLD_BYTES, np.uint8) for _ in range(threads)]
    with ThreadPoolExecutor(threads) as pool:

        def together(run: Callable[[np.ndarray[Any, Any]], object]) -> float:
            return min(_seconds(lambda: list(pool.map(run, memories))) for _ in range(rounds))

        reading = together(_cpu.read_once)
        dots = _cpu.do_dots(DOTS) * threads
        computing = together(lambda memory: _cpu.do_dots(DOTS))
    return Ceilings(threads * COLD_BYTES / reading / 1e9, dots / computing / 1e9)


def table(results: list[Result], ceilings: Ceilings, threads: int) -> Table:
    """One row a measurement, one for the ceilings."""
    from rich.table import Table

    made = Table(box=None, pad_edge=False)
    made.add_column(f"{threads} threads")
    for name in ("tokens", "best ms", "median ms", "tok/s", "GB/s", "GOP/s"):
        made.add_column(name, justify="right")
    for result in results:
        speeds = (f"{result.gigabytes_per_second:.1f}", f"{result.gigaoperations_per_second:.0f}")
        times = (f"{result.best_ms:.2f}", f"{result.median_ms:.2f}", f"{result.tokens_per_second:.0f}")
        made.add_row(result.what, str(result.tokens), *times, *speeds)
    limits = (f"{ceilings.gigabytes_per_second:.1f}", f"{ceilings.gigaoperations_per_second:.0f}")
    made.add_row("ceilings", "", "", "", "", *limits)
    return made


def plot(results: list[Result], file: Path) -> None:
    """Tokens a second over the number of streams."""
    try:
        import matplotlib
    except ModuleNotFoundError:
        raise InvalidRequest("--plot needs matplotlib; install it with: pip install 'sapwood[plot]'") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    decodes = [result for result in results if result.what == "decode"]
    figure, axes = pyplot.subplots(figsize=(6, 4))
    axes.plot([r.tokens for r in decodes], [r.tokens_per_second for r in decodes], marker="o")
    axes.set_xscale("log", base=2)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("streams")
    axes.set_ylabel("tokens a second")
    figure.tight_layout()
    figure.savefig(file)


def _opened(model: str, threads: int | None) -> Bench:
    import math

    from sapwood.kernels.cpu_backend import CpuPlan
    from sapwood.runtime.models.load import load_model

    decoder = load_model(model).decoder
    slots = PREFIX + 64 * 128
    names = ("wq", "wk", "wv", "wo", "gate", "up", "down")
    weights = sum(math.prod(getattr(layer, name).shape) for layer in decoder.layers for name in names)
    plan = CpuPlan(decoder, num_slots=slots, max_rows=CHUNK, threads=threads)
    return Bench(plan, slots, weights, math.prod(decoder.head.shape))


def _table(first: int, own: int) -> np.ndarray[Any, np.dtype[np.int32]]:
    """Slots of the shared prefix, then of a stream's own positions."""
    import numpy as np

    return np.concatenate([np.arange(PREFIX), np.arange(first, first + own)]).astype(np.int32)


def _seconds(run: Callable[[], object]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started
