"""Puts the server together: routes, errors, and the layers around them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from typing import TYPE_CHECKING

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.responses import Response

import sapwood
from sapwood.errors import Cancelled, SapwoodError
from sapwood.runtime.server import (
    admin,
    anthropic,
    batches,
    embeddings,
    files,
    models,
    native,
    ollama,
    openai_chat,
    openai_completions,
    responses,
    static,
    text,
)
from sapwood.runtime.server.access_log import AccessLog
from sapwood.runtime.server.auth import Auth
from sapwood.runtime.server.config import ServerConfig
from sapwood.runtime.server.errors import ApiError, JsonResponse, Refusal, error_response, refusal_of
from sapwood.runtime.server.limits import Limits
from sapwood.runtime.server.service import Service
from sapwood.runtime.server.storage import Storage
from sapwood.runtime.server.supervise import supervise
from sapwood.runtime.server.tracing import Spans, Tracing

if TYPE_CHECKING:
    from sapwood.runtime.client import Client

ROUTERS = tuple(
    module.router
    for module in (
        models,
        openai_chat,
        openai_completions,
        embeddings,
        responses,
        files,
        batches,
        anthropic,
        ollama,
        native,
        text,
        admin,
    )
)


def create_app(client: Client, config: ServerConfig | None = None, spans: Spans | None = None) -> FastAPI:
    """The ASGI app over a connected client. It doesn't own the client: who made it closes it; `spans` it closes."""
    config = config or ServerConfig()
    service = Service(client, config)
    storage = cache(lambda: Storage(config.data_folder))
    runner = batches.BatchRunner(service, storage)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        runner.resume()
        watching = asyncio.ensure_future(supervise(client))
        yield
        watching.cancel()
        await runner.close()
        storage().close()
        if spans is not None:
            await asyncio.to_thread(spans.close)

    app = FastAPI(title="Sapwood", version=sapwood.__version__, lifespan=lifespan, docs_url=None, redoc_url=None)
    app.state.service = service
    app.state.storage = storage
    app.state.batches = runner
    app.state.responses = responses.ResponseStore()
    _add_layers(app, service)
    if spans is not None:
        app.add_middleware(Tracing, model=service.model, spans=spans)
    app.add_exception_handler(SapwoodError, _on_error)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(ClientDisconnect, _on_gone)
    app.add_exception_handler(Exception, _on_fault)
    for router in ROUTERS:
        app.include_router(router)
    if config.page:
        app.include_router(static.router)
    return app


def _add_layers(app: FastAPI, service: Service) -> None:
    """Around the routes, innermost first."""
    config = service.config
    app.add_middleware(Limits, service=service)
    if config.api_keys or config.admin_keys:
        app.add_middleware(Auth, keys=config.api_keys, admin_keys=config.admin_keys)
    if config.cors_origins:
        app.add_middleware(CORSMiddleware, allow_origins=config.cors_origins, allow_methods=["*"], allow_headers=["*"])
    if config.access_log:
        app.add_middleware(AccessLog)


async def _on_error(request: Request, error: Exception) -> Response:
    """A refusal in the envelope that clients of this path know."""
    assert isinstance(error, SapwoodError)
    refusal = refusal_of(error)
    if request.url.path.startswith("/v1/messages"):
        return JsonResponse(anthropic.error_body(refusal), status_code=refusal.status)
    if request.url.path.startswith("/api/"):
        return JsonResponse({"error": refusal.message}, status_code=refusal.status)
    return error_response(refusal)


async def _on_fault(request: Request, error: Exception) -> Response:
    """A fault of ours: the client gets the error's form without its inside, the log gets the traceback."""
    return error_response(Refusal(500, "server_error", "the server met an error of its own; its log says more"))


async def _on_gone(request: Request, error: Exception) -> Response:
    """The client went away in the middle of its body: nobody reads the answer, and the log has no use for it."""
    return error_response(refusal_of(Cancelled("the client closed the connection")))


async def _on_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    known = {
        404: f"there is no {request.url.path} here; /openapi.json lists what there is",
        405: f"{request.url.path} takes other methods",
    }
    return error_response(refusal_of(ApiError(error.status_code, known.get(error.status_code, str(error.detail)))))
