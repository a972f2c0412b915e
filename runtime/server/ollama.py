"""/api/...: Ollama's API, as newline-delimited JSON, with `format` and `seed` honoured."""

from __future__ import annotations

import time
from contextlib import aclosing
from datetime import datetime, timezone
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import Response

import sapwood
from sapwood.errors import SapwoodError
from sapwood.runtime.messages import Usage
from sapwood.runtime.server.chat_fields import Chat, ChatRequest, prepare
from sapwood.runtime.server.embeddings import vectors_of
from sapwood.runtime.server.errors import ApiError, JsonResponse, invalid, refusal_of
from sapwood.runtime.server.fields import GenerationFields, grammar_of, read, sampling_of
from sapwood.runtime.server.openai_chat import message_of
from sapwood.runtime.server.openai_completions import prompts_of
from sapwood.runtime.server.openapi import body
from sapwood.runtime.server.reader import Plain, Reader
from sapwood.runtime.server.service import Job, Service, service_of
from sapwood.runtime.server.sse import Events, encode, stream, while_connected
from sapwood.runtime.server.tools import Tool

router = APIRouter(prefix="/api")
DEFAULT_MAX_TOKENS = 2048
NDJSON = "application/x-ndjson"


class Options(msgspec.Struct):
    """`options`; names that we don't know are ignored, as Ollama does."""

    num_predict: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    repeat_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None


class OllamaRequest(msgspec.Struct, kw_only=True):
    """What both calls share."""

    model: str | None = None
    stream: bool | None = None
    format: str | dict[str, Any] | None = None
    options: Options | None = None
    think: bool | str | None = None
    keep_alive: Any = None


class OllamaChat(OllamaRequest, kw_only=True):
    """The body of /api/chat."""

    messages: list[dict[str, Any]]
    tools: list[Tool] | None = None


class OllamaGenerate(OllamaRequest, kw_only=True):
    """The body of /api/generate."""

    prompt: str = ""
    system: str | None = None
    raw: bool | None = None
    suffix: str | None = None
    images: list[str] | None = None


class EmbedRequest(msgspec.Struct):
    """The body of /api/embed."""

    input: str | list[str]
    model: str | None = None
    dimensions: Annotated[int, msgspec.Meta(ge=1)] | None = None


class ShowRequest(msgspec.Struct):
    """The body of /api/show."""

    model: str | None = None
    name: str | None = None


@router.post("/chat", openapi_extra=body(OllamaChat))
async def chat(request: Request) -> Response:
    """Answer a conversation."""
    fields = await read(request, msgspec.json.Decoder(OllamaChat))
    service = service_of(request)
    prepared = _chat(service, fields, fields.messages, fields.tools)
    return await _answer(request, fields, prepared.jobs[0], prepared.reader(), "message")


@router.post("/generate", openapi_extra=body(OllamaGenerate))
async def generate(request: Request) -> Response:
    """Answer a prompt; with `raw`, continue it as it is."""
    fields = await read(request, msgspec.json.Decoder(OllamaGenerate))
    if fields.images or fields.suffix:
        raise invalid("images and suffix are not supported; leave them out", "images" if fields.images else "suffix")
    service = service_of(request)
    if fields.raw:
        ids = service.encode_prompt(fields.prompt, "prompt")
        service.check_prompt(ids, "prompt")
        generation = GenerationFields(**_generation(fields))
        room = service.room(ids, generation.max_tokens)
        sampling = sampling_of(generation, max_tokens=room, grammar=grammar_of(generation))
        return await _answer(request, fields, service.job(ids, sampling, generation), Plain(), "response")
    turns = [{"role": "system", "content": fields.system}] if fields.system else []
    prepared = _chat(service, fields, [*turns, {"role": "user", "content": fields.prompt}], None)
    return await _answer(request, fields, prepared.jobs[0], prepared.reader(), "response")


def _chat(service: Service, fields: OllamaRequest, messages: list[dict[str, Any]], tools: list[Tool] | None) -> Chat:
    template = {"enable_thinking": bool(fields.think)} if fields.think is not None else None
    return prepare(
        service, ChatRequest(messages=messages, tools=tools, chat_template_kwargs=template, **_generation(fields))
    )


def _generation(fields: OllamaRequest) -> dict[str, Any]:
    """Options in OpenAI's names."""
    options = fields.options or Options()
    limit = DEFAULT_MAX_TOKENS if options.num_predict is None else options.num_predict
    form: dict[str, Any] | None = None
    if fields.format == "json":
        form = {"type": "json_object"}
    elif isinstance(fields.format, dict):
        form = {"type": "json_schema", "json_schema": {"name": "format", "schema": fields.format}}
    elif fields.format:
        raise invalid(f"format is {fields.format!r}; it must be 'json' or a JSON Schema", "format")
    generation = {
        "max_tokens": limit if limit >= 0 else None,
        "temperature": 0.8 if options.temperature is None else options.temperature,
        "top_p": options.top_p,
        "top_k": options.top_k,
        "min_p": options.min_p,
        "seed": options.seed,
        "stop": options.stop,
        "repetition_penalty": options.repeat_penalty,
        "presence_penalty": options.presence_penalty,
        "frequency_penalty": options.frequency_penalty,
        "response_format": form,
    }
    try:
        msgspec.convert({k: v for k, v in generation.items() if v is not None}, GenerationFields)
    except msgspec.ValidationError as error:
        raise invalid(f"options: {error}", "options") from None
    return generation


async def _answer(request: Request, fields: OllamaRequest, job: Job, reader: Reader, key: str) -> Response:
    service = service_of(request)
    if fields.stream is not False:
        events = _lines(service, job, reader, key)
        return await stream(request, events, on_error=_error_line, media_type=NDJSON)
    started = time.perf_counter_ns()
    result = await while_connected(request, service.complete(job))
    message = _message(message_of(reader, result.text))
    last = _last(service, result.finish_reason, result.usage, started)
    return JsonResponse({**last, key: message if key == "message" else message["content"]})


async def _lines(service: Service, job: Job, reader: Reader, key: str) -> Events:
    started = time.perf_counter_ns()
    calls: list[tuple[str, list[str]]] = []  # name, pieces of the arguments
    async with aclosing(service.stream(job)) as chunks:
        async for chunk in chunks:
            parts = reader.push(chunk.text)
            if chunk.finish_reason is not None:
                parts += reader.finish()
            for part in parts:
                if part.kind in ("content", "reasoning"):
                    name = "content" if part.kind == "content" else "thinking"
                    said = {"role": "assistant", "content": "", name: part.text}
                    yield _line({**_head(service), key: said if key == "message" else said["content"], "done": False})
                elif part.kind == "call":
                    calls.append((part.text, []))
                else:
                    calls[-1][1].append(part.text)
            if chunk.finish_reason is not None:
                for called, pieces in calls:
                    calling = {"role": "assistant", "content": "", "tool_calls": [_call(called, "".join(pieces))]}
                    yield _line({**_head(service), "message": calling, "done": False})
                last = _last(service, chunk.finish_reason, chunk.usage, started)
                yield _line({**last, key: {"role": "assistant", "content": ""} if key == "message" else ""})


def _call(name: str, arguments: str) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(arguments)
    except msgspec.DecodeError:  # cut off by num_predict
        value = {}
    return {"function": {"name": name, "arguments": value}}


def _message(message: dict[str, Any]) -> dict[str, Any]:
    said: dict[str, Any] = {"role": "assistant", "content": message["content"] or ""}
    if message.get("reasoning_content"):
        said["thinking"] = message["reasoning_content"]
    if message.get("tool_calls"):
        functions = [call["function"] for call in message["tool_calls"]]
        said["tool_calls"] = [_call(f["name"], f["arguments"]) for f in functions]
    return said


def _head(service: Service) -> dict[str, Any]:
    return {"model": service.model, "created_at": datetime.now(timezone.utc).isoformat()}


def _last(service: Service, reason: str | None, usage: Usage | None, started: int) -> dict[str, Any]:
    usage = usage or Usage(0, 0, 0)
    return {
        **_head(service),
        "done": True,
        "done_reason": reason,
        "total_duration": time.perf_counter_ns() - started,
        "prompt_eval_count": usage.prompt_tokens,
        "eval_count": usage.completion_tokens,
    }


def _line(data: Any) -> bytes:
    return encode(data) + b"\n"


def _error_line(error: SapwoodError) -> bytes:
    return _line({"error": refusal_of(error).message})


@router.post("/embed", openapi_extra=body(EmbedRequest))
async def embed(request: Request) -> Response:
    """Vectors of texts."""
    fields = await read(request, msgspec.json.Decoder(EmbedRequest))
    service = service_of(request)
    texts = [fields.input] if isinstance(fields.input, str) else fields.input
    prompts = prompts_of([*texts], service, "input")
    vectors, usage = await while_connected(request, vectors_of(service, prompts, fields.dimensions))
    rows = [vector.tolist() for vector in vectors]
    return JsonResponse({"model": service.model, "embeddings": rows, "prompt_eval_count": usage.prompt_tokens})


@router.get("/tags")
async def tags(request: Request) -> Response:
    """The model that is served, in a list."""
    return JsonResponse({"models": [_card(service_of(request))]})


@router.get("/ps")
async def running(request: Request) -> Response:
    """The same: it is loaded."""
    return JsonResponse({"models": [_card(service_of(request))]})


@router.get("/version")
async def version() -> Response:
    """Sapwood's version."""
    return JsonResponse({"version": sapwood.__version__})


@router.post("/show", openapi_extra=body(ShowRequest))
async def show(request: Request) -> Response:
    """What the model is."""
    fields = await read(request, msgspec.json.Decoder(ShowRequest))
    service = service_of(request)
    asked = fields.model or fields.name or service.model
    if asked.removesuffix(":latest") != service.model:
        raise ApiError(404, f"the model {asked!r} is not served here; {service.model!r} is", param="model")
    info = service.info
    family = info.architecture
    return JsonResponse(
        {
            "template": service.tokenizer.chat_template or "",
            "details": _details(service),
            "model_info": {
                "general.architecture": family,
                f"{family}.context_length": info.context_length,
                f"{family}.vocab_size": info.vocab_size,
            },
            "capabilities": ["completion", "tools"],
        }
    )


def _card(service: Service) -> dict[str, Any]:
    modified = datetime.fromtimestamp(service.started, timezone.utc).isoformat()
    digest = service.info.fingerprint
    names: dict[str, Any] = {"name": service.model, "model": service.model}
    return {**names, "modified_at": modified, "size": 0, "digest": digest, "details": _details(service)}


def _details(service: Service) -> dict[str, Any]:
    family = service.info.architecture
    return {"format": "gguf", "family": family, "families": [family], "parameter_size": "", "quantization_level": ""}
