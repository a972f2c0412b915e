"""POST /v1/chat/completions: messages in, a message out, with tools and reasoning told apart."""

from __future__ import annotations

import time
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import Response

from sapwood.runtime.messages import Usage
from sapwood.runtime.server.chat_fields import Chat, ChatRequest, prepare
from sapwood.runtime.server.errors import JsonResponse
from sapwood.runtime.server.fields import decode, read
from sapwood.runtime.server.logprobs import chat_logprobs
from sapwood.runtime.server.openapi import body
from sapwood.runtime.server.reader import Part, Plain, Reader, num_reasoning
from sapwood.runtime.server.service import Service, new_id, service_of, total, usage_body
from sapwood.runtime.server.sse import DONE, Events, encode, event, stream, while_connected

if TYPE_CHECKING:
    from sapwood.runtime.client import Completion

router = APIRouter()
decoder = msgspec.json.Decoder(ChatRequest)


@router.post("/v1/chat/completions", openapi_extra=body(ChatRequest))
async def chat_completions(request: Request) -> Response:
    """Answer a conversation."""
    fields = await read(request, decoder)
    service = service_of(request)
    told = Answer(service, prepare(service, fields))
    if fields.stream:
        return await stream(request, told.events())
    return JsonResponse(told.whole(await while_connected(request, service.complete_all(told.chat.jobs))))


async def answer(service: Service, raw: bytes) -> dict[str, Any]:
    """The whole answer to a body, without HTTP: for batches."""
    told = Answer(service, prepare(service, decode(raw, decoder)))
    return told.whole(await service.complete_all(told.chat.jobs))


class Answer:
    """One request's answer, whole or as events."""

    def __init__(self, service: Service, chat: Chat) -> None:
        self.service = service
        self.chat = chat
        self.id = new_id("chatcmpl-")
        self.created = int(time.time())

    def whole(self, results: list[Completion]) -> dict[str, Any]:
        """The body of an answer that isn't streamed."""
        readers = [self.chat.reader() for _ in results]
        choices = [self._choice(index, *one) for index, one in enumerate(zip(readers, results, strict=True))]
        counts = [self._num_reasoning(reader, result.ids) for reader, result in zip(readers, results, strict=True)]
        usage = usage_body(total([result.usage for result in results]), sum(counts))
        return {**self._head("chat.completion"), "choices": choices, "usage": usage}

    def _num_reasoning(self, reader: Reader, ids: list[int]) -> int:
        return num_reasoning(reader, ids, self.service.tokenizer.token_bytes)

    def _choice(self, index: int, reader: Reader, result: Completion) -> dict[str, Any]:
        message = message_of(reader, result.text)
        logprobs = None
        if self.chat.fields.logprobs:
            logprobs = {"content": chat_logprobs(result.logprobs, self.service.names), "refusal": None}
        reason = self._reason(result.finish_reason, bool(message.get("tool_calls")))
        return {"index": index, "message": message, "logprobs": logprobs, "finish_reason": reason}

    def _reason(self, reason: str | None, called: bool) -> str | None:
        return "tool_calls" if called and reason == "stop" else reason

    async def events(self) -> Events:
        """The events of a streamed answer."""
        head = encode(self._head("chat.completion.chunk"))[:-1] + b',"choices":[{"index":'
        usages: list[Usage | None] = [None] * len(self.chat.jobs)
        readers = [self.chat.reader() for _ in self.chat.jobs]
        writers = [DeltaWriter(head, index, reader) for index, reader in enumerate(readers)]
        ids: list[list[int]] = [[] for _ in self.chat.jobs]
        with_logprobs = bool(self.chat.fields.logprobs)
        async with aclosing(self.service.stream_all(self.chat.jobs)) as chunks:
            async for index, chunk in chunks:
                logprobs = b""
                if with_logprobs and chunk.logprobs:
                    entries = chat_logprobs(chunk.logprobs, self.service.names)
                    logprobs = encode({"content": entries, "refusal": None})
                if self.chat.reasoning:
                    ids[index] += chunk.ids
                writer = writers[index]
                data = writer.push(chunk.text, logprobs)
                if chunk.finish_reason is not None:
                    usages[index] = chunk.usage
                    data += writer.finish()
                    data += writer.end(self._reason(chunk.finish_reason, writer.num_calls > 0))
                if data:
                    yield data
        if self.chat.fields.include_usage():
            usage = usage_body(total(usages), sum(map(self._num_reasoning, readers, ids)))
            yield event({**self._head("chat.completion.chunk"), "choices": [], "usage": usage})
        yield DONE

    def _head(self, kind: str) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.service.model,
            "system_fingerprint": self.service.fingerprint,
        }


class DeltaWriter:
    """Turns one choice's text into chunks. Byte templates, because this runs for every token."""

    def __init__(self, head: bytes, index: int, reader: Reader) -> None:
        self._open = b"data: " + head + b"%d" % index + b',"delta":'
        self._reader = reader
        self._plain = isinstance(reader, Plain)
        self._begun = False
        self.num_calls = 0

    def push(self, text: str, logprobs: bytes) -> bytes:
        """The events for new text; log probabilities go with the first of them."""
        data = b"" if self._begun else self._begin()
        if self._plain:
            return data + self._event(b'{"content":' + encode(text) + b"}", logprobs) if text or logprobs else data
        parts = self._reader.push(text)
        if not parts and logprobs:
            return data + self._event(b"{}", logprobs)
        for part in parts:
            data += self._event(self._delta(part), logprobs)
            logprobs = b""
        return data

    def finish(self) -> bytes:
        """The events for what the reader held back."""
        return b"".join(self._event(self._delta(part), b"") for part in self._reader.finish())

    def end(self, reason: str | None) -> bytes:
        """The last event."""
        begin = b"" if self._begun else self._begin()
        return begin + self._open + b'{},"logprobs":null,"finish_reason":' + encode(reason) + b"}]}\n\n"

    def _begin(self) -> bytes:
        self._begun = True
        return self._event(b'{"role":"assistant","content":""}', b"")

    def _event(self, delta: bytes, logprobs: bytes) -> bytes:
        return self._open + delta + b',"logprobs":' + (logprobs or b"null") + b',"finish_reason":null}]}\n\n'

    def _delta(self, part: Part) -> bytes:
        if part.kind == "content":
            return b'{"content":' + encode(part.text) + b"}"
        if part.kind == "reasoning":
            return b'{"reasoning_content":' + encode(part.text) + b"}"
        if part.kind == "call":
            self.num_calls += 1
            call = {"index": self.num_calls - 1, **_call(part.text)}
            return encode({"tool_calls": [call]})
        return encode({"tool_calls": [{"index": self.num_calls - 1, "function": {"arguments": part.text}}]})


def message_of(reader: Reader, text: str) -> dict[str, Any]:
    """The assistant's message that `text` comes to."""
    content, reasoning = "", ""
    calls: list[dict[str, Any]] = []
    for part in [*reader.push(text), *reader.finish()]:
        if part.kind == "content":
            content += part.text
        elif part.kind == "reasoning":
            reasoning += part.text
        elif part.kind == "call":
            calls.append(_call(part.text))
        else:
            calls[-1]["function"]["arguments"] += part.text
    message: dict[str, Any] = {"role": "assistant", "content": content or (None if calls else ""), "refusal": None}
    if reasoning:
        message["reasoning_content"] = reasoning
    if calls:
        message["tool_calls"] = calls
    return message


def _call(name: str) -> dict[str, Any]:
    return {"id": new_id("call_"), "type": "function", "function": {"name": name, "arguments": ""}}
