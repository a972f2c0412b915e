"""Bounds on what clients may ask of the server at all: body size, requests at once, none while draining."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sapwood.errors import SapwoodError
from sapwood.runtime.server.errors import ApiError, error_response, refusal_of
from sapwood.runtime.server.service import Service

ALWAYS = ("/health", "/metrics")


class Limits:
    """A layer that answers 413, 429 or 503 instead of letting the server grow."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service
        self._max_body = service.config.max_body
        self._running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].startswith(ALWAYS):
            await self._app(scope, receive, send)
            return
        try:
            self._admit(scope)
        except SapwoodError as error:
            await error_response(refusal_of(error))(scope, receive, send)
            return
        self._running += 1
        try:
            await self._app(scope, self._bounded(receive), send)
        finally:
            self._running -= 1

    def _admit(self, scope: Scope) -> None:
        length = Headers(scope=scope).get("content-length", "0")
        if length.isdecimal() and int(length) > self._max_body:
            raise self._too_large()
        if self._service.draining:
            raise ApiError(503, "the server is shutting down; use another one", code="draining")
        most = self._service.config.max_concurrency
        if self._running >= most:
            raise ApiError(429, f"{most} requests are being served already; try again soon", code="overloaded")

    def _bounded(self, receive: Receive) -> Receive:
        """`receive`, counting: a body without a length must not grow for ever either."""
        taken = 0

        async def bounded() -> Message:
            nonlocal taken
            message = await receive()
            if message["type"] == "http.request":
                taken += len(message.get("body", b""))
                if taken > self._max_body:
                    raise self._too_large()
            return message

        return bounded

    def _too_large(self) -> ApiError:
        return ApiError(413, f"the body is larger than {self._max_body} bytes, this server's limit", code="too_large")
