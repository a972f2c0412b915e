"""/v1/files: upload, list, read and delete files, kept in the server's database."""

from __future__ import annotations

from email.parser import BytesParser
from email.policy import HTTP
from typing import Any

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import Response

from sapwood.runtime.server.errors import ApiError, JsonResponse, invalid
from sapwood.runtime.server.storage import Storage, StoredFile

router = APIRouter(prefix="/v1/files")


def storage_of(request: Request) -> Storage:
    """The app's database."""
    storage: Storage = request.app.state.storage()
    return storage


@router.post("", openapi_extra={"requestBody": {"content": {"multipart/form-data": {"schema": {"type": "object"}}}}})
async def upload(request: Request) -> Response:
    """Keep an uploaded file."""
    filename, content, fields = parse_form(request.headers.get("content-type", ""), await request.body())
    purpose = fields.get("purpose")
    if not purpose:
        raise invalid("purpose is missing; send purpose=batch", "purpose")
    return JsonResponse(msgspec.to_builtins(storage_of(request).add_file(filename, purpose, content)))


@router.get("")
async def list_files(request: Request) -> Response:
    """All files."""
    files = storage_of(request).files()
    purpose = request.query_params.get("purpose")
    data = [msgspec.to_builtins(file) for file in files if purpose in (None, file.purpose)]
    return JsonResponse({"object": "list", "data": data, "has_more": False})


@router.get("/{id}")
async def retrieve(request: Request, id: str) -> Response:
    """One file's description."""
    return JsonResponse(msgspec.to_builtins(_file(storage_of(request), id)))


@router.get("/{id}/content")
async def content(request: Request, id: str) -> Response:
    """One file's content."""
    storage = storage_of(request)
    _file(storage, id)
    return Response(storage.content(id), media_type="application/octet-stream")


@router.delete("/{id}")
async def delete(request: Request, id: str) -> Response:
    """Forget a file."""
    _file(storage_of(request), id)
    storage_of(request).delete_file(id)
    return JsonResponse({"id": id, "object": "file", "deleted": True})


def _file(storage: Storage, id: str) -> StoredFile:
    found = storage.files(id)
    if not found:
        raise ApiError(404, f"there is no file {id!r}", param="id")
    return found[0]


def parse_form(content_type: str, raw: bytes) -> tuple[str, bytes, dict[str, str]]:
    """The file's name and content, and the other fields, of a multipart form (RFC 7578)."""
    if not content_type.lower().startswith("multipart/form-data"):
        raise invalid("send the file as multipart/form-data with the fields file and purpose", "file")
    head = b"Content-Type: " + content_type.encode() + b"\r\n\r\n"
    form: Any = BytesParser(policy=HTTP).parsebytes(head + raw)
    filename, content, fields = "", None, {}
    for part in form.iter_parts() if form.is_multipart() else ():
        name = part.get_param("name", header="content-disposition")
        data = part.get_payload(decode=True) or b""
        if name == "file":
            filename, content = part.get_filename() or "file", data
        elif name:
            fields[str(name)] = data.decode("utf-8", "replace").strip()
    if content is None:
        raise invalid("the form has no field named file; send the file under that name", "file")
    return filename, content, fields
