"""Tokens and probabilities of given text: /tokenize, /detokenize, /v1/score. Nothing is generated here."""

from __future__ import annotations

import math
from typing import Any

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import Response

from sapwood.runtime.messages import Sampling
from sapwood.runtime.server.chat_prompt import chat_ids
from sapwood.runtime.server.errors import JsonResponse, invalid
from sapwood.runtime.server.fields import read
from sapwood.runtime.server.openapi import body
from sapwood.runtime.server.service import Job, Service, service_of, total, usage_body
from sapwood.runtime.server.sse import while_connected
from sapwood.runtime.server.tools import NO_TOOLS

router = APIRouter()
MAX_PAIRS = 4096


class TokenizeRequest(msgspec.Struct):
    """A prompt, several, or messages."""

    prompt: str | list[str] | None = None
    messages: list[dict[str, Any]] | None = None
    add_special_tokens: bool = True
    model: str | None = None


class DetokenizeRequest(msgspec.Struct):
    """Ids of one text or of several."""

    tokens: list[int | list[int]]
    skip_special_tokens: bool = True
    model: str | None = None


class ScoreRequest(msgspec.Struct):
    """How likely each label token is after query + item."""

    query: str | list[int]
    items: str | list[str | list[int]]
    label_token_ids: list[int]
    apply_softmax: bool = False
    item_first: bool = False
    model: str | None = None


@router.post("/tokenize", openapi_extra=body(TokenizeRequest))
@router.post("/v1/tokenize", include_in_schema=False)
async def tokenize(request: Request) -> Response:
    """Ids of a text."""
    fields = await read(request, msgspec.json.Decoder(TokenizeRequest))
    service = service_of(request)
    length = {"max_model_len": service.info.context_length}
    if fields.messages is not None:
        ids, _ = chat_ids(service, fields.messages, NO_TOOLS, {})
        return JsonResponse({"tokens": ids, "count": len(ids), **length})
    if fields.prompt is None:
        raise invalid("send prompt or messages", "prompt")
    tokenizer = service.tokenizer
    bos = fields.add_special_tokens
    texts = [fields.prompt] if isinstance(fields.prompt, str) else fields.prompt
    lists = [tokenizer.encode(text, special=True, bos=bos) for text in texts]
    counts = [len(ids) for ids in lists]
    if isinstance(fields.prompt, str):
        return JsonResponse({"tokens": lists[0], "count": counts[0], **length})
    return JsonResponse({"tokens": lists, "count": counts, **length})


@router.post("/detokenize", openapi_extra=body(DetokenizeRequest))
@router.post("/v1/detokenize", include_in_schema=False)
async def detokenize(request: Request) -> Response:
    """Text of ids."""
    fields = await read(request, msgspec.json.Decoder(DetokenizeRequest))
    service = service_of(request)
    flat = [item for item in fields.tokens if isinstance(item, int)]
    if flat and len(flat) < len(fields.tokens):
        raise invalid("tokens mixes ids and lists of ids; send one list, or a list of lists", "tokens")
    lists = [item for item in fields.tokens if isinstance(item, list)] or [flat]
    for ids in lists:
        if ids and not 0 <= min(ids) <= max(ids) < service.info.vocab_size:
            raise invalid(f"token ids must be between 0 and {service.info.vocab_size - 1}", "tokens")
    texts = [service.tokenizer.decode(ids, skip_special=fields.skip_special_tokens) for ids in lists]
    return JsonResponse({"text": texts[0] if flat or not fields.tokens else texts})


@router.post("/v1/score", openapi_extra=body(ScoreRequest))
async def score(request: Request) -> Response:
    """The probability of each label token after each item, without generating."""
    fields = await read(request, msgspec.json.Decoder(ScoreRequest))
    service = service_of(request)
    items: list[str | list[int]] = [fields.items] if isinstance(fields.items, str) else fields.items
    if not items or not fields.label_token_ids:
        raise invalid("score needs at least one item and one label_token_id", "items")
    if len(items) * len(fields.label_token_ids) > MAX_PAIRS:
        raise invalid(f"items times labels may be at most {MAX_PAIRS}; send fewer at once", "items")
    prompts = [_joined(service, fields, item) for item in items]
    jobs = [_scoring(service, ids, label) for ids in prompts for label in fields.label_token_ids]
    results = await while_connected(request, service.complete_all(jobs))
    logprobs = [result.prompt_logprobs[-1].logprob for result in results]
    width = len(fields.label_token_ids)
    scores = [_scores(logprobs[i : i + width], fields.apply_softmax) for i in range(0, len(logprobs), width)]
    usage = usage_body(total([result.usage for result in results], prompts=len(prompts)))
    return JsonResponse({"object": "scoring", "model": service.model, "scores": scores, "usage": usage})


def _joined(service: Service, fields: ScoreRequest, item: str | list[int]) -> list[int]:
    if isinstance(fields.query, str) != isinstance(item, str):
        raise invalid("query and items must both be texts or both be ids", "items")
    first, second = (item, fields.query) if fields.item_first else (fields.query, item)
    if isinstance(first, str):
        assert isinstance(second, str)
        return service.encode_prompt(first + second, "items")
    assert isinstance(second, list)
    return [*first, *second]


def _scoring(service: Service, ids: list[int], label: int) -> Job:
    whole = [*ids, label]
    service.check_prompt(ids, "items")
    service.check_prompt(whole, "label_token_ids")
    return Job(whole, Sampling(max_tokens=0, temperature=0.0, prompt_logprobs=0, prompt_logprobs_start=len(ids)))


def _scores(logprobs: list[float | None], softmax: bool) -> list[float]:
    probabilities = [0.0 if value is None else math.exp(value) for value in logprobs]
    whole = sum(probabilities)
    return [value / whole for value in probabilities] if softmax and whole else probabilities
