"""What jumping over forced text saves: extractions with and without it, on a real model.

    python benchmarks/jumps.py [--model smollm2-135m] [--requests 8] [--json out.json] [--plot out.png]

Every request has a prompt of its own, and the two runs of a prompt are two backends' apart, so nothing is cached. Greedy:
the ids have to be the same.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sapwood.runtime.client import Client
from sapwood.runtime.messages import GrammarSpec, Sampling

WORDS = [
    "copper",
    "lamp",
    "river",
    "Germany",
    "Japan",
    "winter",
    "market",
    "Anna",
    "Schmidt",
    "likes",
    "lives",
    "born",
    "May",
    "paper",
    "music",
    "harbor",
    "forty",
    "euros",
]
RECORD = {
    "type": "object",
    "properties": {
        "product_name": {"type": "string", "maxLength": 24},
        "manufacturer_country": {"type": "string", "enum": ["Germany", "Japan", "Brazil", "Kenya"]},
        "price_in_cents": {"type": "integer", "minimum": 0, "maximum": 99999},
        "is_currently_available": {"type": "boolean"},
        "customer_satisfaction": {"type": "string", "enum": ["very satisfied", "satisfied", "neutral", "unhappy"]},
    },
    "required": ["product_name", "manufacturer_country", "price_in_cents", "is_currently_available", "customer_satisfaction"],
    "additionalProperties": False,
}  # fmt: skip
FORM = (
    r"Customer name: [A-Z][a-z]{2,10} [A-Z][a-z]{2,12}\nDate of birth: (19|20)\d\d-(0[1-9]|1[0-2])-([0-2]\d|3[01])\n"
    r"Country of permanent residence: (Germany|Japan|Brazil|Kenya)\nOverall satisfaction with the service: (high|medium|low)\n"
)
WORKLOADS = {
    "json record": GrammarSpec("json_schema", json.dumps(RECORD)),
    "regex form": GrammarSpec("regex", FORM),
}


@dataclass
class Run:
    """One workload, with or without jumps."""

    seconds: float
    tokens: int
    jumped: int
    ids: list[list[int]]


def run(client: Client, grammar: GrammarSpec, prompts: list[str], jump: bool) -> Run:
    client.generate("Warm up.\n", Sampling(max_tokens=200, temperature=0.0, grammar=grammar, jump=jump))
    result = Run(0.0, 0, 0, [])
    begin = time.perf_counter()
    for prompt in prompts:
        sampling = Sampling(max_tokens=200, temperature=0.0, grammar=grammar, jump=jump)
        completion = client.generate(prompt, sampling)
        result.tokens += len(completion.ids)
        result.jumped += completion.usage.jumped_tokens
        result.ids.append(list(completion.ids))
    result.seconds = time.perf_counter() - begin
    return result


def measure(model: str, prompts: list[str]) -> dict[str, dict[str, Any]]:
    runs: dict[bool, dict[str, Run]] = {}
    for jump in (False, True):
        with Client.launch(model) as client:
            runs[jump] = {name: run(client, grammar, prompts, jump) for name, grammar in WORKLOADS.items()}
    table = {}
    for name in WORKLOADS:
        off, on = runs[False][name], runs[True][name]
        table[name] = {
            "tokens": on.tokens,
            "jumped %": round(100 * on.jumped / on.tokens, 1),
            "seconds without": round(off.seconds, 3),
            "seconds with": round(on.seconds, 3),
            "times faster": round(off.seconds / on.seconds, 2),
            "same ids": off.ids == on.ids,
        }
    return table


def plot(table: dict[str, dict[str, Any]], path: str) -> None:
    """Seconds with and without, side by side."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 4))
    for i, (name, row) in enumerate(table.items()):
        axes.bar([i - 0.2, i + 0.2], [row["seconds without"], row["seconds with"]], 0.35, color=["#bbb", "#3a7"])
        axes.text(i, 0, f"{name}\n{row['jumped %']} % jumped", ha="center", va="top")
    axes.set(ylabel="seconds; grey without, green with jumps", xticks=[])
    figure.tight_layout()
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--requests", type=int, default=8)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot")
    args = parser.parse_args()
    rng = random.Random(0)
    texts = [" ".join(rng.choices(WORDS, k=40)) for _ in range(args.requests)]
    table = measure(args.model, [f"Extract what is known from the text.\nText: {text}\n" for text in texts])
    print(json.dumps(table, indent=1))
    if args.json:
        args.json.write_text(json.dumps(table, indent=1))
    if args.plot:
        plot(table, args.plot)


if __name__ == "__main__":
    main()
