"""POST /v1/completions: raw text or token ids, continued."""

from __future__ import annotations

import time
from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import Response

from sapwood.runtime.messages import Logprob, Usage
from sapwood.runtime.server.errors import JsonResponse, invalid
from sapwood.runtime.server.fields import GenerationFields, decode, grammar_of, read, sampling_of
from sapwood.runtime.server.logprobs import completion_logprobs
from sapwood.runtime.server.openapi import body
from sapwood.runtime.server.service import Job, Service, new_id, samples, service_of, total, usage_body
from sapwood.runtime.server.sse import DONE, Events, encode, event, stream, while_connected

if TYPE_CHECKING:
    from sapwood.runtime.client import Completion

DEFAULT_MAX_TOKENS = 16
MAX_PROMPTS = 1024

router = APIRouter()


class CompletionRequest(GenerationFields, kw_only=True):
    """The body of a text completion."""

    prompt: str | list[int | str | list[int]]
    echo: bool | None = None
    logprobs: Annotated[int, msgspec.Meta(ge=0, le=20)] | None = None
    suffix: str | None = None
    best_of: int | None = None


decoder = msgspec.json.Decoder(CompletionRequest)


@router.post("/v1/completions", openapi_extra=body(CompletionRequest))
async def completions(request: Request) -> Response:
    """Continue one or several prompts."""
    fields = await read(request, decoder)
    service = service_of(request)
    prompts = prompts_of(fields.prompt, service)
    told = Answer(service, fields, prompts)
    if fields.stream:
        return await stream(request, told.events())
    return JsonResponse(told.whole(await while_connected(request, service.complete_all(told.jobs))))


async def answer(service: Service, raw: bytes) -> dict[str, Any]:
    """The whole answer to a body, without HTTP: for batches."""
    fields = decode(raw, decoder)
    told = Answer(service, fields, prompts_of(fields.prompt, service))
    return told.whole(await service.complete_all(told.jobs))


def prompts_of(prompt: str | list[int | str | list[int]], service: Service, param: str = "prompt") -> list[list[int]]:
    """The prompts as ids: one text, one list of ids, or a list of either."""
    if isinstance(prompt, str):
        prompts = [service.encode_prompt(prompt, param)]
    elif prompt and all(isinstance(item, int) for item in prompt):
        prompts = [[item for item in prompt if isinstance(item, int)]]
    else:
        prompts = []
        for item in prompt:
            if isinstance(item, int):
                raise invalid(f"{param} mixes token ids with texts or lists; send one kind", param)
            prompts.append(service.encode_prompt(item, param) if isinstance(item, str) else item)
    if not 0 < len(prompts) <= MAX_PROMPTS:
        raise invalid(f"{param} holds {len(prompts)} prompts; send 1 to {MAX_PROMPTS}", param)
    for ids in prompts:
        service.check_prompt(ids, param)
    return prompts


class Answer:
    """One request's answer, whole or as events."""

    def __init__(self, service: Service, fields: CompletionRequest, prompts: list[list[int]]) -> None:
        if fields.suffix:
            raise invalid("suffix (fill in the middle) is not supported; leave it out", "suffix")
        self.n = fields.n or 1
        if fields.best_of not in (None, self.n):
            raise invalid("best_of must equal n or be absent; sample n texts and choose yourself", "best_of")
        self.service = service
        self.fields = fields
        self.prompts = prompts
        self.created = int(time.time())
        self.id = new_id("cmpl-")
        self.echoes = [service.tokenizer.decode(ids, skip_special=True) if fields.echo else "" for ids in prompts]
        self.jobs = [job for ids in prompts for job in samples(self._job(ids), self.n)]

    def _job(self, ids: list[int]) -> Job:
        fields = self.fields
        asked = DEFAULT_MAX_TOKENS if fields.max_tokens is None else fields.max_tokens
        sampling = sampling_of(
            fields,
            max_tokens=self.service.room(ids, asked),
            grammar=grammar_of(fields),
            logprobs=fields.logprobs,
            prompt_logprobs=fields.logprobs if fields.echo else None,
        )
        return self.service.job(ids, sampling, fields)

    def whole(self, results: list[Completion]) -> dict[str, Any]:
        """The body of an answer that isn't streamed."""
        choices = []
        for index, result in enumerate(results):
            echo = self.echoes[index // self.n]
            entries = [*result.prompt_logprobs, *result.logprobs] if self.fields.echo else result.logprobs
            choices.append(
                {
                    "index": index,
                    "text": echo + result.text,
                    "logprobs": self._logprobs(entries, 0),
                    "finish_reason": result.finish_reason,
                }
            )
        usage = total([result.usage for result in results], prompts=len(self.prompts))
        return {**self._head(), "choices": choices, "usage": usage_body(usage)}

    async def events(self) -> Events:
        """The events of a streamed answer."""
        head = encode(self._head())[:-1] + b',"choices":[{"index":'
        usages: list[Usage | None] = [None] * len(self.jobs)
        lens = [len(self.echoes[index // self.n]) for index in range(len(self.jobs))]
        for index in range(len(self.jobs) if self.fields.echo else 0):
            yield self._event(head, index, self.echoes[index // self.n], None, b"null")
        async with aclosing(self.service.stream_all(self.jobs)) as chunks:
            async for index, chunk in chunks:
                logprobs = b"null"
                if self.fields.logprobs is not None:
                    entries = [*chunk.prompt_logprobs, *chunk.logprobs] if self.fields.echo else chunk.logprobs
                    logprobs = encode(self._logprobs(entries, lens[index]))
                lens[index] += len(chunk.text)
                usages[index] = chunk.usage
                yield self._event(head, index, chunk.text, chunk.finish_reason, logprobs)
        if self.fields.include_usage():
            usage = total(usages, prompts=len(self.prompts))
            yield event({**self._head(), "choices": [], "usage": usage_body(usage)})
        yield DONE

    def _head(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": "text_completion",
            "created": self.created,
            "model": self.service.model,
            "system_fingerprint": self.service.fingerprint,
        }

    def _logprobs(self, entries: list[Logprob], offset: int) -> dict[str, Any] | None:
        top = self.fields.logprobs
        return None if top is None else completion_logprobs(entries, self.service.names, offset, top > 0)

    @staticmethod
    def _event(head: bytes, index: int, text: str, reason: str | None, logprobs: bytes) -> bytes:
        tail = b'"stop"}]}\n\n' if reason == "stop" else b'"length"}]}\n\n' if reason else b"null}]}\n\n"
        return b"".join(
            (
                b"data: ",
                head,
                b"%d" % index,
                b',"text":',
                encode(text),
                b',"logprobs":',
                logprobs,
                b',"finish_reason":',
                tail,
            )
        )
