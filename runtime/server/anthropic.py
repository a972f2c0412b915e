"""POST /v1/messages: Anthropic's API, translated to a chat request and back."""

from __future__ import annotations

import json
from contextlib import aclosing
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import Response

from sapwood.errors import SapwoodError
from sapwood.runtime.messages import Usage
from sapwood.runtime.server.chat_fields import Chat, ChatRequest, prepare
from sapwood.runtime.server.errors import JsonResponse, Refusal, invalid, refusal_of
from sapwood.runtime.server.fields import Count, Fraction, TopK, read
from sapwood.runtime.server.openai_chat import message_of
from sapwood.runtime.server.openapi import body
from sapwood.runtime.server.reader import Part
from sapwood.runtime.server.service import Service, new_id, service_of
from sapwood.runtime.server.sse import Events, named_event, stream, while_connected
from sapwood.runtime.server.tools import Function, Tool

router = APIRouter()

REASONS = {"stop": "end_turn", "length": "max_tokens", None: None}
TYPES = {
    429: "rate_limit_error",
    503: "overloaded_error",
    500: "api_error",
    404: "not_found_error",
    413: "request_too_large",
}


class AnthropicTool(msgspec.Struct):
    """One tool."""

    name: str
    description: str | None = None
    input_schema: dict[str, Any] | None = None


class CountRequest(msgspec.Struct, kw_only=True):
    """What counting tokens needs."""

    messages: list[dict[str, Any]]
    model: str | None = None
    system: str | list[dict[str, Any]] | None = None
    tools: list[AnthropicTool] | None = None
    tool_choice: dict[str, Any] | None = None
    thinking: dict[str, Any] | None = None


class MessagesRequest(CountRequest, kw_only=True):
    """The body."""

    max_tokens: Count
    stream: bool | None = None
    stop_sequences: list[str] | None = None
    temperature: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    top_p: Fraction | None = None
    top_k: TopK | None = None
    metadata: dict[str, Any] | None = None


@router.post("/v1/messages", openapi_extra=body(MessagesRequest))
async def messages(request: Request) -> Response:
    """Answer a conversation."""
    fields = await read(request, msgspec.json.Decoder(MessagesRequest))
    service = service_of(request)
    chat = prepare(service, to_chat(fields))
    if fields.stream:
        return await stream(request, _events(service, chat), on_error=error_event)
    (result,) = await while_connected(request, service.complete_all(chat.jobs))
    message = message_of(chat.reader(), result.text)
    return JsonResponse(
        {
            **_head(service),
            "content": _blocks(message),
            **_stopped(result.finish_reason, result.matched, bool(message.get("tool_calls"))),
            "usage": _usage(result.usage),
        }
    )


@router.post("/v1/messages/count_tokens", openapi_extra=body(CountRequest))
async def count_tokens(request: Request) -> Response:
    """How many tokens a conversation's prompt has."""
    fields = await read(request, msgspec.json.Decoder(CountRequest))
    chat = prepare(service_of(request), to_chat(fields))
    return JsonResponse({"input_tokens": len(chat.jobs[0].ids)})


def error_body(refusal: Refusal) -> dict[str, Any]:
    """Anthropic's error envelope."""
    kind = TYPES.get(refusal.status, refusal.type)
    return {"type": "error", "error": {"type": kind, "message": refusal.message}}


def error_event(error: SapwoodError) -> bytes:
    """An error after the stream has begun."""
    return named_event("error", error_body(refusal_of(error)))


def to_chat(fields: CountRequest) -> ChatRequest:
    """The same request in OpenAI's words."""
    system = fields.system if isinstance(fields.system, str) else _text(fields.system or [])
    turns: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
    for i, message in enumerate(fields.messages):
        turns += _turns(message, f"messages[{i}]")
    tools = [Tool(Function(t.name, t.description, t.input_schema)) for t in fields.tools or []]
    choice: dict[str, Any] = fields.tool_choice or {"type": "auto"}
    named = {"type": "function", "function": {"name": choice.get("name")}}
    choices: dict[str, str | dict[str, Any]] = {"auto": "auto", "any": "required", "none": "none", "tool": named}
    kind = str(choice.get("type"))
    if kind not in choices:
        raise invalid(f"tool_choice.type is {kind!r}; it must be auto, any, tool or none", "tool_choice")
    thinking = {"enable_thinking": fields.thinking.get("type") == "enabled"} if fields.thinking else None
    chat = ChatRequest(
        messages=turns,
        tools=tools or None,
        tool_choice=choices[kind] if tools else None,
        parallel_tool_calls=not choice.get("disable_parallel_tool_use", False),
        chat_template_kwargs=thinking,
    )
    if isinstance(fields, MessagesRequest):
        chat.max_tokens = fields.max_tokens
        chat.stop = fields.stop_sequences
        chat.temperature, chat.top_p, chat.top_k = fields.temperature, fields.top_p, fields.top_k
    return chat


def _turns(message: dict[str, Any], where: str) -> list[dict[str, Any]]:
    """One Anthropic message as OpenAI messages: tool results become messages of their own."""
    content = message.get("content")
    if not isinstance(content, list):
        return [message]
    turns: list[dict[str, Any]] = []
    texts: list[str] = []
    calls: list[dict[str, Any]] = []
    for block in content:
        kind = block.get("type") if isinstance(block, dict) else None
        if kind == "text":
            texts.append(str(block.get("text", "")))
        elif kind == "tool_use":
            function = {"name": block.get("name"), "arguments": json.dumps(block.get("input") or {})}
            calls.append({"id": block.get("id"), "type": "function", "function": function})
        elif kind == "tool_result":
            inner = block.get("content")
            turn = {"role": "tool", "tool_call_id": block.get("tool_use_id")}
            turns.append({**turn, "content": _text(inner) if isinstance(inner, list) else str(inner or "")})
        elif kind not in ("thinking", "redacted_thinking"):
            raise invalid(f"{where} has a block of type {kind!r}; this model reads text and tool blocks only", where)
    if texts or calls or not turns:
        turn = {"role": message.get("role"), "content": "".join(texts)}
        turns.append({**turn, "tool_calls": calls} if calls else turn)
    return turns


def _text(blocks: list[dict[str, Any]]) -> str:
    return "".join(str(block.get("text", "")) for block in blocks if isinstance(block, dict))


def _head(service: Service) -> dict[str, Any]:
    return {"id": new_id("msg_"), "type": "message", "role": "assistant", "model": service.model}


def _usage(usage: Usage | None) -> dict[str, Any]:
    usage = usage or Usage(0, 0, 0)
    return {
        "input_tokens": usage.prompt_tokens - usage.cached_tokens,
        "cache_read_input_tokens": usage.cached_tokens,
        "cache_creation_input_tokens": 0,
        "output_tokens": usage.completion_tokens,
    }


def _stopped(reason: str | None, matched: str | int | None, called: bool) -> dict[str, Any]:
    if called and reason == "stop":
        return {"stop_reason": "tool_use", "stop_sequence": None}
    if reason == "stop" and isinstance(matched, str):
        return {"stop_reason": "stop_sequence", "stop_sequence": matched}
    return {"stop_reason": REASONS[reason], "stop_sequence": None}


def _blocks(message: dict[str, Any]) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    if message.get("reasoning_content"):
        blocks.append({"type": "thinking", "thinking": message["reasoning_content"], "signature": ""})
    if message.get("content"):
        blocks.append({"type": "text", "text": message["content"]})
    for call in message.get("tool_calls", ()):
        function = call["function"]
        arguments = _object(function["arguments"])
        blocks.append({"type": "tool_use", "id": call["id"], "name": function["name"], "input": arguments})
    return blocks


def _object(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:  # cut off by max_tokens
        return {}


class BlockWriter:
    """Numbers the content blocks of a stream; a new kind of part closes one and opens the next."""

    def __init__(self) -> None:
        self.index = -1
        self.called = False
        self._kind: str | None = None

    def push(self, part: Part) -> bytes:
        """The events for one part."""
        kind = "call" if part.kind == "arguments" else part.kind
        data = b""
        if kind != self._kind or part.kind == "call":
            data = self.close() + self._open(kind, part.text)
        if part.kind != "call":
            data += self._delta(part)
        return data

    def close(self) -> bytes:
        """End the open block, if any."""
        if self._kind is None:
            return b""
        self._kind = None
        return named_event("content_block_stop", {"type": "content_block_stop", "index": self.index})

    def _open(self, kind: str, name: str) -> bytes:
        self.index += 1
        self._kind = kind
        self.called = self.called or kind == "call"
        blocks: dict[str, dict[str, Any]] = {
            "content": {"type": "text", "text": ""},
            "reasoning": {"type": "thinking", "thinking": "", "signature": ""},
            "call": {"type": "tool_use", "id": new_id("toolu_"), "name": name, "input": {}},
        }
        start = {"type": "content_block_start", "index": self.index, "content_block": blocks[kind]}
        return named_event("content_block_start", start)

    def _delta(self, part: Part) -> bytes:
        deltas = {
            "content": {"type": "text_delta", "text": part.text},
            "reasoning": {"type": "thinking_delta", "thinking": part.text},
            "arguments": {"type": "input_json_delta", "partial_json": part.text},
        }
        delta = {"type": "content_block_delta", "index": self.index, "delta": deltas[part.kind]}
        return named_event("content_block_delta", delta)


async def _events(service: Service, chat: Chat) -> Events:
    reader, writer = chat.reader(), BlockWriter()
    async with aclosing(service.stream(chat.jobs[0])) as chunks:
        begun = False
        async for chunk in chunks:
            if not begun:
                usage = _usage(Usage(len(chat.jobs[0].ids), 0, 0))
                opening = {**_head(service), "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
                yield named_event("message_start", {"type": "message_start", "message": opening})
                begun = True
            parts = reader.push(chunk.text)
            if chunk.finish_reason is not None:
                parts += reader.finish()
            data = b"".join(map(writer.push, parts))
            if data:
                yield data
            if chunk.finish_reason is not None:
                delta = _stopped(chunk.finish_reason, chunk.matched, writer.called)
                last = {"type": "message_delta", "delta": delta, "usage": _usage(chunk.usage)}
                yield writer.close() + named_event("message_delta", last)
    yield named_event("message_stop", {"type": "message_stop"})
