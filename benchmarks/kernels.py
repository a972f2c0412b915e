"""The CPU matmuls and the packing of their weights, each against its own floor: what this machine allows at best.

A matmul of few rows can't be faster than its weights are read, one of many rows not faster than its multiplications.
Both ceilings are measured on the same thread between the runs, so that a busy machine slows both sides:

    python benchmarks/kernels.py                      SmolLM2's shapes, the instruction set that serves
    python benchmarks/kernels.py --isa avx2 --json    another set; one JSON object

Times are the best of several rounds. Runs of few rows go over many copies of the matrix, laid one behind the other as a
model's layers are, so that they read from memory, not from a cache.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

import numpy as np
from rich.console import Console
from rich.table import Table

from sapwood.kernels import _cpu

COLD_BYTES = 96 << 20  # more than caches hold; as much as the default model's weights
FEW_ROWS = 8
DOTS = 200_000_000  # operations of one look at the arithmetic ceiling
CASES = [  # format, outputs, inputs
    ("Q4_1", 1536, 576),  # SmolLM2's gate and up
    ("Q4_1", 576, 1536),  # its down
    ("Q8_0", 49152, 576),  # its head
    ("Q4_K", 640, 2048),  # Gemma 3's down
    ("Q5_0", 2048, 640),  # its gate and up
    ("Q6_K", 640, 2048),
    ("BF16", 1536, 576),
]
BLOCKS = {  # inputs and bytes of an encoded block; where its float16 scales stand
    "Q4_1": (32, 20, (0, 2)),
    "Q8_0": (32, 34, (0,)),
    "Q4_K": (256, 144, (0, 2)),
    "Q5_0": (32, 22, (0,)),
    "Q6_K": (256, 210, (208,)),
    "BF16": (1, 2, (0,)),
}


@dataclass
class Ceilings:
    """The best seen so far."""

    bytes_per_second: float = 0.0
    operations_per_second: float = 0.0

    def look(self, memory: np.ndarray) -> None:
        self.bytes_per_second = max(self.bytes_per_second, memory.nbytes / seconds(lambda: _cpu.read_once(memory)))
        done = _cpu.do_dots(DOTS)
        self.operations_per_second = max(self.operations_per_second, done / seconds(lambda: _cpu.do_dots(DOTS)))


@dataclass
class Result:
    format: str
    outputs: int
    inputs: int
    rows: int
    microseconds: float
    gigabytes_per_second: float  # of packed weights
    gigaoperations_per_second: float
    floor_microseconds: float
    bound: str  # "memory" or "arithmetic"

    @property
    def of_floor(self) -> float:
        return self.floor_microseconds / self.microseconds


def seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def encoded(name: str, outputs: int, inputs: int) -> np.ndarray:
    """Random encoded rows [outputs, bytes]."""
    block_inputs, block_bytes, halves = BLOCKS[name]
    rng = np.random.default_rng(0)
    blocks = rng.integers(0, 256, (outputs * inputs // block_inputs, block_bytes), dtype=np.uint8)
    for at in halves:
        blocks[:, at : at + 2] = np.full(len(blocks), 0.01, np.float16).view(np.uint8).reshape(-1, 2)
    return blocks.reshape(outputs, -1)


def measure(
    name: str, outputs: int, inputs: int, rows: int, rounds: int, memory: np.ndarray
) -> tuple[Result, Ceilings]:
    copies = 1 if rows > FEW_ROWS else math.ceil(COLD_BYTES / (outputs * inputs))
    weights = _cpu.PackedMatrix(name, np.tile(encoded(name, outputs, inputs), (copies, 1)), inputs, 1)
    nbytes = weights.nbytes / copies
    x = np.random.default_rng(1).standard_normal((rows, inputs), dtype=np.float32)
    acts, out = _cpu.Activations.of(weights, x), np.empty((rows, outputs * copies), np.float32)

    ceilings, best = Ceilings(), math.inf
    for _ in range(rounds):
        ceilings.look(memory)
        best = min(best, seconds(lambda: _cpu.gemm(weights, acts, out, 0, outputs * copies)) / copies)
    operations = 2 * rows * outputs * inputs
    reading = nbytes / ceilings.bytes_per_second
    peak = ceilings.operations_per_second / (2 if name == "BF16" else 1)
    computing = operations / peak if peak else 0.0
    result = Result(
        format=name,
        outputs=outputs,
        inputs=inputs,
        rows=rows,
        microseconds=best * 1e6,
        gigabytes_per_second=nbytes / best / 1e9,
        gigaoperations_per_second=operations / best / 1e9,
        floor_microseconds=max(reading, computing) * 1e6,
        bound="memory" if reading >= computing else "arithmetic",
    )
    return result, ceilings


def all_results(row_counts: list[int], rounds: int) -> Iterator[tuple[Result, Ceilings]]:
    memory = np.ones(COLD_BYTES, np.uint8)
    for name, outputs, inputs in CASES:
        for rows in row_counts:
            yield measure(name, outputs, inputs, rows, rounds, memory)


@dataclass
class PackingResult:
    format: str
    million_weights_per_second: float
    gigabytes_per_second: float  # read and written
    of_floor: float  # of the speed at which memory can be read


def measure_packing(name: str, rounds: int, memory: np.ndarray) -> PackingResult:
    outputs, inputs = 32768, 768
    source = np.tile(encoded(name, 256, inputs), (outputs // 256, 1))
    ceilings, best, nbytes = Ceilings(), math.inf, 0
    for _ in range(rounds):
        ceilings.look(memory)
        start = time.perf_counter()
        packed = _cpu.PackedMatrix(name, source, inputs, 1)
        best = min(best, time.perf_counter() - start)
        nbytes = source.nbytes + packed.nbytes
        del packed
    speed = nbytes / best
    return PackingResult(name, outputs * inputs / best / 1e6, speed / 1e9, speed / ceilings.bytes_per_second)


def show_packing(results: list[PackingResult]) -> None:
    table = Table(title="packing from memory, one thread")
    for column in ("format", "M weights/s", "GB/s", "of read bandwidth"):
        table.add_column(column, justify="left" if column == "format" else "right")
    for r in results:
        cells = (f"{r.million_weights_per_second:.0f}", f"{r.gigabytes_per_second:.1f}", f"{r.of_floor:.0%}")
        table.add_row(r.format, *cells)
    Console(width=120).print(table)


def show(results: list[Result], ceilings: Ceilings) -> None:
    title = (
        f"{_cpu.current_isa()}, one thread; ceilings: {ceilings.bytes_per_second / 1e9:.1f} GB/s read, "
        f"{ceilings.operations_per_second / 1e9:.0f} GOP/s int8 dot products"
    )
    table = Table(title=title)
    for column in ("format", "outputs x inputs", "rows", "us", "GB/s", "GOP/s", "floor us", "bound", "of floor"):
        table.add_column(column, justify="left" if column in ("format", "bound") else "right")
    for r in results:
        table.add_row(
            r.format,
            f"{r.outputs} x {r.inputs}",
            str(r.rows),
            f"{r.microseconds:.1f}",
            f"{r.gigabytes_per_second:.1f}",
            f"{r.gigaoperations_per_second:.0f}",
            f"{r.floor_microseconds:.1f}",
            r.bound,
            f"{r.of_floor:.0%}",
        )
    Console(width=120).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--isa", choices=_cpu.available_isas(), default=_cpu.current_isa())
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 4, 16, 64, 512])
    parser.add_argument("--rounds", type=int, default=7, help="the best round counts")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    _cpu.set_isa(options.isa)
    results, ceilings = [], Ceilings()
    for result, seen in all_results(options.rows, options.rounds):
        results.append(result)
        ceilings.bytes_per_second = max(ceilings.bytes_per_second, seen.bytes_per_second)
        ceilings.operations_per_second = max(ceilings.operations_per_second, seen.operations_per_second)
    memory = np.ones(COLD_BYTES, np.uint8)
    packing = [measure_packing(name, options.rounds, memory) for name in BLOCKS]
    if options.json:
        records = [asdict(r) | {"of_floor": r.of_floor} for r in results]
        report = {
            "isa": options.isa,
            "machine": platform.processor() or platform.machine(),
            "ceilings": asdict(ceilings),
        }
        print(json.dumps(report | {"results": records, "packing": [asdict(r) for r in packing]}, indent=1))
    else:
        show(results, ceilings)
        show_packing(packing)


if __name__ == "__main__":
    main()
