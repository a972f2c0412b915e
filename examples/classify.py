"""Classification with scores that can be trusted: choices are weighed against what the model says without a text.

sapwood run examples/classify.py

A model prefers some labels whatever it reads. So each label's score is taken relative to its score for a text without content
(contextual calibration, Zhao et al., arXiv 2102.09690), and the temperature of the scores is fitted on a few known examples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import sapwood as sw

LABELS = ["positive", "negative"]
KNOWN = [
    ("The food was wonderful and the staff kind.", "positive"), ("I waited an hour for cold soup.", "negative"),
    ("Best concert I have heard in years.", "positive"), ("The phone broke after two days.", "negative"),
    ("A lovely little book.", "positive"), ("Never again, a complete waste of money.", "negative"),
]  # fmt: skip
NEW = ["What a delightful evening!", "The room was dirty and loud.", "It does what it should, and more."]
NOTHING = ["N/A", "", "[MASK]"]


@sw.function
def judge(s, text):  # type: ignore[no-untyped-def]
    s += f"Review: {text}\nThe mood of this review is " + sw.select("label", LABELS)


def scores(texts: Sequence[str]) -> list[list[float]]:
    """Log probability of each label for each text, summed over the label's tokens."""
    states = judge.run_batch([(text,) for text in texts])
    return [[sum(lps) for lps in state.get_meta_info("label")["token_logprobs"]] for state in states]


def softmax(values: Sequence[float], sharpness: float) -> list[float]:
    powers = [math.exp(sharpness * (value - max(values))) for value in values]
    return [power / sum(powers) for power in powers]


def calibrated(rows: list[list[float]], neutral: list[float]) -> list[list[float]]:
    return [[value - base for value, base in zip(row, neutral, strict=True)] for row in rows]


def loss(rows: list[list[float]], labels: Sequence[str], sharpness: float) -> float:
    """Mean negative log likelihood of the known labels."""
    return -sum(
        math.log(max(softmax(row, sharpness)[LABELS.index(label)], 1e-9))
        for row, label in zip(rows, labels, strict=True)
    ) / len(rows)


def main() -> None:
    neutral = [sum(column) / len(NOTHING) for column in zip(*scores(NOTHING), strict=True)]
    known, labels = calibrated(scores([text for text, _ in KNOWN]), neutral), [label for _, label in KNOWN]
    sharpness = min((step / 10 for step in range(1, 51)), key=lambda value: loss(known, labels, value))
    for text, row in zip(NEW, calibrated(scores(NEW), neutral), strict=True):
        odds = softmax(row, sharpness)
        best = max(range(len(LABELS)), key=lambda i: odds[i])
        print(f"{LABELS[best]:9} {odds[best]:5.0%}  {text}")
    right = sum(row.index(max(row)) == LABELS.index(label) for row, label in zip(known, labels, strict=True))
    print(f"{right} of {len(KNOWN)} known examples right, mean loss {loss(known, labels, sharpness):.2f}")


if __name__ == "__main__":
    main()
