"""Runs the app: takes the port first, then starts the backend, then serves until a signal.

SIGTERM drains: no new requests, running ones get `drain_timeout` seconds. Ctrl-C ends everything at once.
"""

from __future__ import annotations

import errno
import logging
import signal
import socket
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any

import uvicorn
from fastapi import FastAPI

from sapwood.errors import InvalidRequest
from sapwood.runtime.server.app import create_app
from sapwood.runtime.server.config import ServerConfig
from sapwood.runtime.server.connection import BoundedConnection
from sapwood.runtime.server.tracing import open_spans

if TYPE_CHECKING:
    from sapwood.runtime.client import Client

BACKLOG = 2048
MAX_HEADERS = 64 * 1024  # bytes


def listen(host: str, port: int) -> socket.socket:
    """Take the port. Raises InvalidRequest with what to do when it can't be had."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (socket.gaierror, OverflowError) as error:
        raise InvalidRequest(f"can't listen on {host}:{port}: {error}; check --host and --port") from None
    taken = socket.socket(family, kind, proto)
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        taken.bind(address)
        taken.listen(BACKLOG)
    except OSError as error:
        taken.close()
        if error.errno == errno.EADDRINUSE:
            message = f"port {port} on {host} is in use; stop what listens there or choose another with --port"
        elif error.errno == errno.EACCES:
            message = f"port {port} needs more rights than you have; choose one above 1023 with --port"
        else:
            message = f"can't listen on {host}:{port}: {error.strerror}; check --host and --port"
        raise InvalidRequest(message) from None
    return taken


def url_of(taken: socket.socket, config: ServerConfig) -> str:
    """Where a browser on this machine finds the server."""
    host, port = taken.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"{'https' if config.tls_cert else 'http'}://{host}:{port}"


class _Server(uvicorn.Server):
    """uvicorn, but Ctrl-C doesn't wait for anybody, and /health says so while SIGTERM drains."""

    def __init__(self, config: uvicorn.Config, app: FastAPI, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._app = app
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        if self.force_exit:  # uvicorn then leaves the app's own end out
            await self.lifespan.shutdown()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._app.state.service.draining = True
        if sig == signal.SIGINT:
            self.force_exit = True
            logging.getLogger("uvicorn.error").disabled = True  # that requests are cut off is no news
        super().handle_exit(sig, frame)


def server_of(client: Client, config: ServerConfig, ready: Callable[[], None] = lambda: None) -> uvicorn.Server:
    """A server for `client`, to be run on a socket from `listen`. `ready` is called once requests are taken."""
    app = create_app(client, config, open_spans(config.otlp_endpoint))
    settings: dict[str, Any] = {
        "ssl_certfile": config.tls_cert,
        "ssl_keyfile": config.tls_key,
        "http": partial(BoundedConnection, patience=config.header_timeout),
        "ws": "none",
    }
    try:
        uvicorn_config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_keep_alive=config.keep_alive,
            timeout_graceful_shutdown=int(config.drain_timeout),
            h11_max_incomplete_event_size=MAX_HEADERS,
            **settings,
        )
        uvicorn_config.load()
    except (OSError, ValueError) as error:
        raise InvalidRequest(
            f"the TLS certificate or key can't be used: {error}; check --tls-cert and --tls-key"
        ) from None
    return _Server(uvicorn_config, app, ready)
