"""Data for the workloads: made here from a seed, so that nothing is downloaded and every run is the same."""

from __future__ import annotations

import random

NAMES = ["Ada", "Bruno", "Chen", "Dora", "Emil", "Farah", "Goran", "Hana", "Ines", "Jonas"]
THINGS = ["apples", "books", "coins", "lamps", "maps", "nails", "pens", "ropes", "shells", "tiles"]
PLACES = ["harbour", "library", "market", "mill", "museum", "orchard", "school", "station", "theatre", "workshop"]
VERBS = ["buys", "carries", "counts", "finds", "paints", "repairs", "sells", "sorts"]


def sentence(rng: random.Random) -> str:
    who, does, what, where = (rng.choice(words) for words in (NAMES, VERBS, THINGS, PLACES))
    return f"{who} {does} {rng.randrange(2, 90)} {what} at the {where}."


def page(rng: random.Random, sentences: int) -> str:
    """A text of so many sentences, about ten tokens each."""
    return " ".join(sentence(rng) for _ in range(sentences))


def sum_question(rng: random.Random) -> tuple[str, int]:
    """A problem in words, and its answer."""
    who, what, a, b = rng.choice(NAMES), rng.choice(THINGS), rng.randrange(2, 60), rng.randrange(2, 60)
    return f"{who} has {a} {what} and gets {b} more. How many {what} does {who} have?", a + b


def choice_question(rng: random.Random) -> tuple[str, list[str], str]:
    """A question with four options and the right letter."""
    a, b = rng.randrange(2, 50), rng.randrange(2, 50)
    options = [a + b, a + b + 1, a + b + 10, abs(a - b)]
    rng.shuffle(options)
    letter = "ABCD"[options.index(a + b)]
    return f"What is {a} + {b}?", [str(option) for option in options], letter
