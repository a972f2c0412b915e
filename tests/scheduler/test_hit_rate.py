"""How much is reused, against the best possible: what an all-knowing cache without limits would have reused."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest
from in_process import Driver

Round = dict[str, list[int]]  # prompts that are sent together

ANSWER = 12


def text(rng: random.Random, length: int) -> list[int]:
    return [rng.randrange(32, 127) for _ in range(length)]


def multi_turn(answers: dict[str, list[int]], rng: random.Random) -> Iterator[Round]:
    """Eight chats of four turns on one system prompt."""
    system = text(rng, 60)
    chats = {f"{i}": system + text(rng, 20) for i in range(8)}
    for _ in range(4):
        yield chats
        chats = {rid: [*prompt, *answers[rid], *text(rng, 20)] for rid, prompt in chats.items()}


def few_shot(answers: dict[str, list[int]], rng: random.Random) -> Iterator[Round]:
    """Questions on a long common beginning, some in one wave, some in the next."""
    shots = text(rng, 400)
    for _ in range(3):
        yield {f"{i}": shots + text(rng, 15) for i in range(12)}


def tree_of_thought(answers: dict[str, list[int]], rng: random.Random) -> Iterator[Round]:
    """Three levels of three branches each."""
    level = {"": text(rng, 120)}
    for _ in range(3):
        level = {f"{rid}{i}": [*prompt, *text(rng, 8)] for rid, prompt in level.items() for i in range(3)}
        yield level
        level = {rid: [*prompt, *answers[rid]] for rid, prompt in level.items()}


def agents(answers: dict[str, list[int]], rng: random.Random) -> Iterator[Round]:
    """Agents of two kinds that call tools and read what these return, in steps of their own length."""
    kinds = [text(rng, 150), text(rng, 150)]
    histories = {f"{i}": kinds[i % 2] + text(rng, 10) for i in range(6)}
    for _ in range(5):
        yield histories
        histories = {rid: [*h, *answers[rid], *text(rng, rng.randrange(5, 60))] for rid, h in histories.items()}


class BestPossible:
    """Remembers every prefix that was ever computed, and who computes it when several come together."""

    def __init__(self) -> None:
        self.known: set[tuple[int, ...]] = set()

    def reusable(self, prompt: list[int]) -> int:
        length = 0
        while length < len(prompt) and tuple(prompt[: length + 1]) in self.known:
            length += 1
        self.add(prompt)
        return min(length, len(prompt) - 1)

    def add(self, ids: list[int]) -> None:
        self.known.update(tuple(ids[: n + 1]) for n in range(len(ids)))


@pytest.mark.parametrize("workload", [multi_turn, few_shot, tree_of_thought, agents], ids=lambda w: str(w.__name__))
@pytest.mark.parametrize("policy", ["fcfs", "lpm", "dfs-weight"])
def test_at_least_99_percent_of_what_could_be_reused_is(
    workload: Callable[[dict[str, list[int]], random.Random], Iterator[Round]], policy: str
) -> None:
    driver, best, answers = Driver(num_slots=16384, policy=policy), BestPossible(), dict[str, list[int]]()
    reused = reusable = 0
    for number, prompts in enumerate(workload(answers, random.Random(5))):
        for rid, prompt in prompts.items():
            reusable += best.reusable(prompt)
            driver.submit(f"{number}/{rid}", prompt, max_tokens=ANSWER)
        driver.finish()
        for rid, prompt in prompts.items():
            outcome = driver.outcomes[f"{number}/{rid}"]
            reused += outcome.usage.cached_tokens
            answers[rid] = outcome.ids
            best.add([*prompt, *outcome.ids[:-1]])  # the last token chosen was never computed
    assert reused >= 0.99 * reusable > 0
