"""What only a card can show, in one command: `make gpu-check`.

    python benchmarks/gpu.py [--only PART ...] [--json FILE]

    card         there is one that torch and Triton can use; without it nothing else begins
    kernels      every kernel against its reference: tests/triton, on the card
    text         greedy text of the default model, beside the CPU engine's
    decode       random weights of Llama 3 8B's shape, one sequence: the share of a step that reading its bytes takes
    throughput   64 sequences
    prefill      the share of a long prompt's time that its multiplications take at the speed of torch's own matmul
    attention    our kernels, and FlashInfer's on the same batches where it is installed

The floors are measured, not read from a data sheet: bytes a second of a copy between two buffers, and operations a second
of a square bfloat16 matmul. Steps include what the host does for them. Ends with 1 where anything is wrong or short.
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import torch
from gpu_model import LLAMA_3_8B, Shape, random_decoder
from rich.console import Console
from rich.table import Table

from sapwood.kernels.cpu_backend import CpuPlan
from sapwood.kernels.cuda_backend import CudaOutput, CudaPlan
from sapwood.kernels.decoder import Decoder, Format
from sapwood.kernels.flashinfer_attention import FlashInferAttention, is_available
from sapwood.kernels.plan import Batch, Plan
from sapwood.kernels.sampling import SampleRow
from sapwood.kernels.triton.attention import attention, plan_attention
from sapwood.kernels.triton.cache import make_cache

DECODE_GOAL = 0.85  # of the memory roofline
PREFILL_GOAL = 0.60  # of the measured matmul peak
NEAR_TIE = 0.5  # logits by which two texts may part: int8 activations on the CPU, bfloat16 on the card
QUESTIONS = ("What is a tree?", "Write a short poem about rain.", "List three primes.")


@dataclass(frozen=True, slots=True)
class Scale:
    """How large everything is. The tests run all parts with a tiny one, in Triton's interpreter."""

    shape: Shape = LLAMA_3_8B
    formats: tuple[Format, ...] = (Format.Q4_0, Format.Q8_0, Format.BF16)
    context: int = 1024
    sequences: int = 64
    steps: int = 50
    prompt: int = 4096
    text_tokens: int = 48
    copied_bytes: int = 2 << 30
    matmul: int = 8192
    dtype: torch.dtype = torch.bfloat16


@dataclass(slots=True)
class Figure:
    """One line of the result. `share` of a floor, and the least it should be; `fault`: what is wrong."""

    part: str
    what: str
    value: float
    unit: str
    share: float | None = None
    goal: float | None = None
    fault: str | None = None

    @property
    def is_good(self) -> bool:
        return self.fault is None and (self.goal is None or (self.share is not None and self.share >= self.goal))


def why_not() -> str | None:
    """Why there is nothing to check on this machine."""
    if torch.cuda.is_available():
        return None
    return f"There is no NVIDIA card that torch {torch.__version__} can use on this machine, so nothing was checked."


@dataclass(slots=True)
class Bench:
    """Where and how large; measures its floors once."""

    device: str = "cuda"
    scale: Scale = field(default_factory=Scale)
    _floors: dict[str, float] = field(default_factory=dict)

    def seconds(self, call: Callable[[], object], repeats: int) -> list[float]:
        """Each call's time, until the card is done with it."""
        taken = []
        for _ in range(repeats):
            self._wait()
            began = time.perf_counter()
            call()
            self._wait()
            taken.append(time.perf_counter() - began)
        return taken

    def _wait(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()

    @property
    def bytes_per_second(self) -> float:
        if "bytes" not in self._floors:
            source = torch.zeros(self.scale.copied_bytes // 2, dtype=torch.uint8, device=self.device)
            target = torch.empty_like(source)
            self._floors["bytes"] = 2 * len(source) / min(self.seconds(lambda: target.copy_(source), 10))
        return self._floors["bytes"]

    @property
    def operations_per_second(self) -> float:
        if "operations" not in self._floors:
            n = self.scale.matmul
            a, b = (torch.randn(n, n, device=self.device).to(self.scale.dtype) for _ in range(2))
            self._floors["operations"] = 2 * n**3 / min(self.seconds(lambda: a @ b, 10))
        return self._floors["operations"]

    def plan(self, decoder: Decoder, num_slots: int, max_rows: int) -> CudaPlan:
        """A new plan, after the memory of those that are done with has been given back."""
        gc.collect()
        if self.device == "cuda":
            torch.cuda.empty_cache()
        return CudaPlan(
            decoder, num_slots=num_slots, max_rows=max_rows, device=self.device, dtype=self.scale.dtype
        )  # fmt: skip


def step_of(sequences: int, position: int, reserved: int) -> Batch:
    """One new token for each of so many sequences, all at one position, each with its own `reserved` slots."""
    tables = [np.arange(i * reserved, i * reserved + position + 1, dtype=np.int32) for i in range(sequences)]
    rows = np.arange(sequences, dtype=np.int32)
    slots = np.array([table[-1] for table in tables], np.int32)
    return Batch(rows % 7, np.full(sequences, position, np.int32), slots, rows, tables, rows)


def chosen(plan: Plan, batch: Batch, rows: list[SampleRow]) -> list[int]:
    output = plan.run(batch)
    assert isinstance(output, CudaOutput)
    return [sampled.id for sampled in output.choose(range(len(rows)), rows)]


def decode_steps(bench: Bench, plan: CudaPlan, sequences: int, reserved: int, **sampling: float) -> list[float]:
    """Seconds of each step, from ids on the host to chosen tokens on the host, after a few that aren't counted."""
    first, warm = bench.scale.context, 3

    def step(at: int) -> list[int]:
        rows = [SampleRow(seed=i, position=at, **sampling) for i in range(sequences)]  # type: ignore[arg-type]
        return chosen(plan, step_of(sequences, at, reserved), rows)

    taken = [bench.seconds(partial(step, at), 1)[0] for at in range(first, first + warm + bench.scale.steps)]
    return taken[warm:]


def decode(bench: Bench) -> Iterator[Figure]:
    """One sequence: weights and keys are read once a step, and that is its floor."""
    scale = bench.scale
    reserved = scale.context + scale.steps + 8
    for fmt in scale.formats:
        plan = bench.plan(random_decoder(scale.shape, fmt), reserved, 1)
        step = median(decode_steps(bench, plan, 1, reserved, temperature=0.0))
        read = plan.weight_bytes + (scale.context + scale.steps // 2) * plan.kv.bytes_per_slot
        floor = read / bench.bytes_per_second
        del plan
        yield Figure("decode", f"{fmt.value}, 1 sequence", step * 1e3, "ms/token", floor / step, DECODE_GOAL)


def throughput(bench: Bench) -> Iterator[Figure]:
    scale = bench.scale
    reserved = scale.context + scale.steps + 8
    for fmt in scale.formats:
        plan = bench.plan(random_decoder(scale.shape, fmt), scale.sequences * reserved, scale.sequences)
        for name, sampling in (("greedy", {"temperature": 0.0}), ("top-p 0.95", {"top_p": 0.95})):
            step = median(decode_steps(bench, plan, scale.sequences, reserved, **sampling))
            what = f"{fmt.value}, {scale.sequences} sequences, {name}"
            yield Figure("throughput", what, scale.sequences / step, "tok/s")
        del plan


def prefill(bench: Bench) -> Iterator[Figure]:
    """One long prompt at once: two operations for each weight and row, and attention's own."""
    scale, shape = bench.scale, bench.scale.shape
    rows = np.arange(scale.prompt, dtype=np.int32)
    batch = Batch(rows % 7, rows, rows, np.zeros_like(rows), [rows], rows[-1:])
    weights = shape.hidden * (2 * (shape.heads + shape.kv_heads) * shape.dim + 3 * shape.ffn) * shape.layers
    attended = 2 * shape.heads * shape.dim * scale.prompt * (scale.prompt + 1) * shape.layers  # two products, causal
    floor = (2 * weights * scale.prompt + attended) / bench.operations_per_second
    for fmt in scale.formats:
        plan = bench.plan(random_decoder(shape, fmt), scale.prompt, scale.prompt)
        plan.run(batch)
        taken = min(bench.seconds(partial(plan.run, batch), 3))
        del plan
        what = f"{fmt.value}, {scale.prompt} tokens"
        yield Figure("prefill", what, scale.prompt / taken, "tok/s", floor / taken, PREFILL_GOAL)


def attention_batches(scale: Scale) -> dict[str, Batch]:
    n, own = scale.sequences, 16
    shared = np.arange(scale.context - own, dtype=np.int32)
    together = step_of(n, scale.context - 1, scale.context)
    together.tables = [np.concatenate([shared, table[-own:]]) for table in together.tables]
    rows = np.arange(scale.prompt, dtype=np.int32)
    return {
        f"decode, {n} x {scale.context}": step_of(n, scale.context - 1, scale.context),
        f"decode, {n} that share {len(shared)}": together,
        f"prefill, {scale.prompt}": Batch(rows, rows, rows, np.zeros_like(rows), [rows], rows[-1:]),
    }


def attend(bench: Bench) -> Iterator[Figure]:
    """Both work on the same batches, slots and values; the time is a layer's, without planning."""
    scale, shape = bench.scale, bench.scale.shape
    slots = max(scale.sequences * scale.context, scale.prompt)
    cache = make_cache(slots, shape.kv_heads, shape.dim, scale.dtype, bench.device)
    for part in (cache.keys, cache.values):
        part.copy_(torch.randn(part.shape, dtype=torch.float32))
    one_layer = random_decoder(Shape(64, 64, 1, shape.heads, shape.kv_heads, shape.dim, 64), Format.BF16)
    theirs = FlashInferAttention(one_layer, bench.device, scale.dtype) if is_available() else None
    for what, batch in attention_batches(scale).items():
        q = torch.randn(len(batch.ids), shape.heads, shape.dim, device=bench.device).to(scale.dtype)
        work = plan_attention(batch.positions, batch.sequences, list(batch.tables), {}, None, bench.device)
        ours = partial(attention, q, cache, work, scale=one_layer.attn_scale)
        mixed = ours()
        yield Figure("attention", f"{what}: ours", min(bench.seconds(ours, 10)) * 1e6, "us")
        if theirs is None:
            continue
        theirs.plan(batch)
        run = partial(theirs.run, q, cache.keys, cache.values, None)
        apart = float((mixed.float() - run().float()).abs().max())
        taken = min(bench.seconds(run, 10))
        fault = None if apart < 0.02 else f"the two differ by {apart:.3f}"
        yield Figure("attention", f"{what}: FlashInfer's", taken * 1e6, "us", fault=fault)


def greedy(plan: Plan, ids: list[int], count: int) -> tuple[list[int], list[np.ndarray]]:
    """`count` tokens after a prompt, each the likeliest, and the logits that each was chosen from."""
    table = np.arange(len(ids) + count, dtype=np.int32)
    out: list[int] = []
    seen, new = list[np.ndarray](), ids
    for _ in range(count):
        begin = len(ids) + len(out) - len(new)
        rows = np.arange(begin, begin + len(new), dtype=np.int32)
        last = np.array([len(new) - 1], np.int32)
        batch = Batch(np.array(new, np.int32), rows, rows, np.zeros_like(rows), [table], last)
        seen.append(plan.run(batch).logits[0].copy())
        new = [int(seen[-1].argmax())]
        out += new
    return out, seen


def compare_text(name: str, card: Plan, cpu: Plan, ids: list[int], count: int) -> Figure:
    """How many tokens are equal. Where the texts part, the CPU must have been nearly undecided too."""
    ours, _ = greedy(card, ids, count)
    expected, logits = greedy(cpu, ids, count)
    equal = next((i for i, (a, b) in enumerate(zip(ours, expected, strict=True)) if a != b), count)
    fault = None
    if equal < count:
        margin = float(logits[equal][expected[equal]] - logits[equal][ours[equal]])
        if margin > NEAR_TIE:
            fault = f"token {equal} is another, and on the CPU its logit is {margin:.2f} below the best"
    return Figure("text", name, equal, f"of {count} tokens equal", fault=fault)


def text(bench: Bench) -> Iterator[Figure]:
    from sapwood.runtime.models.load import load_model
    from sapwood.runtime.store import pull
    from sapwood.runtime.tokenizer import load_tokenizer

    path = pull()
    model, tokenizer = load_model(path).decoder, load_tokenizer(path)
    for question in QUESTIONS:
        ids = tokenizer.encode(tokenizer.render([{"role": "user", "content": question}]), special=True)
        card, cpu = bench.plan(model, 512, 512), CpuPlan(model, num_slots=512)
        yield compare_text(question, card, cpu, ids, bench.scale.text_tokens)


def kernels(bench: Bench) -> Iterator[Figure]:
    root = Path(__file__).parent.parent
    command = [str(Path(sys.executable).with_name("pytest")), "-q", str(root / "tests" / "triton")]
    began = time.perf_counter()
    failed = subprocess.run(command, cwd=root).returncode != 0
    fault = "a kernel isn't equal to its reference; see pytest's report above" if failed else None
    yield Figure("kernels", "tests/triton", time.perf_counter() - began, "s", fault=fault)


def card(bench: Bench) -> Iterator[Figure]:
    memory = torch.cuda.get_device_properties(0).total_memory / 2**30
    yield Figure("card", torch.cuda.get_device_name(), memory, "GiB")


PARTS: dict[str, Callable[[Bench], Iterator[Figure]]] = {
    "card": card,
    "kernels": kernels,
    "text": text,
    "decode": decode,
    "throughput": throughput,
    "prefill": prefill,
    "attention": attend,
}


def show(figures: list[Figure]) -> None:
    table = Table("part", "what", "value", "", "share of the floor", "goal", "")
    for f in figures:
        share, goal = ("" if v is None else f"{v:.0%}" for v in (f.share, f.goal))
        verdict = f.fault or ("" if f.goal is None else "reached" if f.is_good else "missed")
        table.add_row(f.part, f.what, f"{f.value:,.2f}", f.unit, share, goal, verdict)
    Console(width=150).print(table)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=PARTS, nargs="+", default=list(PARTS))
    parser.add_argument("--json", help="write the figures to this file")
    options = parser.parse_args(arguments)
    if (reason := why_not()) is not None:
        print(reason, file=sys.stderr)
        return 1
    bench = Bench()
    figures = [figure for name in options.only for figure in PARTS[name](bench)]
    show(figures)
    if options.json:
        floors = {"bytes_per_second": bench.bytes_per_second, "operations_per_second": bench.operations_per_second}
        Path(options.json).write_text(json.dumps(floors | {"figures": [asdict(f) for f in figures]}, indent=1))
    return 0 if all(figure.is_good for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
