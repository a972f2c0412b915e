"""GET /v1/models, /health: who is there."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from sapwood.runtime.server.errors import ApiError, JsonResponse
from sapwood.runtime.server.service import Service, service_of

router = APIRouter()


@router.get("/v1/models")
async def models(request: Request) -> Response:
    """The one model that is served."""
    return JsonResponse({"object": "list", "data": [model_card(service_of(request))]})


@router.get("/v1/models/{name:path}")
async def model(request: Request, name: str) -> Response:
    """That model, by name."""
    service = service_of(request)
    if name != service.model:
        message = f"the model {name!r} is not served here; {service.model!r} is"
        raise ApiError(404, message, param="model", code="model_not_found")
    return JsonResponse(model_card(service))


def model_card(service: Service) -> dict[str, Any]:
    """OpenAI's model object."""
    return {
        "id": service.model,
        "object": "model",
        "created": int(service.started),
        "owned_by": "sapwood",
        "max_model_len": service.info.context_length,
    }


@router.get("/health")
async def health(request: Request) -> Response:
    """200 while requests are taken, 503 while draining or without a backend."""
    service = service_of(request)
    if service.draining:
        raise ApiError(503, "the server is shutting down; use another one", code="draining")
    if not service.alive:
        raise ApiError(503, "the backend is being restarted; try again in a moment", code="backend_unavailable")
    return JsonResponse({"status": "ok"})
