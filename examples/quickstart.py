"""A first program: chat over two turns, fork into three branches, select, and extract a record by schema.

sapwood run examples/quickstart.py
"""

from __future__ import annotations

import json
import time

import sapwood as sw

# From the article on Ada Lovelace in the English Wikipedia (CC BY-SA 4.0), shortened.
PARAGRAPH = (
    "Augusta Ada King, Countess of Lovelace (10 December 1815 - 27 November 1852), was an English mathematician and "
    "writer chiefly known for her work on Charles Babbage's proposed mechanical general-purpose computer, the "
    "Analytical Engine."
)
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 40},
        "nationality": {"enum": ["English", "French", "German", "American"]},
        "birth_year": {"type": "integer", "minimum": 1000, "maximum": 2100},
        "occupations": {"type": "array", "items": {"type": "string", "maxLength": 20}, "minItems": 1, "maxItems": 3},
    },
    "required": ["name", "nationality", "birth_year", "occupations"],
    "additionalProperties": False,
}


@sw.function
def tour(s, city):  # type: ignore[no-untyped-def]
    # Two turns of chat: the second one reuses the keys and values of the first.
    s += sw.user(f"In one sentence: what is {city} famous for?")
    s += sw.assistant(sw.gen("fame", max_tokens=48, temperature=0))
    s += sw.user("And what do people eat there? One sentence.")
    s += sw.assistant(sw.gen("food", max_tokens=48, temperature=0))

    # Three branches share everything so far, and are generated in one batch.
    branches = s.fork(3)
    for branch, topic in zip(branches, ["a museum", "a walk", "a view"], strict=True):
        branch += sw.user(f"Recommend {topic} in {city}, in one sentence.")
        branch += sw.assistant(sw.gen("tip", max_tokens=40, temperature=0))
    s["tips"] = [branch["tip"] for branch in branches]

    # A choice, weighed by the model's own probabilities.
    s += sw.user(f"On which continent is {city}?")
    s += sw.assistant(f"{city} is in " + sw.select("continent", choices=["Europe", "Asia", "Africa", "America"]))


@sw.function
def extract(s, text):  # type: ignore[no-untyped-def]
    s += sw.user(f"Extract the person from this text as JSON.\n\n{text}")
    s += sw.assistant(sw.gen("person", json_schema=json.dumps(PERSON), max_tokens=200, temperature=0))


def main() -> None:
    began = time.perf_counter()
    trip = tour.run(city="Paris")
    person = extract.run(text=PARAGRAPH)
    record = json.loads(person["person"])  # valid by construction
    print("fame:     ", trip["fame"].strip())
    print("food:     ", trip["food"].strip())
    for tip in trip["tips"]:
        print("tip:      ", tip.strip())
    print("continent:", trip["continent"])
    print("person:   ", json.dumps(record, ensure_ascii=False))
    usages = [trip.usage(), person.usage()]
    prompt, cached = (sum(getattr(u, name) for u in usages) for name in ("prompt_tokens", "cached_tokens"))
    print(f"\n{cached} of {prompt} prompt tokens came from the tree; {time.perf_counter() - began:.1f} s in all")


if __name__ == "__main__":
    main()
