"""Puts the server together: routes, errors, and the layers around them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

import sapwood
from sapwood.errors import SapwoodError
from sapwood.runtime.server import models, openai_chat, openai_completions
from sapwood.runtime.server.config import ServerConfig
from sapwood.runtime.server.errors import ApiError, error_response, refusal_of
from sapwood.runtime.server.service import Service

if TYPE_CHECKING:
    from sapwood.runtime.client import Client

ROUTERS = (models.router, openai_chat.router, openai_completions.router)


def create_app(client: Client, config: ServerConfig | None = None) -> FastAPI:
    """The ASGI app over a connected client. It doesn't own the client: who made it closes it."""
    service = Service(client, config or ServerConfig())

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield

    app = FastAPI(title="Sapwood", version=sapwood.__version__, lifespan=lifespan, redoc_url=None)
    app.state.service = service
    app.add_exception_handler(SapwoodError, _on_error)
    app.add_exception_handler(HTTPException, _on_http)
    for router in ROUTERS:
        app.include_router(router)
    return app


async def _on_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, SapwoodError)
    return error_response(refusal_of(error))


async def _on_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    known = {404: f"there is no {request.url.path} here; see /docs", 405: f"{request.url.path} takes other methods"}
    return error_response(refusal_of(ApiError(error.status_code, known.get(error.status_code, str(error.detail)))))
