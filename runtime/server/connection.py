"""One HTTP connection: how long a client may take to send a request, and the short way for the pieces of an answer.

uvicorn ends connections that idle between requests, but its clock stops at the first byte of the next one and isn't set
for the first request at all: who sends a header every few seconds would keep a connection for ever.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Literal

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from sapwood.runtime.server.errors import ApiError, JsonResponse, invalid, refusal_of

if TYPE_CHECKING:
    from uvicorn._types import ASGISendEvent

BODILESS = (204, 304)
MIN_RATE = 1000  # bytes a second that a body must come with, on average, beyond the first `patience` seconds


class BoundedConnection(H11Protocol):
    """Cuts off a client whose headers aren't complete `patience` seconds after it connected or began to send them.

    A body gets `patience` seconds and one more for each MIN_RATE bytes that came.
    """

    def __init__(self, *args: Any, patience: float, **fields: Any) -> None:
        super().__init__(*args, **fields)
        self._patience = patience
        self._awaited: Literal["head", "body"] | None = None
        self._since = 0.0  # when the wait began, in the loop's time
        self._num_bytes = 0  # that came since
        self._timer: asyncio.TimerHandle | None = None
        self._inner = self.app
        self.app = self._answer

    async def _answer(self, scope: Any, receive: Any, send: Any) -> None:
        """The app, with pieces of its answers sent the short way."""
        await self._inner(scope, receive, PieceSender(send.__self__))

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await("head", 0)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        state = self.conn.their_state
        self._await("head" if state is h11.IDLE else "body" if state is h11.SEND_BODY else None, len(data))

    def connection_lost(self, exc: Exception | None) -> None:
        self._await(None, 0)
        super().connection_lost(exc)

    def _await(self, what: Literal["head", "body"] | None, num_bytes: int) -> None:
        """Bytes came, and `what` is still to come; the clock goes on where that is what was awaited before."""
        if what is self._awaited:
            self._num_bytes += num_bytes
            return
        if self._timer is not None:
            self._timer.cancel()
        self._awaited = what
        self._num_bytes = num_bytes
        self._since = self.loop.time()
        self._timer = self.loop.call_at(self._due(), self._look) if what else None

    def _due(self) -> float:
        return self._since + self._patience + (self._num_bytes / MIN_RATE if self._awaited == "body" else 0)

    def _look(self) -> None:
        """The time is up, unless more of a body came meanwhile."""
        if self.loop.time() < self._due():
            self._timer = self.loop.call_at(self._due(), self._look)
            return
        if not self.transport.is_closing():
            if self._awaited == "head" and self._num_bytes:
                message = f"the headers were not complete within {self._patience:g} s; send them at once"
                self._refuse(ApiError(408, message, code="slow_headers"))
            self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """What came is no HTTP: uvicorn would say so in plain text."""
        most = self.config.h11_max_incomplete_event_size
        self._refuse(invalid(f"this is no valid HTTP/1.1 request, or its headers are longer than {most} bytes"))
        self.transport.close()

    def _refuse(self, error: ApiError) -> None:
        """Answer without the app, unless it has begun to."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return
        answer = JsonResponse(refusal_of(error).body())
        headers = [*answer.raw_headers, (b"connection", b"close")]
        for event in (
            h11.Response(status_code=error.status, headers=headers, reason=HTTPStatus(error.status).phrase.encode()),
            h11.Data(data=bytes(answer.body)),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")


class PieceSender:
    """The `send` of one request that frames the pieces of a streamed answer itself.

    h11 checks its own state and each piece again; where an answer has a piece for each token that is a tenth of its cost.
    The head and the end still go through h11, and so does everything whose length was announced.
    """

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle
        self._chunked = False  # the head is out and said so

    async def __call__(self, message: ASGISendEvent) -> None:
        cycle = self._cycle
        if message["type"] == "http.response.start":
            names = [name.lower() for name, _ in message.get("headers", ())]
            whole = b"content-length" in names or cycle.scope["method"] == "HEAD" or message["status"] in BODILESS
            await cycle.send(message)
            self._chunked = not whole and cycle.scope["http_version"] == "1.1"
        elif (
            self._chunked
            and message["type"] == "http.response.body"
            and message.get("more_body")
            and not (cycle.flow.write_paused or cycle.disconnected)
        ):
            if body := message.get("body"):
                cycle.transport.write(b"%x\r\n%b\r\n" % (len(body), body))
        else:
            await cycle.send(message)
