"""Programs on documents: records by regex and by schema, long pages, conversations, answers from passages."""

from __future__ import annotations

import random
from typing import Any

import data

import sapwood as sw

PERSON = r'\{"name": "[A-Z][a-z]{1,12}", "place": "[a-z]{3,12}", "count": [1-9][0-9]{0,2}, "goods": "[a-z]{3,12}"\}'
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20}, "place": {"enum": data.PLACES},
        "count": {"type": "integer", "minimum": 1, "maximum": 999}, "goods": {"enum": data.THINGS},
    },
    "required": ["name", "place", "count", "goods"], "additionalProperties": False,
}  # fmt: skip


@sw.function
def json_decode(s: Any, text: str) -> None:
    """Four values, one small form after the other."""
    s += f"{text}\nAs JSON:\n" + '{"name": "' + sw.gen("name", regex="[A-Z][a-z]{1,12}")
    s += '", "place": "' + sw.gen("place", regex="[a-z]{3,12}")
    s += '", "count": ' + sw.gen("count", regex="[1-9][0-9]{0,2}")
    s += ', "goods": "' + sw.gen("goods", regex="[a-z]{3,12}") + '"}'


@sw.function
def json_regex(s: Any, text: str) -> None:
    """A whole record by one regex; most of it is forced."""
    s += f"{text}\nAs JSON:\n" + sw.gen("record", regex=PERSON, max_tokens=80)


@sw.function
def json_schema(s: Any, text: str) -> None:
    """A whole record by JSON Schema."""
    s += f"{text}\nAs JSON:\n" + sw.gen("record", json_schema=SCHEMA, max_tokens=80)


def json_runs(n: int) -> list[dict[str, Any]]:
    rng = random.Random(10)
    return [{"text": data.sentence(rng)} for _ in range(n)]


@sw.function
def long_json(s: Any, text: str) -> None:
    """Four values from a long page, each up to a quote."""
    s += f"{text}\nThe page as JSON:\n" + '{\n"title": "' + sw.gen("title", max_tokens=16, stop='"')
    for key in ("person", "place", "summary"):
        s += f'",\n"{key}": "' + sw.gen(key, max_tokens=16, stop='"')
    s += '"\n}'


def long_json_runs(n: int) -> list[dict[str, Any]]:
    rng = random.Random(11)
    return [{"text": data.page(rng, 80)} for _ in range(n)]


@sw.function
def multi_turn(s: Any, questions: list[str]) -> None:
    """Four turns; each answer is short."""
    for number, question in enumerate(questions):
        s += sw.user(question) + sw.assistant(sw.gen(f"answer{number}", max_tokens=8, ignore_eos=True))


def multi_turn_runs(n: int) -> list[dict[str, Any]]:
    rng = random.Random(12)
    return [{"questions": [f"{data.page(rng, 12)} What happened?" for _ in range(4)]} for _ in range(n)]


@sw.function
def rag(s: Any, passages: list[str], question: str) -> None:
    """An answer from passages that other questions get too, most frequent first."""
    s += "Answer from the passages.\n" + "".join(f"- {passage}\n" for passage in passages)
    s += f"Question: {question}\nAnswer:" + sw.gen("answer", max_tokens=24, stop="\n")


def rag_runs(n: int) -> list[dict[str, Any]]:
    rng = random.Random(13)
    pool = [data.page(rng, 6) for _ in range(8)]
    return [
        {"passages": [pool[k] for k in sorted(rng.sample(range(8), 3))], "question": data.sum_question(rng)[0]}
        for _ in range(n)
    ]
