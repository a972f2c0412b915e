"""Who may use the server: API keys for everything but health and the page's files, admin keys for what changes it."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from sapwood.runtime.server.errors import ApiError, error_response, refusal_of

PUBLIC = ("/health", "/page/")  # what begins so; the page's files hold no data, and it asks for the key itself
ADMIN = frozenset({"/flush_cache", "/pin", "/unpin", "/cache/save", "/cache/load", "/policy", "/restart_backend"})


class Auth:
    """A layer that lets requests with a known key through."""

    def __init__(self, app: ASGIApp, keys: Iterable[str], admin_keys: Iterable[str]) -> None:
        self._app = app
        self._admin = [_digest(key) for key in admin_keys]
        self._keys = [_digest(key) for key in keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or self._may(scope):
            await self._app(scope, receive, send)
            return
        message = "the API key is missing or wrong; send it as `Authorization: Bearer KEY`"
        if scope["path"] in ADMIN and self._admin:
            message = "this needs an admin key; send it as `Authorization: Bearer KEY`"
        refusal = refusal_of(ApiError(401, message, code="invalid_api_key"))
        await error_response(refusal)(scope, receive, send)

    def _may(self, scope: Scope) -> bool:
        path = scope["path"]
        if scope["method"] == "OPTIONS" or path == "/" or path.startswith(PUBLIC):
            return True
        known = self._admin if path in ADMIN and self._admin else self._keys + self._admin if self._keys else []
        if not known:
            return True
        headers = Headers(scope=scope)
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        given = _digest(bearer.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", ""))
        # All keys are compared, each in constant time, so that the time tells nothing about any.
        return any([hmac.compare_digest(given, key) for key in known])


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()
