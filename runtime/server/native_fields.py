"""The body of SGLang's /generate: names, defaults and refusals as its clients expect them."""

from __future__ import annotations

from typing import Any

import msgspec

from sapwood.runtime.messages import GrammarSpec, Sampling
from sapwood.runtime.server.errors import invalid
from sapwood.runtime.server.fields import GREEDY_BELOW, GenerationFields, grammar_of, stops_of

DEFAULT_MAX_TOKENS = 128


class SamplingParams(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`sampling_params`. Null means unset, as do empty texts and lists; an unknown name is refused."""

    max_new_tokens: int | None = None
    min_new_tokens: int | None = None
    n: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    stop_regex: str | list[str] | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: dict[int, float] | None = None
    sampling_seed: int | None = None
    ignore_eos: bool | None = None
    skip_special_tokens: bool | None = None
    spaces_between_special_tokens: bool | None = None
    no_stop_trim: bool | None = None
    stream_interval: int | None = None
    custom_params: dict[str, Any] | None = None
    json_schema: str | dict[str, Any] | None = None
    regex: str | None = None
    ebnf: str | None = None
    lark: str | None = None
    structural_tag: str | dict[str, Any] | None = None
    jump: bool | None = None

    def grammar(self) -> GrammarSpec | None:
        """The one grammar asked for."""
        return grammar_of(
            GenerationFields(
                json_schema=self.json_schema,
                regex=self.regex,
                ebnf=self.ebnf,
                lark=self.lark,
                structural_tag=self.structural_tag,
            )
        )


class GenerateRequest(msgspec.Struct, kw_only=True):
    """The body. Unknown names beside these are ignored, as SGLang does."""

    text: str | list[str] | None = None
    input_ids: list[int | list[int]] | None = None
    sampling_params: SamplingParams | list[SamplingParams] | None = None
    rid: str | list[str] | None = None
    return_logprob: bool | list[bool] | None = None
    logprob_start_len: int | list[int] | None = None
    top_logprobs_num: int | list[int] | None = None
    return_text_in_logprobs: bool | None = None
    return_hidden_states: bool | None = None
    return_prompt_token_ids: bool | None = None
    token_ids_logprob: Any = None
    stream: bool | None = None
    priority: int | None = None
    cache_salt: str | None = None
    extra_key: str | None = None
    image_data: Any = None
    video_data: Any = None
    audio_data: Any = None
    input_embeds: Any = None
    lora_path: Any = None


def sampling_of(params: SamplingParams, *, logprobs: int | None, prompt_start: int | None, room: int) -> Sampling:
    """The backend's record. `prompt_start`: the first prompt position that gets a logprob, None for none."""
    if params.stop_regex:
        raise invalid("stop_regex is not supported; use stop, or regex to shape the whole text", "stop_regex")
    asked = DEFAULT_MAX_TOKENS if params.max_new_tokens is None else params.max_new_tokens
    minimum = params.min_new_tokens or 0
    if asked < 0:
        raise invalid(f"max_new_tokens must be at least 0, got {asked}", "max_new_tokens")
    if not 0 <= minimum <= asked:
        raise invalid(f"min_new_tokens must be between 0 and max_new_tokens, got {minimum}", "min_new_tokens")
    temperature = 1.0 if params.temperature is None else params.temperature
    checks = {
        "temperature": (temperature, 0.0, float("inf")),
        "top_p": (_or(params.top_p, 1.0), 0.0, 1.0),
        "min_p": (_or(params.min_p, 0.0), 0.0, 1.0),
        "frequency_penalty": (_or(params.frequency_penalty, 0.0), -2.0, 2.0),
        "presence_penalty": (_or(params.presence_penalty, 0.0), -2.0, 2.0),
        "repetition_penalty": (_or(params.repetition_penalty, 1.0), 1e-6, 2.0),
    }
    for name, (value, least, most) in checks.items():
        if not least <= value <= most:
            raise invalid(f"{name} must be between {least:g} and {most:g}, got {value}", name)
    return Sampling(
        max_tokens=min(asked, room),
        min_tokens=minimum,
        temperature=0.0 if temperature < GREEDY_BELOW else temperature,
        top_k=max(params.top_k or 0, 0),
        top_p=checks["top_p"][0],
        min_p=checks["min_p"][0],
        repetition_penalty=checks["repetition_penalty"][0],
        presence_penalty=checks["presence_penalty"][0],
        frequency_penalty=checks["frequency_penalty"][0],
        logit_bias=params.logit_bias or {},
        seed=None if params.sampling_seed is None else params.sampling_seed % 2**64,
        stop=stops_of(params.stop),
        stop_token_ids=params.stop_token_ids or [],
        ignore_eos=bool(params.ignore_eos),
        logprobs=logprobs,
        prompt_logprobs=logprobs if prompt_start is not None else None,
        prompt_logprobs_start=prompt_start or 0,
        grammar=params.grammar(),
        jump=params.jump is not False,
    )


def _or(value: float | None, default: float) -> float:
    return default if value is None else value
