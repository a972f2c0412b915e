"""The page at /: hand-written files, sent as they are. Nothing is built and nothing comes from elsewhere."""

from __future__ import annotations

from importlib.resources import files

from fastapi import APIRouter
from starlette.responses import Response

from sapwood.runtime.server.errors import ApiError

router = APIRouter(include_in_schema=False)
KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'",
    "X-Content-Type-Options": "nosniff",
}


@router.get("/")
async def index() -> Response:
    """The page itself."""
    return _file("index.html")


@router.get("/page/{name}")
async def part(name: str) -> Response:
    """One of its scripts or styles."""
    return _file(name)


def _file(name: str) -> Response:
    kind = KINDS.get(name[name.rfind(".") :]) if "/" not in name and not name.startswith(".") else None
    found = files("sapwood.runtime.server") / "page" / name
    if kind is None or not found.is_file():
        raise ApiError(404, f"the page has no part {name!r}")
    return Response(found.read_bytes(), media_type=kind, headers=HEADERS)
