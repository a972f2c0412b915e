"""Server-sent events, and requests that end when their client goes away. Knows nothing of what the events say."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from sapwood.errors import Cancelled, SapwoodError
from sapwood.runtime.server.errors import refusal_of

T = TypeVar("T")
Events = AsyncGenerator[bytes, None]

DONE = b"data: [DONE]\n\n"
encode = msgspec.json.encode


def event(data: Any) -> bytes:
    """One `data:` event with `data` as JSON."""
    return b"data: " + encode(data) + b"\n\n"


def named_event(name: str, data: Any) -> bytes:
    """One event with a name, as Anthropic's and the responses API send them."""
    return b"event: " + name.encode() + b"\ndata: " + encode(data) + b"\n\n"


def openai_error(error: SapwoodError) -> bytes:
    """How an error looks once the stream has begun."""
    return event(refusal_of(error).body()) + DONE


async def while_connected(request: Request, work: Awaitable[T]) -> T:
    """Wait for `work`; cancel it, and raise Cancelled, as soon as the client disconnects."""
    working = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_disconnected(request.receive))
    try:
        await asyncio.wait({working, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise Cancelled("the client closed the connection")
        return working.result()
    finally:
        gone.cancel()
        if not working.done():
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def stream(
    request: Request,
    events: Events,
    *,
    on_error: Callable[[SapwoodError], bytes] = openai_error,
    media_type: str | None = None,
) -> Response:
    """Answer with `events`. Waits for the first, so that what is refused at once gets its own status."""
    try:
        first = await while_connected(request, anext(events, b""))
    except BaseException:
        await events.aclose()
        raise
    return EventStream(first, events, on_error, media_type)


class EventStream(Response):
    """Sends events as they come and closes their source when the client goes away."""

    media_type = "text/event-stream"

    def __init__(
        self,
        first: bytes,
        rest: Events,
        on_error: Callable[[SapwoodError], bytes],
        media_type: str | None,
    ) -> None:
        self.status_code = 200
        self.background = None
        self.body = b""
        if media_type:
            self.media_type = media_type
        self.init_headers({"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        self._first = first
        self._rest = rest
        self._on_error = on_error

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(name, value) for name, value in self.raw_headers if name != b"content-length"]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        pump = asyncio.ensure_future(self._pump(send))
        gone = asyncio.ensure_future(_disconnected(receive))
        try:
            await asyncio.wait({pump, gone}, return_when=asyncio.FIRST_COMPLETED)
            if pump.done():
                pump.result()
        finally:
            gone.cancel()
            if not pump.done():
                pump.cancel()
                await asyncio.gather(pump, return_exceptions=True)
            await self._rest.aclose()

    async def _pump(self, send: Send) -> None:
        await send({"type": "http.response.body", "body": self._first, "more_body": True})
        try:
            async for data in self._rest:
                await send({"type": "http.response.body", "body": data, "more_body": True})
        except SapwoodError as error:
            await send({"type": "http.response.body", "body": self._on_error(error), "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
