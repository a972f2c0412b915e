"""/v1/batches: files of requests that are run in the background, a few at a time, behind everybody else's."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import Response

from sapwood.errors import SapwoodError
from sapwood.runtime.server import embeddings, openai_chat, openai_completions
from sapwood.runtime.server.errors import ApiError, JsonResponse, invalid, of_validation, refusal_of
from sapwood.runtime.server.fields import read
from sapwood.runtime.server.files import storage_of
from sapwood.runtime.server.openapi import body
from sapwood.runtime.server.service import Service, new_id
from sapwood.runtime.server.storage import Storage

router = APIRouter(prefix="/v1/batches")
AT_ONCE = 8
PRIORITY = -1  # behind interactive requests
FINAL = ("completed", "failed", "cancelled", "expired")

Answer = Callable[[Service, bytes], Awaitable[dict[str, Any]]]
ENDPOINTS: dict[str, Answer] = {
    "/v1/chat/completions": openai_chat.answer,
    "/v1/completions": openai_completions.answer,
    "/v1/embeddings": embeddings.answer,
}


class BatchRequest(msgspec.Struct):
    """The body."""

    input_file_id: str
    endpoint: str
    completion_window: str = "24h"
    metadata: dict[str, str] | None = None


class BatchLine(msgspec.Struct):
    """One line of the input file."""

    custom_id: str
    url: str
    body: dict[str, Any]
    method: str = "POST"


class BatchRunner:
    """Runs the batches of one server. `resume` takes up those that a restart interrupted."""

    def __init__(self, service: Service, storage: Callable[[], Storage]) -> None:
        self._service = service
        self._storage = storage
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def start(self, batch: dict[str, Any]) -> None:
        """Run a batch in the background."""
        self._tasks[batch["id"]] = task = asyncio.ensure_future(self._run(batch))
        task.add_done_callback(lambda _: self._tasks.pop(batch["id"], None))

    def resume(self) -> None:
        """Run what is not finished, from its beginning."""
        for batch in self._storage().batches():
            if batch["status"] not in FINAL and batch["id"] not in self._tasks:
                self.start(batch)

    async def cancel(self, id: str) -> None:
        """End a running batch."""
        await _end(self._tasks.get(id))

    async def close(self) -> None:
        """Stop without finishing: the batches go on after a restart."""
        for batch_id in list(self._tasks):
            task = self._tasks[batch_id]
            task.cancel("closing")
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _run(self, batch: dict[str, Any]) -> None:
        storage = self._storage()
        try:
            lines = parse_lines(storage.content(batch["input_file_id"]) or b"", batch["endpoint"])
        except ApiError as error:
            batch.update(
                status="failed", failed_at=int(time.time()), errors={"object": "list", "data": [_error(error)]}
            )
            storage.put_batch(batch)
            return
        batch.update(status="in_progress", in_progress_at=int(time.time()))
        batch["request_counts"] = {"total": len(lines), "completed": 0, "failed": 0}
        storage.put_batch(batch)
        gate = asyncio.Semaphore(AT_ONCE)
        tasks = [asyncio.ensure_future(self._one(gate, batch, line)) for line in lines]
        try:
            outcomes = list(await asyncio.gather(*tasks))
            status, when = "completed", "completed_at"
        except asyncio.CancelledError as stopped:
            for task in tasks:
                task.cancel()
            finished = await asyncio.gather(*tasks, return_exceptions=True)
            if stopped.args:  # the server closes; a restart begins again
                return
            outcomes = [outcome for outcome in finished if not isinstance(outcome, BaseException)]
            status, when = "cancelled", "cancelled_at"
        _keep(storage, batch, outcomes)
        batch.update({"status": status, when: int(time.time())})
        storage.put_batch(batch)

    async def _one(self, gate: asyncio.Semaphore, batch: dict[str, Any], line: BatchLine) -> dict[str, Any]:
        outcome: dict[str, Any] = {
            "id": new_id("batch_req_"),
            "custom_id": line.custom_id,
            "response": None,
            "error": None,
        }
        async with gate:
            try:
                raw = msgspec.json.encode({"priority": PRIORITY, **line.body})
                answer = await ENDPOINTS[line.url](self._service, raw)
                outcome["response"] = {"status_code": 200, "request_id": outcome["id"], "body": answer}
                batch["request_counts"]["completed"] += 1
            except SapwoodError as error:
                refusal = refusal_of(error)
                outcome["response"] = {
                    "status_code": refusal.status,
                    "request_id": outcome["id"],
                    "body": refusal.body(),
                }
                batch["request_counts"]["failed"] += 1
        return outcome


async def _end(task: asyncio.Task[None] | None) -> None:
    if task is not None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _keep(storage: Storage, batch: dict[str, Any], outcomes: list[dict[str, Any]]) -> None:
    """Write the output and the error file."""
    good = [o for o in outcomes if o["response"]["status_code"] == 200]
    bad = [o for o in outcomes if o["response"]["status_code"] != 200]
    for key, chosen in (("output_file_id", good), ("error_file_id", bad)):
        if chosen:
            content = b"".join(msgspec.json.encode(outcome) + b"\n" for outcome in chosen)
            batch[key] = storage.add_file(f"{batch['id']}_{key[:-8]}.jsonl", "batch_output", content).id


def parse_lines(content: bytes, endpoint: str) -> list[BatchLine]:
    """The requests of an input file. ApiError with the line's number where one is wrong."""
    lines = []
    for number, raw in enumerate(content.splitlines(), 1):
        if not raw.strip():
            continue
        try:
            line = msgspec.json.decode(raw, type=BatchLine)
        except msgspec.DecodeError as error:
            reason = of_validation(error) if isinstance(error, msgspec.ValidationError) else error
            raise invalid(f"line {number} of the input file: {reason}", "input_file_id") from None
        if line.url != endpoint:
            raise invalid(
                f"line {number} of the input file is for {line.url}, the batch for {endpoint}", "input_file_id"
            )
        lines.append(line)
    if not lines:
        raise invalid("the input file holds no request; write one JSON object a line", "input_file_id")
    return lines


def _error(error: ApiError) -> dict[str, Any]:
    return {"code": error.code, "message": str(error), "param": error.param, "line": None}


@router.post("", openapi_extra=body(BatchRequest))
async def create(request: Request) -> Response:
    """Start a batch."""
    fields = await read(request, msgspec.json.Decoder(BatchRequest))
    if fields.endpoint not in ENDPOINTS:
        raise invalid(f"endpoint is {fields.endpoint!r}; it must be one of {', '.join(ENDPOINTS)}", "endpoint")
    storage = storage_of(request)
    if not storage.files(fields.input_file_id):
        raise ApiError(404, f"there is no file {fields.input_file_id!r}; upload it first", param="input_file_id")
    now = int(time.time())
    batch: dict[str, Any] = {
        "id": new_id("batch_"),
        "object": "batch",
        "endpoint": fields.endpoint,
        "errors": None,
        "input_file_id": fields.input_file_id,
        "completion_window": fields.completion_window,
        "status": "validating",
        "output_file_id": None,
        "error_file_id": None,
        "created_at": now,
        "expires_at": now + 86400,
        "request_counts": {"total": 0, "completed": 0, "failed": 0},
        "metadata": fields.metadata,
    }
    storage.put_batch(batch)
    request.app.state.batches.start(batch)
    return JsonResponse(batch)


@router.get("")
async def list_batches(request: Request) -> Response:
    """All batches."""
    return JsonResponse({"object": "list", "data": storage_of(request).batches(), "has_more": False})


@router.get("/{id}")
async def retrieve(request: Request, id: str) -> Response:
    """One batch."""
    return JsonResponse(_batch(storage_of(request), id))


@router.post("/{id}/cancel")
async def cancel(request: Request, id: str) -> Response:
    """End a batch; what is done already is kept."""
    storage = storage_of(request)
    _batch(storage, id)
    await request.app.state.batches.cancel(id)
    return JsonResponse(_batch(storage, id))


def _batch(storage: Storage, id: str) -> dict[str, Any]:
    found = storage.batches(id)
    if not found:
        raise ApiError(404, f"there is no batch {id!r}", param="id")
    return found[0]
