"""What jumping over forced text saves: extractions with and without it, on a real model.

    python benchmarks/jumps.py [--speculative off] [--requests 8] [--json out.json] [--plot out.png]

The cache is emptied before each request, so all are read and written anew. Greedy: the ids have to be the same. What
jumping alone saves shows with `--speculative off`; by default both sides draft.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from dataclasses import dataclass, field
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
# The character of SGLang's example for regular expressions.
CHARACTER = (
    r'\{\n    "name": "[\w\d\s]{1,16}",\n    "house": "(Gryffindor|Slytherin|Ravenclaw|Hufflepuff)",\n'
    r'    "blood status": "(Pure-blood|Half-blood|Muggle-born)",\n'
    r'    "occupation": "(student|teacher|auror|ministry of magic|death eater|order of the phoenix)",\n'
    r'    "wand": \{\n        "wood": "[\w\d\s]{1,16}",\n        "core": "[\w\d\s]{1,16}",\n        "length": [0-9]{1,2}\.[0-9]{0,2}\n'
    r'    \},\n    "alive": "(Alive|Deceased)",\n    "patronus": "[\w\d\s]{1,16}",\n    "bogart": "[\w\d\s]{1,16}"\n\}'
)
FORM = (
    r"Customer name: [A-Z][a-z]{2,10} [A-Z][a-z]{2,12}\nDate of birth: (19|20)\d\d-(0[1-9]|1[0-2])-([0-2]\d|3[01])\n"
    r"Country of permanent residence: (Germany|Japan|Brazil|Kenya)\nOverall satisfaction with the service: (high|medium|low)\n"
)
LOG = (
    r"\[20\d\d-(0[1-9]|1[0-2])-([0-2]\d|3[01])T([01]\d|2[0-3]):[0-5]\d:[0-5]\d\.\d{3}Z\] \[(INFO|WARNING|ERROR)\] \[component=(scheduler|tokenizer|detokenizer|router)\] "
    r"request_id=[0-9a-f]{8} http_status_code=(200|400|404|429|500) duration_milliseconds=\d{1,4} cache_hit=(true|false)"
)
CARD = (
    r"First name: [A-Z][a-z]+\nLast name: [A-Z][a-z]+\nEmail address: [a-z]{2,10}@[a-z]{3,10}\.(com|org|net)\nTelephone number: \+\d{1,3} \d{3} \d{4}\n"
    r"Preferred contact method: (email|telephone|letter)\nMarital status: (single|married|divorced|widowed)\nNumber of children: \d\n"
)
EVENT = (
    r'\{"event_title": "[A-Za-z ]{3,30}", "start_date": "20\d\d-[01]\d-[0-3]\d", "end_date": "20\d\d-[01]\d-[0-3]\d", '
    r'"number_of_participants": \d{1,4}, "registration_required": (true|false), "location": \{"city": "[A-Z][a-z]{2,12}", "country_code": "[A-Z]{2}"\}\}'
)
RECEIPT = (
    r"Invoice number: INV-\d{6}\nDate of issue: 20\d\d-[01]\d-[0-3]\d\nTotal amount excluding tax: \d{1,4}\.\d\d EUR\nTotal amount including tax: \d{1,4}\.\d\d EUR\n"
    r"Payment method: (bank transfer|credit card|cash)\nPayment status: (paid in full|partially paid|outstanding)\n"
)
WORKLOADS = {
    "json record": GrammarSpec("json_schema", json.dumps(RECORD)),
    "regex character": GrammarSpec("regex", CHARACTER),
    "regex form": GrammarSpec("regex", FORM),
    "regex log line": GrammarSpec("regex", LOG),
    "regex card": GrammarSpec("regex", CARD),
    "regex event": GrammarSpec("regex", EVENT),
    "regex receipt": GrammarSpec("regex", RECEIPT),
}


@dataclass
class Run:
    """One workload, with or without jumps."""

    seconds: float = 0.0
    tokens: int = 0
    jumped: int = 0
    ids: list[list[int]] = field(default_factory=list)


def run(client: Client, grammar: GrammarSpec, prompt: str, jump: bool, repeats: int, into: Run) -> None:
    """Add one request, in the best of its times."""
    sampling = Sampling(max_tokens=200, temperature=0.0, grammar=grammar, jump=jump)
    times = []
    for _ in range(repeats):
        client.ask("flush")
        begin = time.perf_counter()
        completion = client.generate(prompt, sampling)
        times.append(time.perf_counter() - begin)
    into.seconds += min(times)
    into.tokens += len(completion.ids)
    into.jumped += completion.usage.jumped_tokens
    into.ids.append(list(completion.ids))


def measure(client: Client, prompts: list[str], repeats: int) -> dict[str, dict[str, Any]]:
    """With and without in turn, so that what else the machine does falls on both."""
    runs: dict[str, tuple[Run, Run]] = {}
    for name, grammar in WORKLOADS.items():
        off, on = runs[name] = Run(), Run()
        run(client, grammar, "Warm up.\n", True, 1, Run())
        for prompt in prompts:
            run(client, grammar, prompt, False, repeats, off)
            run(client, grammar, prompt, True, repeats, on)
    regexes = [pair for name, pair in runs.items() if name.startswith("regex")]
    runs["all regexes"] = total([off for off, _ in regexes]), total([on for _, on in regexes])
    return {name: row(off, on) for name, (off, on) in runs.items()}


def total(runs: list[Run]) -> Run:
    return Run(
        sum(run.seconds for run in runs),
        sum(run.tokens for run in runs),
        sum(run.jumped for run in runs),
        [ids for run in runs for ids in run.ids],
    )


def row(off: Run, on: Run) -> dict[str, Any]:
    """One line of the table."""
    return {
        "tokens": on.tokens,
        "jumped %": round(100 * on.jumped / on.tokens, 1),
        "seconds without": round(off.seconds, 3),
        "seconds with": round(on.seconds, 3),
        "times faster": round(off.seconds / on.seconds, 2),
        "same ids": off.ids == on.ids,
    }


def plot(table: dict[str, dict[str, Any]], path: str) -> None:
    """Seconds with and without, side by side."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(12, 4))
    for i, (name, row) in enumerate(table.items()):
        axes.bar([i - 0.2, i + 0.2], [row["seconds without"], row["seconds with"]], 0.35, color=["#bbb", "#3a7"])
        axes.text(i, 0, f"{name}\n{row['jumped %']} % jumped", ha="center", va="top")
    axes.set(ylabel="seconds; grey without, green with jumps", xticks=[])
    figure.tight_layout()
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--speculative", default="auto", help="how both sides draft")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--requests", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=3, help="times that each request is run; the best counts")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot")
    args = parser.parse_args()
    rng = random.Random(0)
    texts = [" ".join(rng.choices(WORDS, k=40)) for _ in range(args.requests)]
    prompts = [f"Extract what is known from the text.\nText: {text}\n" for text in texts]
    options = {"speculative": args.speculative, **({"threads": args.threads} if args.threads else {})}
    with Client.launch(args.model, **options) as client:
        table = measure(client, prompts, args.repeats)
    print(json.dumps(table, indent=1))
    if args.json:
        args.json.write_text(json.dumps(table, indent=1))
    if args.plot:
        plot(table, args.plot)


if __name__ == "__main__":
    main()
