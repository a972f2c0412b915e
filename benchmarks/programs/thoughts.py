"""Programs that branch: trees of thought, a skeleton that is filled in, a judge of several sides."""

from __future__ import annotations

import random
from typing import Any

import data

import sapwood as sw

STAGES = ["Plan:", "Work:", "Check:", "Answer:"]
SIDES = ["clarity", "truth", "style", "length", "order", "interest"]


@sw.function
def tree_of_thought(s: Any, question: str) -> None:
    """Four stages, two branches at each: 2 + 4 + 8 + 16 generations."""
    s += sw.user(question) + sw.assistant_begin()
    states = [s]
    for stage in STAGES:
        grown = []
        for state in states:
            for number, fork in enumerate(state.fork(2)):
                fork += f"{stage}" + sw.gen("step", max_tokens=24, temperature=0.6, seed=number, stop="\n") + "\n"
                grown.append(fork)
        states = grown
    s["answers"] = [state["step"] for state in states]


def tree_of_thought_runs(n: int) -> list[dict[str, Any]]:
    rng = random.Random(7)
    return [{"question": data.sum_question(rng)[0]} for _ in range(n)]


@sw.function
def expand_tip(s: Any, topic: str, tip: str) -> None:
    s += (
        "Write a paragraph of advice for the tip.\nTip: wear a hat.\nParagraph: A hat keeps off sun and rain alike.\n\n"
    )
    s += f"Topic: {topic}\nTip: {tip}\nParagraph:" + sw.gen("paragraph", max_tokens=48, stop="\n\n", temperature=0)


@sw.function
def skeleton_of_thought(s: Any, topic: str) -> None:
    """Short tips first, then a paragraph on each, side by side."""
    s += sw.user(f"Give three very short tips on {topic}.") + sw.assistant_begin()
    for number in range(3):
        s += f"{number + 1}." + sw.gen(f"tip{number}", max_tokens=10, stop=["\n", "."], temperature=0) + ".\n"
    for state in [expand_tip.run(topic=topic, tip=s[f"tip{number}"]) for number in range(3)]:
        s += state


def skeleton_of_thought_runs(n: int) -> list[dict[str, Any]]:
    rng = random.Random(8)
    return [{"topic": f"how to sort {rng.choice(data.THINGS)} at the {rng.choice(data.PLACES)}"} for _ in range(n)]


@sw.function
def llm_judge(s: Any, article: str) -> None:
    """Six sides of an article, judged side by side, and a mark."""
    s += f"Article:\n{article}\n\n"
    forks = s.fork(len(SIDES))
    forks += lambda i: (
        f"Judge its {SIDES[i]} in one sentence:" + sw.gen("judgement", max_tokens=32, stop="\n", temperature=0)
    )
    forks.join()
    s += "Judgements:\n" + "\n".join(s["judgement"]) + "\nMark from 1 to 9: " + sw.gen("mark", regex="[1-9]")


def llm_judge_runs(n: int) -> list[dict[str, Any]]:
    rng = random.Random(9)
    return [{"article": data.page(rng, 40)} for _ in range(n)]
