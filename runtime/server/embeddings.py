"""POST /v1/embeddings: the last token's hidden state or the mean of all, scaled to length one."""

from __future__ import annotations

import base64
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from fastapi import APIRouter, Request
from starlette.responses import Response

from sapwood.runtime.messages import Sampling, Usage
from sapwood.runtime.server.errors import JsonResponse, invalid
from sapwood.runtime.server.fields import decode, read
from sapwood.runtime.server.openai_completions import prompts_of
from sapwood.runtime.server.openapi import body
from sapwood.runtime.server.service import Job, Service, service_of, total
from sapwood.runtime.server.sse import while_connected

router = APIRouter()
Vector = np.ndarray[Any, np.dtype[np.float32]]


class EmbeddingRequest(msgspec.Struct):
    """The body."""

    input: str | list[int | str | list[int]]
    model: str | None = None
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[int, msgspec.Meta(ge=1)] | None = None
    user: str | None = None
    pooling: Literal["last", "mean"] | None = None  # beyond OpenAI: of which tokens' hidden states; None: the last


decoder = msgspec.json.Decoder(EmbeddingRequest)


@router.post("/v1/embeddings", openapi_extra=body(EmbeddingRequest))
async def embeddings(request: Request) -> Response:
    """Vectors of texts."""
    fields = await read(request, decoder)
    return JsonResponse(await while_connected(request, embed(service_of(request), fields)))


async def answer(service: Service, raw: bytes) -> dict[str, Any]:
    """The whole answer to a body, without HTTP: for batches."""
    return await embed(service, decode(raw, decoder))


async def embed(service: Service, fields: EmbeddingRequest) -> dict[str, Any]:
    """The body of the answer."""
    prompts = prompts_of(fields.input, service, "input")
    vectors, usage = await vectors_of(service, prompts, fields.dimensions, fields.pooling or "last")
    data = []
    for index, vector in enumerate(vectors):
        encoded = base64.b64encode(vector.tobytes()).decode() if fields.encoding_format == "base64" else vector.tolist()
        data.append({"object": "embedding", "index": index, "embedding": encoded})
    tokens = {
        "prompt_tokens": usage.prompt_tokens,
        "total_tokens": usage.prompt_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }
    return {"object": "list", "model": service.model, "data": data, "usage": tokens}


async def vectors_of(
    service: Service, prompts: list[list[int]], dimensions: int | None, pooling: Literal["last", "mean"] = "last"
) -> tuple[list[Vector], Usage]:
    """One vector of length one for each prompt, and what they cost."""
    sampling = Sampling(max_tokens=0, temperature=0.0)
    jobs = [Job(ids, sampling, pooling=pooling, timeout=service.config.request_timeout) for ids in prompts]
    results = await service.complete_all(jobs)
    vectors = [unit(np.asarray(result.hidden, np.float32), dimensions) for result in results]
    return vectors, total([result.usage for result in results], prompts=len(prompts))


def unit(vector: Vector, dimensions: int | None) -> Vector:
    """The first `dimensions` of a vector, scaled to length one."""
    if dimensions is not None and dimensions > len(vector):
        raise invalid(f"dimensions is {dimensions}, but this model's vectors have {len(vector)}", "dimensions")
    cut = vector[:dimensions]
    return (cut / max(float(np.linalg.norm(cut)), 1e-12)).astype("<f4")
