"""Everything at once, at random: what comes out is what each request would have got alone."""

from __future__ import annotations

import random
from typing import Any

import pytest
from in_process import Driver, Outcome

from sapwood.runtime.messages import GrammarSpec

BEGINNINGS = [[65 + i] * 30 for i in range(3)]
GRAMMARS = [
    None,
    None,
    None,
    GrammarSpec("regex", "(yes|no|maybe so){1,6}"),
    GrammarSpec("choices", '["left","right"]'),
]


def random_request(rng: random.Random) -> dict[str, Any]:
    """A prompt, often with a beginning that others have too, and settings of all kinds."""
    prompt = rng.choice(BEGINNINGS)[: rng.randrange(1, 31)] + [rng.randrange(32, 127) for _ in range(rng.randrange(12))]
    fields: dict[str, Any] = {"prompt": prompt, "max_tokens": rng.randrange(0, 40), "seed": rng.randrange(2**32)}
    fields["temperature"] = rng.choice([0.0, 0.7, 1.0])
    fields["priority"] = rng.choice([0, 0, 0, 1, 5])
    fields["stream"] = rng.random() < 0.7
    fields["grammar"] = rng.choice(GRAMMARS)
    fields["jump"] = rng.random() < 0.8
    if rng.random() < 0.3:
        fields["logprobs"] = rng.randrange(3)
    if rng.random() < 0.2:
        fields["prompt_logprobs"], fields["prompt_logprobs_start"] = 1, rng.randrange(len(prompt))
    if rng.random() < 0.3:
        fields["stop"] = ["".join(chr(rng.randrange(32, 127)) for _ in range(rng.randrange(1, 3))) for _ in range(3)]
    return fields


def told(outcome: Outcome) -> tuple[Any, ...]:
    assert outcome.last is not None, outcome.failed
    scores = [(one.id, one.logprob, one.top) for one in [*outcome.prompt_logprobs, *outcome.logprobs]]
    return outcome.ids, scores, outcome.last.finish_reason, outcome.last.matched, outcome.last.trim


@pytest.mark.parametrize("seed", range(4))
def test_a_random_crowd_in_a_small_pool_gets_what_each_would_get_alone(seed: int) -> None:
    rng = random.Random(seed)
    options: dict[str, Any] = {"num_slots": rng.choice([150, 300]), "max_rows": rng.choice([9, 64])}
    options |= {"speculative": rng.choice(["off", "ngram"]), "policy": rng.choice(["fcfs", "lpm", "dfs-weight"])}
    options |= {"host_cache": rng.choice([0, 2**20]), "max_running": rng.choice([3, 50])}
    driver = Driver(**options)
    requests = {f"{i}": random_request(rng) for i in range(60)}
    aborted = set()
    for rid, fields in requests.items():
        driver.submit(rid, **{k: v for k, v in fields.items() if v is not None})
        driver.step(rng.randrange(3))
        if rng.random() < 0.1:
            victim = rng.choice(list(requests)[: int(rid) + 1])
            driver.scheduler.abort(b"test", victim)
            aborted.add(victim)
    outcomes = driver.finish()
    quiet = Driver()
    for rid, fields in requests.items():
        if outcomes[rid].failed is not None:
            assert rid in aborted
            continue
        quiet.tree.flush()
        assert told(outcomes[rid]) == told(quiet.complete(**{k: v for k, v in fields.items() if v is not None})), fields
    driver.tree.flush()
    assert driver.tree.num_free == driver.tree.num_slots
