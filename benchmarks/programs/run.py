"""Workloads of programs, as SGLang's benchmark folder describes them, on data made here.

    python benchmarks/programs/run.py                       # all, on the default model
    python benchmarks/programs/run.py mmlu rag -n 20 --json results.json
    python benchmarks/programs/run.py --no-reuse            # every call in a namespace of its own: what the tree is worth

For each: wall time, programs a second, latency of a program (median, worst), calls, tokens, and how much of the prompts came
from the tree. The tree is empty at the start of each workload.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import Any

import agents
import documents
import few_shot
import msgspec
import thoughts

import sapwood as sw

Runs = Callable[[int], list[dict[str, Any]]]
WORKLOADS: dict[str, tuple[sw.Function, Runs, int]] = {  # the program, its arguments, and how many programs
    "mmlu": (few_shot.mmlu, few_shot.mmlu_runs, 64),
    "hellaswag": (few_shot.hellaswag, few_shot.hellaswag_runs, 32),
    "gsm8k": (few_shot.gsm8k, few_shot.gsm8k_runs, 24),
    "react": (agents.react, agents.react_runs, 8),
    "generative_agents": (agents.generative_agents, agents.generative_agents_runs, 24),
    "multi_chain": (agents.multi_chain, agents.multi_chain_runs, 6),
    "tree_of_thought": (thoughts.tree_of_thought, thoughts.tree_of_thought_runs, 4),
    "skeleton_of_thought": (thoughts.skeleton_of_thought, thoughts.skeleton_of_thought_runs, 8),
    "llm_judge": (thoughts.llm_judge, thoughts.llm_judge_runs, 4),
    "json_decode": (documents.json_decode, documents.json_runs, 16),
    "json_regex": (documents.json_regex, documents.json_runs, 16),
    "json_schema": (documents.json_schema, documents.json_runs, 16),
    "long_json": (documents.long_json, documents.long_json_runs, 6),
    "multi_turn": (documents.multi_turn, documents.multi_turn_runs, 8),
    "rag": (documents.rag, documents.rag_runs, 24),
}


@dataclass
class Result:
    workload: str
    programs: int
    failed: int
    calls: int
    seconds: float
    programs_per_second: float
    output_tokens_per_second: float
    median_latency: float  # seconds from a program's first call to its last
    worst_latency: float
    prompt_tokens: int
    hit_rate: float  # of prompt tokens
    output_tokens: int
    jumped_tokens: int


class NoReuse:
    """A backend in which no call shares anything with another."""

    def __init__(self, client: sw.Client) -> None:
        self._client = client
        self._names = count()

    def submit(self, request: Any, on_reply: Any) -> Any:
        return self._client.submit(msgspec.structs.replace(request, namespace=f"alone-{next(self._names)}"), on_reply)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


def measure(name: str, n: int | None, parallel: int, backend: Any) -> Result:
    """Run a workload once, on an empty tree."""
    program, runs, usual = WORKLOADS[name]
    batch = runs(n or usual)
    sw.flush_cache(backend)
    began = time.perf_counter()
    states = program.run_batch(batch, num_threads=parallel, backend=backend)
    seconds = time.perf_counter() - began
    events = [state.events() for state in states]
    latencies = [max(e.ended for e in own) - min(e.began for e in own) for own in events if own]
    usages = [event.usage for own in events for event in own if event.usage is not None]
    prompt, cached = sum(u.prompt_tokens for u in usages), sum(u.cached_tokens for u in usages)
    output = sum(u.completion_tokens for u in usages)
    return Result(
        name, len(batch), sum(state.error() is not None for state in states), len(usages), seconds,
        len(batch) / seconds, output / seconds, statistics.median(latencies), max(latencies), prompt,
        cached / max(prompt, 1), output, sum(u.jumped_tokens for u in usages),
    )  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", help=f"default: all of {', '.join(WORKLOADS)}")
    parser.add_argument("-n", type=int, help="programs of each workload")
    parser.add_argument("--parallel", type=int, default=64, help="programs at a time (64)")
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--no-reuse", action="store_true", help="each call in a namespace of its own")
    parser.add_argument("--json", type=Path, help="write the results there")
    chosen = parser.parse_args()
    unknown = set(chosen.workloads) - set(WORKLOADS)
    if unknown:
        parser.error(f"there is no workload {', '.join(sorted(unknown))}; choose from {', '.join(WORKLOADS)}")
    results = []
    with sw.Client.launch(chosen.model) as client:
        backend: Any = NoReuse(client) if chosen.no_reuse else client
        sw.set_default_backend(backend)
        print("| workload | programs | calls | s | programs/s | tok/s | latency median / worst, s | reused | forced |")
        print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
        for name in chosen.workloads or WORKLOADS:
            r = measure(name, chosen.n, chosen.parallel, backend)
            results.append(r)
            failed = f" ({r.failed} failed)" if r.failed else ""
            print(
                f"| {name} | {r.programs}{failed} | {r.calls} | {r.seconds:.2f} | {r.programs_per_second:.2f} | "
                f"{r.output_tokens_per_second:.0f} | {r.median_latency:.2f} / {r.worst_latency:.2f} | {r.hit_rate:.0%} | "
                f"{r.jumped_tokens}/{r.output_tokens} |",
                flush=True,
            )
    if chosen.json:
        chosen.json.write_text(json.dumps([asdict(result) for result in results], indent=1) + "\n")
    return int(any(result.failed for result in results))


if __name__ == "__main__":
    sys.exit(main())
