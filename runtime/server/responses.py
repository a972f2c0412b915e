"""/v1/responses: OpenAI's responses API, translated to a chat request; answers are kept in memory for a while."""

from __future__ import annotations

import asyncio
import json
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import Response

from sapwood.errors import SapwoodError
from sapwood.runtime.messages import Usage
from sapwood.runtime.server.chat_fields import ChatRequest, prepare
from sapwood.runtime.server.errors import ApiError, JsonResponse, invalid, refusal_of
from sapwood.runtime.server.fields import GenerationFields, read
from sapwood.runtime.server.openapi import body
from sapwood.runtime.server.reader import num_reasoning
from sapwood.runtime.server.response_events import ResponseWriter
from sapwood.runtime.server.service import Service, new_id, service_of
from sapwood.runtime.server.sse import Events, stream, while_connected
from sapwood.runtime.server.tools import Function, Tool

router = APIRouter()
MAX_KEPT = 1000


class ResponseTool(msgspec.Struct):
    """A tool: flat, unlike chat's."""

    name: str
    type: Literal["function"] = "function"
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class ResponseRequest(GenerationFields, kw_only=True):
    """The body."""

    input: str | list[dict[str, Any]]
    instructions: str | None = None
    max_output_tokens: int | None = None
    text: dict[str, Any] | None = None
    tools: list[ResponseTool] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    reasoning: dict[str, Any] | None = None
    previous_response_id: str | None = None
    store: bool | None = None
    background: bool | None = None
    metadata: dict[str, Any] | None = None


@dataclass
class Kept:
    """A response that can be asked for later."""

    body: dict[str, Any]
    turns: list[dict[str, Any]]  # the conversation up to and with its answer
    task: asyncio.Task[None] | None = None


@dataclass
class ResponseStore:
    """The last responses, in memory."""

    kept: OrderedDict[str, Kept] = field(default_factory=OrderedDict)

    def get(self, id: str) -> Kept:
        """A response by id; ApiError 404 if it is unknown or was forgotten."""
        if id not in self.kept:
            raise ApiError(404, f"there is no response {id!r}; the last {MAX_KEPT} are kept until the server ends")
        return self.kept[id]

    def put(self, id: str, kept: Kept) -> None:
        """Keep one; the oldest finished ones go."""
        self.kept[id] = kept
        while len(self.kept) > MAX_KEPT:
            self.kept.popitem(last=False)


@router.post("/v1/responses", openapi_extra=body(ResponseRequest))
async def create(request: Request) -> Response:
    """Answer an input; with `background` at once with an id to ask for."""
    fields = await read(request, msgspec.json.Decoder(ResponseRequest))
    run = Run(service_of(request), request.app.state.responses, fields)
    if fields.background:
        if fields.stream or fields.store is False:
            raise invalid("background can't be combined with stream or store: false", "background")
        return JsonResponse(run.in_background())
    if fields.stream:
        return await stream(request, run.events())
    await while_connected(request, run.finish())
    return JsonResponse(run.body)


@router.get("/v1/responses/{id}")
async def retrieve(request: Request, id: str) -> Response:
    """A response by id."""
    return JsonResponse(request.app.state.responses.get(id).body)


@router.delete("/v1/responses/{id}")
async def delete(request: Request, id: str) -> Response:
    """Forget a response."""
    store: ResponseStore = request.app.state.responses
    store.get(id)
    del store.kept[id]
    return JsonResponse({"id": id, "object": "response", "deleted": True})


@router.post("/v1/responses/{id}/cancel")
async def cancel(request: Request, id: str) -> Response:
    """End a response that runs in the background."""
    kept: Kept = request.app.state.responses.get(id)
    if kept.task is None:
        raise invalid("only a response made with background: true can be cancelled")
    if not kept.task.done():
        kept.task.cancel()
        await asyncio.gather(kept.task, return_exceptions=True)
    return JsonResponse(kept.body)


class Run:
    """One response from request to answer."""

    def __init__(self, service: Service, store: ResponseStore, fields: ResponseRequest) -> None:
        self.service = service
        self.store = store
        self.fields = fields
        before = store.get(fields.previous_response_id).turns if fields.previous_response_id else []
        self.turns = [*before, *turns_of(fields.input)]
        self.chat = prepare(service, self._chat())
        self.body = self._opening()
        self.writer = ResponseWriter(self.body)

    def _chat(self) -> ChatRequest:
        fields = self.fields
        system = [{"role": "system", "content": fields.instructions}] if fields.instructions else []
        effort = (fields.reasoning or {}).get("effort")
        # What both bodies have is taken over; what the responses API names differently is set by hand.
        shared = {name: getattr(fields, name) for name in GenerationFields.__struct_fields__}
        return ChatRequest(
            **shared
            | {
                "messages": [*system, *self.turns],
                "max_tokens": fields.max_output_tokens,
                "response_format": format_of(fields.text) or fields.response_format,
                "tools": [Tool(Function(t.name, t.description, t.parameters)) for t in fields.tools or []] or None,
                "tool_choice": fields.tool_choice,
                "parallel_tool_calls": fields.parallel_tool_calls,
                "reasoning_effort": effort,
            }
        )

    def _opening(self) -> dict[str, Any]:
        fields = self.fields
        return {
            "id": new_id("resp_"),
            "object": "response",
            "created_at": int(time.time()),
            "status": "in_progress",
            "model": self.service.model,
            "output": [],
            "error": None,
            "incomplete_details": None,
            "instructions": fields.instructions,
            "max_output_tokens": fields.max_output_tokens,
            "metadata": fields.metadata or {},
            "parallel_tool_calls": fields.parallel_tool_calls is not False,
            "previous_response_id": fields.previous_response_id,
            "temperature": 1.0 if fields.temperature is None else fields.temperature,
            "text": fields.text or {"format": {"type": "text"}},
            "tool_choice": fields.tool_choice or "auto",
            "tools": msgspec.to_builtins(fields.tools or []),
            "top_p": 1.0 if fields.top_p is None else fields.top_p,
            "background": bool(fields.background),
            "usage": None,
        }

    async def events(self) -> Events:
        """The events of a streamed response."""
        reader = self.chat.reader()
        ids: list[int] = []
        begun = False
        async for chunk in self.service.stream(self.chat.jobs[0]):
            if not begun:
                yield self.writer.begin()
                begun = True
            ids += chunk.ids
            parts = reader.push(chunk.text)
            if chunk.finish_reason is not None:
                parts += reader.finish()
            data = b"".join(map(self.writer.push, parts))
            if chunk.finish_reason is not None:
                data += self.writer.close()
                count = num_reasoning(reader, ids, self.service.tokenizer.token_bytes)
                self._end(chunk.finish_reason, chunk.usage, count)
                data += self.writer.end()
            if data:
                yield data

    async def finish(self) -> None:
        """Run to the end; the body then holds the answer."""
        async for _ in self.events():
            pass

    def in_background(self) -> dict[str, Any]:
        """Start, and return the body as it is now."""
        kept = Kept(self.body, self.turns)
        self.store.put(self.body["id"], kept)
        kept.task = asyncio.ensure_future(self._watched())
        return dict(self.body)

    async def _watched(self) -> None:
        try:
            await self.finish()
        except SapwoodError as error:
            refusal = refusal_of(error)
            self.body.update(status="failed", error={"code": refusal.code or refusal.type, "message": str(error)})
        except asyncio.CancelledError:
            self.body["status"] = "cancelled"

    def _end(self, reason: str, usage: Usage | None, num_reasoning: int) -> None:
        self.body["status"] = "completed" if reason == "stop" else "incomplete"
        if reason == "length":
            self.body["incomplete_details"] = {"reason": "max_output_tokens"}
        usage = usage or Usage(0, 0, 0)
        self.body["usage"] = {
            "input_tokens": usage.prompt_tokens,
            "input_tokens_details": {"cached_tokens": usage.cached_tokens},
            "output_tokens": usage.completion_tokens,
            "output_tokens_details": {"reasoning_tokens": num_reasoning},
            "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        }
        self.turns = [*self.turns, *turns_of(self.body["output"])]
        if self.fields.store is not False:
            kept = self.store.kept.get(self.body["id"])
            self.store.put(self.body["id"], Kept(self.body, self.turns, kept.task if kept else None))


def format_of(text: dict[str, Any] | None) -> dict[str, Any] | None:
    """`text.format` as chat's response_format."""
    form = (text or {}).get("format")
    if not isinstance(form, dict):
        return None
    if form.get("type") == "json_schema":
        return {"type": "json_schema", "json_schema": {"schema": form.get("schema")}}
    return form


def turns_of(items: str | list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Input or output items as chat messages."""
    if isinstance(items, str):
        return [{"role": "user", "content": items}]
    turns: list[dict[str, Any]] = []
    for i, item in enumerate(items):
        kind = item.get("type", "message")
        if kind == "message":
            turns.append({"role": item.get("role"), "content": item.get("content")})
        elif kind == "function_call":
            function = {"name": item.get("name"), "arguments": item.get("arguments")}
            call = {"id": item.get("call_id"), "type": "function", "function": function}
            turns.append({"role": "assistant", "content": "", "tool_calls": [call]})
        elif kind == "function_call_output":
            output = item.get("output")
            text = output if isinstance(output, str) else json.dumps(output)
            turns.append({"role": "tool", "tool_call_id": item.get("call_id"), "content": text})
        elif kind != "reasoning":
            raise invalid(
                f"input[{i}].type is {kind!r}; known are message, function_call, function_call_output", "input"
            )
    return turns
