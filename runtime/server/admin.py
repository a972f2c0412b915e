"""What the server and its tree are, and how to change them: info, flush, abort, pins, snapshots, the live tree."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import PlainTextResponse, Response

import sapwood
from sapwood.errors import InvalidRequest
from sapwood.runtime.messages import Sampling
from sapwood.runtime.server.errors import ApiError, JsonResponse, invalid
from sapwood.runtime.server.fields import read
from sapwood.runtime.server.openapi import body
from sapwood.runtime.server.service import Job, Service, service_of
from sapwood.runtime.server.sse import Events, event, stream, while_connected

router = APIRouter()
WATCH_SECONDS = 0.25


class AbortRequest(msgspec.Struct):
    """`rid` is a prefix of the ids to abort; an empty one aborts nothing unless `abort_all`."""

    rid: str | None = None
    abort_all: bool | None = None


class PrefixRequest(msgspec.Struct):
    """A prefix of the tree, as text or ids, within a namespace."""

    text: str | None = None
    ids: list[int] | None = None
    cache_salt: str | None = None


class SnapshotRequest(msgspec.Struct):
    """A snapshot by name: a file in the server's data folder, so that clients can't write elsewhere."""

    name: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._\-]{0,99}$")]
    cache_salt: str | None = None


class PolicyRequest(msgspec.Struct):
    """Scheduling or eviction policy by name."""

    policy: str


@router.get("/model_info")
@router.get("/get_model_info", include_in_schema=False)
async def model_info(request: Request) -> Response:
    """What is served, in SGLang's words."""
    service = service_of(request)
    info = service.info
    return JsonResponse(
        {
            "model_path": info.path,
            "served_model_name": service.model,
            "tokenizer_path": info.path,
            "is_generation": True,
            "preferred_sampling_params": None,
            "weight_version": "default",
            "model_type": info.architecture,
            "architectures": [info.architecture],
            "context_length": info.context_length,
            "vocab_size": info.vocab_size,
            "fingerprint": info.fingerprint,
        }
    )


@router.get("/server_info")
@router.get("/get_server_info", include_in_schema=False)
async def server_info(request: Request) -> Response:
    """Settings (keys left out), the model, and the backend's statistics."""
    service = service_of(request)
    settings = msgspec.to_builtins(service.config)
    for secret in ("api_keys", "admin_keys", "tls_key"):
        settings.pop(secret)
    stats = await service.client.aask("stats")
    return JsonResponse(
        {
            **settings,
            "version": sapwood.__version__,
            "model_path": service.info.path,
            "model": msgspec.to_builtins(service.info),
            "max_total_num_tokens": service.info.num_slots,
            "internal_states": [stats],
        }
    )


@router.get("/flush_cache")
@router.post("/flush_cache", include_in_schema=False)
async def flush_cache(request: Request) -> Response:
    """Forget all cached prefixes. 400 while requests are running."""
    service = service_of(request)
    if service.metrics.num_running:
        raise invalid("requests are running; the cache can be flushed when they are done")
    await service.client.aask("flush")
    return PlainTextResponse("Cache flushed.\n")


@router.post("/abort_request", openapi_extra=body(AbortRequest))
async def abort_request(request: Request) -> Response:
    """End running requests by the `rid` that /generate was given. Always 200."""
    fields = await read(request, msgspec.json.Decoder(AbortRequest))
    service = service_of(request)
    aborted = service.abort("") if fields.abort_all else service.abort(fields.rid) if fields.rid else 0
    return JsonResponse({"aborted": aborted})


@router.get("/health_generate")
async def health_generate(request: Request) -> Response:
    """200 if a token can be generated."""
    service = service_of(request)
    await while_connected(request, service.client.agenerate([0], Sampling(max_tokens=1, temperature=0.0)))
    return JsonResponse({"status": "ok"})


@router.post("/pin", openapi_extra=body(PrefixRequest))
async def pin(request: Request) -> Response:
    """Compute a prefix and keep it in the tree whatever else is evicted."""
    service, ids, salt = await _prefix(request)
    await while_connected(request, service.complete(Job(ids, Sampling(max_tokens=0, temperature=0.0), salt)))
    await service.client.aask("pin", ids=ids, namespace=salt)
    return JsonResponse({"pinned_tokens": len(ids)})


@router.post("/unpin", openapi_extra=body(PrefixRequest))
async def unpin(request: Request) -> Response:
    """Let a pinned prefix be evicted again."""
    service, ids, salt = await _prefix(request)
    await service.client.aask("unpin", ids=ids, namespace=salt)
    return JsonResponse({"unpinned_tokens": len(ids)})


async def _prefix(request: Request) -> tuple[Service, list[int], str]:
    fields = await read(request, msgspec.json.Decoder(PrefixRequest))
    service = service_of(request)
    if (fields.text is None) == (fields.ids is None):
        raise invalid("send either text or ids", "text")
    ids = service.encode_prompt(fields.text, "text") if fields.text is not None else fields.ids or []
    service.check_prompt(ids, "text" if fields.text is not None else "ids")
    return service, ids, fields.cache_salt or ""


@router.post("/cache/save", openapi_extra=body(SnapshotRequest))
async def save(request: Request) -> Response:
    """Write the tree's keys and values to a file."""
    fields = await read(request, msgspec.json.Decoder(SnapshotRequest))
    service = service_of(request)
    file = _snapshot(service, fields.name)
    file.parent.mkdir(parents=True, exist_ok=True)
    return JsonResponse(await service.client.aask("save", path=str(file), namespace=fields.cache_salt or ""))


@router.post("/cache/load", openapi_extra=body(SnapshotRequest))
async def load(request: Request) -> Response:
    """Read a snapshot back into the tree; one of another model is refused."""
    fields = await read(request, msgspec.json.Decoder(SnapshotRequest))
    service = service_of(request)
    file = _snapshot(service, fields.name)
    if not file.is_file():
        raise ApiError(404, f"there is no snapshot {fields.name!r}; /cache/save makes one", param="name")
    return JsonResponse(await service.client.aask("load", path=str(file), namespace=fields.cache_salt or ""))


def _snapshot(service: Service, name: str) -> Path:
    return service.config.data_folder / "snapshots" / name


@router.post("/policy", openapi_extra=body(PolicyRequest))
async def policy(request: Request) -> Response:
    """Change the scheduling policy while running."""
    fields = await read(request, msgspec.json.Decoder(PolicyRequest))
    return JsonResponse({"policy": await service_of(request).client.aask("policy", policy=fields.policy)})


@router.get("/metrics")
async def metrics(request: Request) -> Response:
    """Prometheus' text format."""
    service = service_of(request)
    stats: Any = await service.client.aask("stats") if service.alive else {}
    service.metrics.set_stats(stats)
    return Response(service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


@router.get("/stats")
async def stats(request: Request) -> Response:
    """The backend's statistics, and the tree if `?tree=1`."""
    service = service_of(request)
    return JsonResponse(await _look(service, bool(request.query_params.get("tree"))))


@router.get("/watch")
async def watch(request: Request) -> Response:
    """The tree and the statistics, four times a second, as events. The page draws them."""
    service = service_of(request)

    async def events() -> Events:
        while True:
            try:
                seen = await _look(service, True)
            except ApiError as error:
                seen = {"error": str(error)}
            yield event(seen)
            await asyncio.sleep(WATCH_SECONDS)

    return await stream(request, events())


async def _look(service: Service, tree: bool) -> dict[str, Any]:
    if not service.alive:
        raise ApiError(503, "the backend is being restarted; try again in a moment", code="backend_unavailable")
    try:
        seen: dict[str, Any] = {"stats": await service.client.aask("stats")}
        if tree:
            seen["tree"] = _spelled(service, await service.client.aask("tree"))
    except InvalidRequest as error:
        raise ApiError(501, str(error)) from None
    return seen


def _spelled(service: Service, node: dict[str, Any]) -> dict[str, Any]:
    """A node of the tree with text instead of ids."""
    head, tail = (service.tokenizer.decode(node.pop(end), skip_special=False) for end in ("head", "tail"))
    node["text"] = f"{head} … {tail}" if tail else head
    node["children"] = [_spelled(service, child) for child in node["children"]]
    return node
