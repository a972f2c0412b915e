"""What masks cost in a batch of constrained requests, beside the steps themselves.

    python benchmarks/constrained_batch.py [--requests 64] [--threads 2] [--json out.json]

All requests decode together. Each kind of grammar is shared by many of them, as in extraction jobs; the first round finds
all its masks anew, the second has them by place. Filling is counted in the CPU time of the thread that fills, the step in
time that passes; `waited`: how long the step had to wait for masks after its run.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jumps import WORDS, WORKLOADS

from sapwood.kernels.plan import Batch, Output
from sapwood.runtime.assembly import System, assemble
from sapwood.runtime.messages import Failed, Generate, Sampling
from sapwood.runtime.options import BackendOptions
from sapwood.runtime.scheduler.masks import MaskFiller

CLIENT = b"benchmark"


@dataclass
class Costs:
    """Seconds, summed over the steps of a round."""

    steps: int = 0
    step: float = 0.0
    filled: float = 0.0
    waited: float = 0.0

    def row(self) -> dict[str, Any]:
        return {
            "steps": self.steps,
            "step ms": round(1e3 * self.step / self.steps, 2),
            "masks ms of CPU a step": round(1e3 * self.filled / self.steps, 3),
            "waited for masks ms a step": round(1e3 * self.waited / self.steps, 3),
            "masks % of step": round(100 * self.filled / self.step, 2),
        }


def observe(costs: Costs) -> None:
    """Measure what fills masks, from now on."""
    fill, wait = MaskFiller._fill_all, MaskFiller.wait

    def filling(filler: MaskFiller, requests: Any) -> Any:
        began = time.thread_time()
        masks = fill(filler, requests)
        costs.filled += time.thread_time() - began
        return masks

    def waiting(filler: MaskFiller) -> None:
        began = time.perf_counter()
        wait(filler)
        costs.waited += time.perf_counter() - began

    MaskFiller._fill_all = filling  # type: ignore[method-assign]
    MaskFiller.wait = waiting  # type: ignore[method-assign]


def play(system: System, num_requests: int, costs: Costs) -> None:
    """Run all requests to their ends; counted are steps of nothing but decodes, of at least half of the requests."""
    rng, scheduler = random.Random(1), system.scheduler
    rows: list[int] = []
    run = system.plan.run

    def counting(batch: Batch) -> Output:
        rows.append(len(batch.ids))
        return run(batch)

    system.plan.run = counting  # type: ignore[method-assign]
    grammars = list(WORKLOADS.values())
    for number in range(num_requests):
        prompt = "Extract what is known from the text.\nText: " + " ".join(rng.choices(WORDS, k=20)) + "\n"
        sampling = Sampling(max_tokens=100, temperature=0.0, grammar=grammars[number % len(grammars)], jump=False)
        scheduler.submit(CLIENT, Generate(f"{number}", system.tokenizer.encode(prompt), sampling))
    while scheduler.num_live:
        before = costs.filled, costs.waited
        num_running, num_waiting = len(scheduler.running), len(scheduler.waiting)
        began = time.perf_counter()
        scheduler.step()
        seconds = time.perf_counter() - began
        for reply in scheduler.outbox.take().get(CLIENT, []):
            assert not isinstance(reply, Failed), reply
        if rows and rows[-1] == num_running >= num_requests // 2 and not num_waiting:
            costs.steps += 1
            costs.step += seconds
        else:
            costs.filled, costs.waited = before
    system.plan.run = run  # type: ignore[method-assign]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    system = assemble(BackendOptions(model=args.model, threads=args.threads, num_slots=32768, speculative="off"))
    costs = Costs()
    observe(costs)
    table = {}
    for name in ("masks found anew", "masks known"):
        costs.steps, costs.step, costs.filled, costs.waited = 0, 0.0, 0.0, 0.0
        play(system, args.requests, costs)
        table[name] = costs.row()
        system.tree.flush()
    print(json.dumps(table, indent=1))
    if args.json:
        args.json.write_text(json.dumps(table, indent=1))
    system.close()


if __name__ == "__main__":
    main()
