"""One JSON line a request on stderr: when, what, how it ended, how long it took."""

from __future__ import annotations

import sys
import time

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class AccessLog:
    """The outermost layer, if asked for. Prompts and keys are never written."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        status: int | None = None
        sent = 0

        async def noting(message: Message) -> None:
            nonlocal status, sent
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                sent += len(message.get("body", b""))
            await send(message)

        try:
            await self._app(scope, receive, noting)
        finally:
            client = scope.get("client")
            line = {
                "time": round(time.time(), 3),
                "client": client[0] if client else None,
                "method": scope["method"],
                "path": scope["path"],
                "status": status,
                "bytes": sent,
                "seconds": round(time.perf_counter() - started, 4),
            }
            sys.stderr.write(msgspec.json.encode(line).decode() + "\n")
            sys.stderr.flush()
