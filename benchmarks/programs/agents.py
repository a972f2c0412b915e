"""Programs that act: a trace that grows, small functions of an agent, several chains and a vote."""

from __future__ import annotations

import random
from typing import Any

import data

import sapwood as sw


@sw.function
def react(s: Any, shots: str, question: str, steps: list[str]) -> None:
    """Replays a recorded trace: at each step the model thinks on a fork, and the recorded step is appended."""
    s += shots
    s += f"Question: {question}\n"
    for number, step in enumerate(steps, start=1):
        s += f"Thought {number}:"
        side = s.fork(1)[0]
        side += sw.gen("thought", max_tokens=32, stop="Observation", temperature=0)
        side.sync()
        s += step


def react_runs(n: int) -> list[dict[str, Any]]:
    rng = random.Random(4)
    shots = "Answer by thought, action and observation.\n" + "".join(
        f"Question: {data.sum_question(rng)[0]}\nThought 1: I look it up.\nObservation 1: {data.page(rng, 3)}\n\n"
        for _ in range(6)
    )
    return [
        {
            "shots": shots, "question": data.sum_question(rng)[0],
            "steps": [f" I search {k}.\nObservation {k}: {data.page(rng, 3)}\n" for k in range(1, 5)],
        }
        for _ in range(n)
    ]  # fmt: skip


@sw.function
def generative_agents(s: Any, who: str, memory: str, event: str) -> None:
    """Three small decisions of a character, each on its own template."""
    s += "You write what people in a small town do, one short phrase each.\n"
    forks = s.fork(3)
    forks[0] += f"{who} remembers: {memory}\nHow important is it, from 1 to 9? " + sw.gen("weight", regex="[1-9]")
    forks[1] += f"{event} Does {who} talk about it? " + sw.select("talks", ["yes", "no"])
    forks[2] += f"{event} {who} goes to the" + sw.gen("place", max_tokens=6, stop=["\n", "."])
    forks.join()


def generative_agents_runs(n: int) -> list[dict[str, Any]]:
    rng = random.Random(5)
    return [{"who": rng.choice(data.NAMES), "memory": data.page(rng, 4), "event": data.sentence(rng)} for _ in range(n)]


@sw.function
def multi_chain(s: Any, question: str) -> None:
    """Five chains of reasoning, then one answer over all."""
    s += f"Question: {question}\nAnswer step by step.\n"
    forks = s.fork(5)
    forks += lambda i: f"Way {i + 1}:" + sw.gen("chain", max_tokens=48, temperature=0.7, seed=i)
    forks.join()
    s += "Answers of others:\n" + "\n".join(s["chain"]) + "\nThe best answer is:"
    s += sw.gen("answer", max_tokens=24, temperature=0)


def multi_chain_runs(n: int) -> list[dict[str, Any]]:
    rng = random.Random(6)
    return [{"question": data.sum_question(rng)[0]} for _ in range(n)]
