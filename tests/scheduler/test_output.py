"""Where a text ends, what is shown when, and what the logprobs are."""

from __future__ import annotations

import numpy as np
import pytest
from in_process import TOKENIZER, Driver, Outcome, alone

from sapwood.kernels.sampling import log_softmax
from sapwood.runtime.fake import EOS
from sapwood.runtime.messages import GrammarSpec

FREE = alone("Tell me", max_tokens=40)
TEXT = FREE.text


def reason(outcome: Outcome) -> tuple[str | None, str | int | None]:
    assert outcome.last is not None, outcome.failed
    return outcome.last.finish_reason, outcome.last.matched


def test_a_stop_string_ends_the_text_before_itself_wherever_it_stands() -> None:
    for at in (0, 5, 17):
        for size in (1, 2, 7):
            stop = TEXT[at : at + size]
            stopped = alone("Tell me", max_tokens=40, stop=[stop, "never written"])
            assert stopped.text == TEXT[: TEXT.find(stop)]
            assert reason(stopped) == ("stop", stop)


def test_what_may_become_a_stop_string_is_held_back_and_shown_when_it_does_not() -> None:
    almost = TEXT[4:9] + "\0"  # five characters as written, then another one
    held = alone("Tell me", max_tokens=40, stop=[almost])
    assert held.text == TEXT
    sizes = [len(chunk) for chunk in held.chunks]
    assert max(sizes) > 1, "held tokens came together"
    assert sum(sizes) == 40


def test_the_length_limit_shows_what_was_held_back() -> None:
    held = alone("Tell me", max_tokens=9, stop=[TEXT[4:9] + "\0"])
    assert held.text == TEXT[:9]
    assert reason(held) == ("length", None)


def test_stop_tokens_and_eos_end_the_text_and_are_not_in_it() -> None:
    token = FREE.ids[6]
    stopped = alone("Tell me", max_tokens=40, stop_token_ids=[token])
    assert stopped.ids == FREE.ids[: FREE.ids.index(token)]
    assert reason(stopped) == ("stop", token)
    ended = alone("Tell me", max_tokens=5, logit_bias={EOS: 100.0})
    assert (ended.ids, reason(ended)) == ([], ("stop", EOS))
    ignored = alone("Tell me", max_tokens=5, logit_bias={EOS: 100.0}, ignore_eos=True)
    assert (ignored.ids, reason(ignored)) == ([EOS] * 5, ("length", None))


def test_min_tokens_keeps_the_end_away() -> None:
    ended = alone("Tell me", max_tokens=20, min_tokens=7, logit_bias={EOS: 100.0})
    assert len(ended.ids) == 7 and reason(ended) == ("stop", EOS)
    stop = TEXT[2]
    assert len(alone("Tell me", max_tokens=40, min_tokens=12, stop=[stop]).ids) >= 12


def test_the_context_length_ends_the_text() -> None:
    outcome = Driver(context_length=20).complete("Tell me", max_tokens=100)
    assert len(outcome.ids) == 13 and reason(outcome) == ("length", None)


def test_logprobs_are_those_of_a_direct_computation() -> None:
    scored = alone("Tell me", max_tokens=6, logprobs=3, prompt_logprobs=2)
    ids = [*TOKENIZER.encode("Tell me"), *scored.ids]
    assert [one.id for one in [*scored.prompt_logprobs, *scored.logprobs]] == ids
    assert scored.prompt_logprobs[0].logprob is None
    logits = all_logits(ids)
    for position, one in enumerate([*scored.prompt_logprobs, *scored.logprobs]):
        if position:
            expected = log_softmax(logits[position - 1])
            assert one.logprob == pytest.approx(expected[ids[position]], abs=1e-4)
            best = np.argsort(-expected)[: len(one.top)].tolist()
            assert [i for i, _ in one.top] == best
            assert len(one.top) == (2 if position < 7 else 3)


def all_logits(ids: list[int]) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    """Straight from the plan."""
    from sapwood.kernels.plan import Batch

    plan = Driver().system.plan
    line = np.arange(len(ids), dtype=np.int32)
    batch = Batch(np.array(ids, np.int32), line, line, np.zeros(len(ids), np.int32), [line], line)
    return np.array(plan.run(batch).logits)


@pytest.mark.parametrize(("start", "num_cached"), [(0, 0), (1, 0), (3, 2), (7, 7)])
def test_prompt_logprobs_can_start_later_and_are_the_same_from_the_cache(start: int, num_cached: int) -> None:
    driver = Driver()
    full = driver.complete("Tell me", max_tokens=0, prompt_logprobs=1)
    warm = driver.complete("Tell me", max_tokens=0, prompt_logprobs=1, prompt_logprobs_start=start)
    assert warm.prompt_logprobs == full.prompt_logprobs[start:]
    assert warm.usage.cached_tokens == num_cached


def test_prompt_logprobs_of_a_long_prompt_come_in_bounded_pieces() -> None:
    driver = Driver()
    prompt = "y" * 700
    scored = driver.complete(prompt, max_tokens=1, prompt_logprobs=0)
    assert len(scored.prompt_logprobs) == 700
    assert max(driver.batches) <= 128


@pytest.mark.parametrize("jump", [True, False])
def test_a_grammar_shapes_the_text_and_jumping_does_not_change_it(jump: bool) -> None:
    schema = '{"type":"object","properties":{"color":{"enum":["red","reddish"]}},"required":["color"]}'
    shaped = alone("Tell me", max_tokens=40, grammar=GrammarSpec("json_schema", schema), jump=jump)
    assert shaped.text in ('{"color":"red"}', '{"color":"reddish"}')
    assert reason(shaped)[0] == "stop"
    assert (shaped.usage.jumped_tokens > 8) == jump


def test_jumped_tokens_obey_stop_strings_limits_and_have_logprobs() -> None:
    grammar = GrammarSpec("regex", "abcdefgh(x|y)ijk")
    stopped = alone("Tell me", max_tokens=40, grammar=grammar, stop=["ef"])
    assert (stopped.text, reason(stopped)) == ("abcd", ("stop", "ef"))
    cut = alone("Tell me", max_tokens=5, grammar=grammar, logprobs=1)
    assert (cut.text, reason(cut), len(cut.logprobs)) == ("abcde", ("length", None), 5)
    whole = alone("Tell me", max_tokens=40, grammar=grammar, logprobs=1)
    sampled = alone("Tell me", max_tokens=40, grammar=grammar, logprobs=1, jump=False)
    assert whole.text == sampled.text and len(whole.logprobs) == 12
    for one, other in zip(whole.logprobs, sampled.logprobs, strict=True):
        assert one.id == other.id and one.logprob == pytest.approx(other.logprob, abs=1e-4)


def test_a_wrong_grammar_fails_its_own_request_only() -> None:
    driver = Driver()
    driver.submit("wrong", "Tell me", grammar=GrammarSpec("regex", "(unclosed"))
    driver.submit("right", "Tell me", max_tokens=40)
    outcomes = driver.finish()
    assert outcomes["wrong"].failed is not None and outcomes["wrong"].failed.kind == "grammar"
    assert outcomes["right"].ids == FREE.ids


def test_penalties_look_at_the_output_so_far() -> None:
    plain = alone("Tell me", max_tokens=60)
    penalised = alone("Tell me", max_tokens=60, presence_penalty=100.0)
    assert len(set(plain.ids)) < 60
    assert len(set(penalised.ids)) == 60
