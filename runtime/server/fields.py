"""What every generation request may say about how its text comes about: OpenAI's fields and our extras, one record.

Validation happens once, here, by msgspec; what passes is turned into the backend's `Sampling`.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

import msgspec
from starlette.requests import Request

from sapwood.runtime.messages import GrammarKind, GrammarSpec, Sampling
from sapwood.runtime.server.errors import invalid, of_validation
from sapwood.runtime.server.schemas import closed

T = TypeVar("T")

Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Positive = Annotated[int, msgspec.Meta(ge=1, le=128)]
Fraction = Annotated[float, msgspec.Meta(ge=0, le=1)]
Penalty = Annotated[float, msgspec.Meta(ge=-2, le=2)]
Temperature = Annotated[float, msgspec.Meta(ge=0, le=2)]
Repetition = Annotated[float, msgspec.Meta(gt=0, le=2)]
TopK = Annotated[int, msgspec.Meta(ge=-1, le=2**31 - 1)]
Bias = Annotated[float, msgspec.Meta(ge=-100, le=100)]
Timeout = Annotated[float, msgspec.Meta(gt=0)]
Priority = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]

MAX_STOPS = 32
GREEDY_BELOW = 1e-6
JSON_OBJECT = '{"type":"object"}'


class StreamOptions(msgspec.Struct):
    """`stream_options`: whether the last event carries the usage."""

    include_usage: bool | None = None


class GenerationFields(msgspec.Struct, kw_only=True):
    """Fields that chat and text completions share. None and absent mean the same."""

    model: str | None = None
    n: Positive | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: Count | None = None
    temperature: Temperature | None = None
    top_p: Fraction | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    logit_bias: dict[int, Bias] | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    user: str | None = None
    response_format: dict[str, Any] | None = None
    # Beyond OpenAI; the official client sends them as extra_body.
    top_k: TopK | None = None
    min_p: Fraction | None = None
    min_tokens: Count | None = None
    repetition_penalty: Repetition | None = None
    stop_token_ids: list[Count] | None = None
    ignore_eos: bool | None = None
    regex: str | None = None
    ebnf: str | None = None
    gbnf: str | None = None
    lark: str | None = None
    choices: list[str] | None = None
    json_schema: str | dict[str, Any] | None = None
    structural_tag: str | dict[str, Any] | None = None
    jump: bool | None = None  # False: forced text is sampled like any other
    cache_salt: str | None = None
    priority: Priority | None = None
    timeout: Timeout | None = None

    def include_usage(self) -> bool:
        """Whether a stream ends with its usage."""
        return bool(self.stream_options and self.stream_options.include_usage)


def grammar_of(fields: GenerationFields) -> GrammarSpec | None:
    """The one grammar that the request asks for, from `response_format` or an extra field."""
    found: dict[str, GrammarSpec] = {}
    extras: dict[GrammarKind, Any] = {
        "regex": fields.regex,
        "ebnf": fields.ebnf,
        "gbnf": fields.gbnf,
        "lark": fields.lark,
        "choices": fields.choices,
        "json_schema": fields.json_schema,
        "structural_tag": fields.structural_tag,
    }
    for kind, value in extras.items():
        if value:
            found[kind] = GrammarSpec(kind, value if isinstance(value, str) else _json(value))
    if fields.response_format is not None and (spec := response_format(fields.response_format)):
        found["response_format"] = spec
    if len(found) > 1:
        names = " and ".join(found)
        raise invalid(f"{names} can't be combined: the output follows one grammar; send one of them", next(iter(found)))
    return next(iter(found.values()), None)


def response_format(value: dict[str, Any]) -> GrammarSpec | None:
    """OpenAI's `response_format`, also with SGLang's type structural_tag; None for plain text."""
    kind = value.get("type")
    if kind in ("text", None):
        return None
    if kind == "json_object":
        return GrammarSpec("json_schema", JSON_OBJECT)
    if kind == "json_schema":
        inner = value.get("json_schema")
        schema = inner.get("schema") if isinstance(inner, dict) else None
        if not isinstance(schema, (dict, bool)):
            where = "response_format.json_schema.schema"
            raise invalid(f"{where} is missing; put the JSON Schema there as an object", where)
        return GrammarSpec("json_schema", _json(closed(schema)))
    if kind == "structural_tag":
        return GrammarSpec("structural_tag", _json({k: v for k, v in value.items() if k != "type"}))
    known = "text, json_object, json_schema or structural_tag"
    raise invalid(f"response_format.type is {kind!r}; it must be {known}", "response_format.type")


def sampling_of(
    fields: GenerationFields,
    *,
    max_tokens: int,
    grammar: GrammarSpec | None,
    logprobs: int | None = None,
    prompt_logprobs: int | None = None,
) -> Sampling:
    """The backend's record of how tokens are chosen."""
    temperature = 1.0 if fields.temperature is None else fields.temperature
    return Sampling(
        max_tokens=max_tokens,
        min_tokens=fields.min_tokens or 0,
        temperature=0.0 if temperature < GREEDY_BELOW else temperature,
        top_k=max(fields.top_k or 0, 0),
        top_p=1.0 if fields.top_p is None else fields.top_p,
        min_p=fields.min_p or 0.0,
        repetition_penalty=fields.repetition_penalty or 1.0,
        presence_penalty=fields.presence_penalty or 0.0,
        frequency_penalty=fields.frequency_penalty or 0.0,
        logit_bias=fields.logit_bias or {},
        seed=None if fields.seed is None else fields.seed % 2**64,
        stop=stops_of(fields.stop),
        stop_token_ids=fields.stop_token_ids or [],
        ignore_eos=bool(fields.ignore_eos),
        logprobs=logprobs,
        prompt_logprobs=prompt_logprobs,
        grammar=grammar,
        jump=fields.jump is not False,
    )


def stops_of(stop: str | list[str] | None) -> list[str]:
    """Stop strings as a list, without empty ones."""
    stops = [stop] if isinstance(stop, str) else stop or []
    if len(stops) > MAX_STOPS:
        raise invalid(f"stop has {len(stops)} strings; at most {MAX_STOPS} are possible", "stop")
    return [text for text in stops if text]


def sample(sampling: Sampling, index: int) -> Sampling:
    """The `index`th of n samples: the same request with a seed of its own."""
    if not index or sampling.seed is None:
        return sampling
    return msgspec.structs.replace(sampling, seed=(sampling.seed + index) % 2**64)


async def read(request: Request, decoder: msgspec.json.Decoder[T]) -> T:
    """The body, checked. Raises ApiError with the field's name where something is wrong."""
    return decode(await request.body(), decoder)


def decode(raw: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    """JSON, checked. Raises ApiError with the field's name where something is wrong."""
    try:
        return decoder.decode(raw or b"{}")
    except msgspec.ValidationError as error:
        raise of_validation(error) from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise invalid(f"the body is not valid JSON: {error}") from None


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
