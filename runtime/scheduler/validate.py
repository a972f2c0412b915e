"""What a request must satisfy, in one place. Every refusal is one sentence that says what to change."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sapwood.errors import InvalidRequest
from sapwood.runtime.messages import Generate, Sampling

MAX_STOPS = 64
MAX_STOP_BYTES = 1024
MAX_LOGPROBS = 128


@dataclass(frozen=True, slots=True)
class Limits:
    """What this backend can do."""

    context_length: int
    vocab_size: int
    bos_id: int | None


def check(request: Generate, limits: Limits) -> None:
    """Raises InvalidRequest."""
    check_prompt(request, limits)
    check_sampling(request.sampling, len(request.ids), limits)
    if request.timeout is not None and not request.timeout > 0:
        raise InvalidRequest(f"timeout must be positive seconds, not {request.timeout}")


def check_prompt(request: Generate, limits: Limits) -> None:
    """The ids exist and fit into the context with room for an answer."""
    ids = request.ids
    if not ids:
        raise InvalidRequest("the prompt is empty; give at least one token (this model has no beginning-of-text token)")
    if min(ids) < 0 or max(ids) >= limits.vocab_size:
        wrong = next(i for i in ids if not 0 <= i < limits.vocab_size)
        raise InvalidRequest(f"token id {wrong} is out of range; this model has ids 0 to {limits.vocab_size - 1}")
    room = limits.context_length - min(1, request.sampling.max_tokens)
    if len(ids) > room:
        raise InvalidRequest(
            f"the prompt has {len(ids)} tokens but the context length is {limits.context_length}; shorten the prompt"
        )


def check_sampling(s: Sampling, prompt_len: int, limits: Limits) -> None:
    """Every parameter means something."""
    ranges: list[tuple[str, float, float, float]] = [
        ("temperature", s.temperature, 0, 1000),
        ("top_p", s.top_p, 0, 1),
        ("min_p", s.min_p, 0, 1),
        ("repetition_penalty", s.repetition_penalty, 1e-3, 1000),
        ("presence_penalty", s.presence_penalty, -1000, 1000),
        ("frequency_penalty", s.frequency_penalty, -1000, 1000),
        ("max_tokens", s.max_tokens, 0, math.inf),
        ("min_tokens", s.min_tokens, 0, s.max_tokens),
        ("top_k", s.top_k, 0, math.inf),
        ("logprobs", s.logprobs or 0, 0, MAX_LOGPROBS),
        ("prompt_logprobs", s.prompt_logprobs or 0, 0, MAX_LOGPROBS),
        ("prompt_logprobs_start", s.prompt_logprobs_start, 0, prompt_len),
    ]
    for name, value, least, most in ranges:
        if not least <= value <= most:  # also refuses nan
            raise InvalidRequest(f"{name} must be between {least:g} and {most:g}, not {value:g}")
    if s.top_p == 0:
        raise InvalidRequest("top_p must be more than 0; for the likeliest token set temperature to 0")
    if s.seed is not None and not 0 <= s.seed < 2**64:
        raise InvalidRequest(f"seed must be between 0 and 2**64 - 1, not {s.seed}")
    if len(s.stop) > MAX_STOPS or any(not stop or len(stop.encode()) > MAX_STOP_BYTES for stop in s.stop):
        raise InvalidRequest(f"stop takes up to {MAX_STOPS} strings of 1 to {MAX_STOP_BYTES} bytes each")
    for name, ids in (("stop_token_ids", s.stop_token_ids), ("logit_bias", s.logit_bias)):
        if any(not 0 <= i < limits.vocab_size for i in ids):
            raise InvalidRequest(f"{name} has a token id out of range; this model has ids 0 to {limits.vocab_size - 1}")
    if any(math.isnan(bias) or bias == math.inf for bias in s.logit_bias.values()):
        raise InvalidRequest("logit_bias values must be numbers below infinity")
