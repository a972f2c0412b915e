"""Many questions on one set of worked examples: what they share is the examples."""

from __future__ import annotations

import random
from typing import Any

import data

import sapwood as sw


def _choice_text(question: str, options: list[str], answer: str) -> str:
    lines = [question, *(f"{letter}. {option}" for letter, option in zip("ABCD", options, strict=True))]
    return "\n".join([*lines, f"Answer:{f' {answer}' if answer else ''}"]) + ("\n\n" if answer else "")


@sw.function
def mmlu(s: Any, shots: str, question: str) -> None:
    s += shots
    s += question
    s += sw.gen("answer", max_tokens=1, temperature=0)


def mmlu_runs(n: int) -> list[dict[str, Any]]:
    """Four subjects of five shots each; one token an answer."""
    rng = random.Random(1)
    subjects = [
        f"Questions about subject {k}.\n\n" + "".join(_choice_text(*data.choice_question(rng)) for _ in range(5))
        for k in range(4)
    ]
    return [
        {"shots": subjects[i * 4 // n], "question": _choice_text(*data.choice_question(rng)[:2], "")} for i in range(n)
    ]


@sw.function
def hellaswag(s: Any, shots: str, beginning: str, endings: list[str]) -> None:
    s += shots
    s += beginning
    s += sw.select("ending", endings)


def hellaswag_runs(n: int) -> list[dict[str, Any]]:
    """Twenty shots; four endings scored a question."""
    rng = random.Random(2)
    shots = "".join(f"{data.sentence(rng)} Then {data.sentence(rng)}\n\n" for _ in range(20))
    return [
        {
            "shots": shots,
            "beginning": f"{data.sentence(rng)} Then",
            "endings": [f" {data.sentence(rng)}" for _ in range(4)],
        }
        for _ in range(n)
    ]


@sw.function
def gsm8k(s: Any, shots: str, question: str) -> None:
    s += shots
    s += f"Question: {question}\nAnswer:"
    s += sw.gen("answer", max_tokens=64, stop=["Question", "\n\n"], temperature=0)


def gsm8k_runs(n: int) -> list[dict[str, Any]]:
    """Five worked sums; a short chain of thought each."""
    rng = random.Random(3)
    shots = ""
    for _ in range(5):
        question, answer = data.sum_question(rng)
        shots += f"Question: {question}\nAnswer: We add the two numbers. The answer is {answer}.\n\n"
    return [{"shots": shots, "question": data.sum_question(rng)[0]} for _ in range(n)]
