"""Speculation never changes a token; it only makes fewer steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from in_process import Driver, Outcome

from sapwood.runtime.messages import GrammarSpec

SETTINGS: list[dict[str, Any]] = [
    {"temperature": 0.0},
    {"temperature": 0.7, "seed": 3},
    {"temperature": 0.0, "logprobs": 2},
    {"temperature": 0.0, "presence_penalty": 0.5, "repetition_penalty": 1.1},
    {"temperature": 0.0, "grammar": GrammarSpec("regex", "(abc|abd|xyz){4,30}"), "logprobs": 1},
    {"temperature": 0.0, "stop": ["}w>{Q"]},
]


def eager(driver: Driver) -> Driver:
    """Drafts are made whether they pay or not."""
    drafts = driver.scheduler._drafts
    assert drafts is not None
    drafts._row_seconds = 0.0
    drafts.observe = lambda num_rows, seconds: drafts._plain.setdefault(drafts._num_decoding, 1.0)  # type: ignore[assignment]
    return driver


def told(outcome: Outcome) -> tuple[Any, ...]:
    assert outcome.last is not None, outcome.failed
    scores = [(one.id, one.logprob, one.top) for one in outcome.logprobs]
    return outcome.ids, scores, outcome.last.finish_reason, outcome.last.matched, outcome.last.trim


@pytest.mark.parametrize("speculative", ["ngram", "lookahead", "draft:fake"])
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_with_and_without_drafts_everything_is_the_same(settings: dict[str, Any], speculative: str) -> None:
    plain, drafting = Driver(), eager(Driver(speculative=speculative))
    prompts = ["Tell me a story", "Tell me a story, tell me", "abcabcabcabc", "x"]
    for driver in (plain, drafting):
        for again in range(2):  # the second time, the texts of the first are there to draft from
            for i, prompt in enumerate(prompts):
                driver.submit(f"{again}-{i}", prompt, max_tokens=60, **settings)
            driver.finish()
    for rid, outcome in plain.outcomes.items():
        assert told(drafting.outcomes[rid]) == told(outcome)
    usages = [outcome.usage for outcome in drafting.outcomes.values()]
    never_right = speculative == "lookahead" and "grammar" in settings  # it guesses what the grammar forbids
    assert never_right or sum(usage.accepted_tokens for usage in usages) > 0
    assert all(usage.accepted_tokens <= usage.drafted_tokens for usage in usages)
    assert len(drafting.batches) <= len(plain.batches)


def test_a_model_that_drafts_for_itself_is_always_right() -> None:
    driver = eager(Driver(speculative="draft:fake"))
    outcome = driver.complete("Once upon a time", max_tokens=60)
    assert outcome.ids == Driver().complete("Once upon a time", max_tokens=60).ids
    assert outcome.usage.accepted_tokens == outcome.usage.drafted_tokens > 30
    stats = driver.scheduler.stats
    assert stats.drafts_true == stats.drafts_tried and sum(stats.drafts_true) == outcome.usage.accepted_tokens


def test_rejected_drafts_give_their_slots_back() -> None:
    driver = eager(Driver(speculative="ngram"))
    outcome = driver.complete("abc abd abe abc abf abg abc", max_tokens=50, temperature=1.0, seed=1)
    assert outcome.usage.drafted_tokens > outcome.usage.accepted_tokens
    used = driver.tree.num_slots - driver.tree.num_free
    assert used <= outcome.usage.prompt_tokens + outcome.usage.completion_tokens


def test_drafts_go_on_when_the_cache_is_full() -> None:
    driver = eager(Driver(speculative="ngram", num_slots=200))
    for i in range(6):
        driver.complete([200 + i] * 60, max_tokens=1)
    assert driver.tree.num_free < 30
    prompt = "again and again and again"
    assert driver.complete(prompt, max_tokens=60).usage.accepted_tokens > 0
    assert driver.complete(prompt, max_tokens=60).usage.accepted_tokens > 30


def test_drafting_requests_can_be_preempted() -> None:
    prompts = [f"again and again {i} and again and again" for i in range(6)]
    plain, drafting = Driver(), eager(Driver(speculative="ngram", num_slots=160))
    for driver in (plain, drafting):
        for i, prompt in enumerate(prompts):
            driver.submit(f"{i}", prompt, max_tokens=60)
        driver.finish()
    assert drafting.scheduler.stats.num_preempted
    for rid, outcome in plain.outcomes.items():
        assert told(drafting.outcomes[rid]) == told(outcome)


def test_the_real_model_says_the_same_with_drafts(smollm2_path: Path) -> None:
    prompt = [(i * 7919) % 49000 for i in range(40)]
    plain = Driver(model=str(smollm2_path), num_slots=512).complete(prompt, max_tokens=48, ignore_eos=True)
    drafting = eager(Driver(model=str(smollm2_path), num_slots=512, speculative="ngram"))
    assert drafting.complete(prompt, max_tokens=48, ignore_eos=True).ids == plain.ids
    before = len(drafting.batches)
    again = drafting.complete(prompt, max_tokens=48, ignore_eos=True)
    assert again.ids == plain.ids
    assert again.usage.accepted_tokens > 30 and len(drafting.batches) - before < 20
