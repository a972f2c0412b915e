"""The workloads. Each is a short program of calls that looks like something people do with a model."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from sapwood.runtime.cli.bench.api import Api, Failure

WORDS = [
    "apple",
    "bridge",
    "castle",
    "doctor",
    "engine",
    "forest",
    "garden",
    "harbor",
    "island",
    "jacket",
    "kitchen",
    "ladder",
    "machine",
    "number",
    "orange",
    "paper",
    "quarter",
    "river",
    "signal",
    "table",
    "uncle",
    "village",
    "window",
    "yellow",
    "animal",
    "bottle",
    "copper",
    "dinner",
    "eastern",
    "family",
    "golden",
    "history",
    "insect",
    "journey",
    "letter",
    "market",
    "nature",
    "object",
    "person",
    "question",
    "reason",
    "summer",
    "ticket",
    "union",
    "valley",
    "winter",
    "author",
    "bright",
    "circle",
    "distance",
    "evening",
    "feather",
    "gentle",
    "hammer",
    "iron",
]

ORDER: dict[str, Any] = {
    "type": "object",
    "properties": {
        "customer_name": {"type": "string", "maxLength": 24},
        "shipping_country": {"type": "string", "enum": ["France", "Canada", "India", "Chile"]},
        "total_in_cents": {"type": "integer", "minimum": 0, "maximum": 99999},
        "is_gift_wrapped": {"type": "boolean"},
        "payment_method": {"type": "string", "enum": ["credit card", "bank transfer", "cash on delivery"]},
        "ordered_sizes": {
            "type": "array",
            "minItems": 2,
            "maxItems": 2,
            "items": {"type": "string", "enum": ["small", "medium", "large"]},
        },
        "days_until_delivery": {"type": "integer", "minimum": 1, "maximum": 60},
    },
    "additionalProperties": False,
}
ORDER["required"] = list(ORDER["properties"])


def words(rng: random.Random, count: int) -> str:
    """About `count` tokens of plain text."""
    return " ".join(rng.choice(WORDS) for _ in range(count))


def at_once(count: int, calls: Iterable[Callable[[], object]]) -> None:
    """Run calls, at most `count` at a time; the first failure is raised."""
    with ThreadPoolExecutor(count) as pool:
        for done in [pool.submit(call) for call in calls]:
            done.result()


def single(api: Api, rng: random.Random) -> None:
    """One user, streaming: 2 answers of 128 tokens to short prompts."""
    for _ in range(2):
        api.stream(words(rng, 32), 128)


def prefill(api: Api, rng: random.Random) -> None:
    """Long prompts, one after the other: 3 of 1,024 tokens."""
    for _ in range(3):
        api.complete(words(rng, 1024), 1)


def throughput(api: Api, rng: random.Random) -> None:
    """32 unrelated requests of 64 + 64 tokens, 16 at once."""
    prompts = [words(rng, 64) for _ in range(32)]
    at_once(16, [partial(api.complete, p, 64) for p in prompts])


def fewshot(api: Api, rng: random.Random) -> None:
    """32 questions on the same 1,500 tokens of examples, 16 at once."""
    shared = words(rng, 1500)
    prompts = [f"{shared} Q: {words(rng, 24)} A:" for _ in range(32)]
    at_once(16, [partial(api.complete, p, 16) for p in prompts])


def multiturn(api: Api, rng: random.Random) -> None:
    """8 conversations of 4 turns under one system message."""
    system = words(rng, 200)

    def talk(seed: float) -> None:
        own = random.Random(seed)
        messages = [{"role": "system", "content": system}]
        for _ in range(4):
            messages.append({"role": "user", "content": words(own, 40)})
            messages.append({"role": "assistant", "content": api.chat(messages, 48)})

    seeds = [rng.random() for _ in range(8)]
    at_once(8, [partial(talk, s) for s in seeds])


def tree(api: Api, rng: random.Random) -> None:
    """A tree of thoughts: three branches a level, three levels, on 600 tokens."""
    level = [words(rng, 600)]
    for _ in range(3):
        prompts = [f"{text} [{i}] {words(rng, 12)}" for text in level for i in range(3)]
        with ThreadPoolExecutor(len(prompts)) as pool:
            answers = list(pool.map(lambda prompt: api.complete(prompt, 24), prompts))
        level = [prompt + answer for prompt, answer in zip(prompts, answers, strict=True)]


def records(api: Api, rng: random.Random) -> None:
    """16 records by JSON Schema, 8 at once; every answer is checked."""
    shared = f"Extract the order as JSON from the text. {words(rng, 250)}"
    form = {"type": "json_schema", "json_schema": {"name": "order", "schema": ORDER, "strict": True}}

    def extract(text: str) -> None:
        message = {"role": "user", "content": f"{shared}\nText: {text}"}
        answer = api.chat([message], 400, response_format=form, ignore_eos=None)
        try:
            record = json.loads(answer)
        except ValueError:
            raise Failure(f"not JSON: {answer[:200]}") from None
        if set(record) != set(ORDER["required"]):
            raise Failure(f"not by the schema: {answer[:200]}")

    texts = [words(rng, 60) for _ in range(16)]
    at_once(8, [partial(extract, t) for t in texts])


WORKLOADS: dict[str, Callable[[Api, random.Random], None]] = {
    "single": single,
    "prefill": prefill,
    "throughput": throughput,
    "fewshot": fewshot,
    "multiturn": multiturn,
    "tree": tree,
    "json": records,
}
