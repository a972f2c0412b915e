"""POST /generate, by SGLang's contract: one or many texts, cumulative streams, its logprob layouts."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import Response

from sapwood.errors import Cancelled
from sapwood.runtime.messages import Logprob, Usage
from sapwood.runtime.server.errors import JsonResponse, invalid
from sapwood.runtime.server.fields import read
from sapwood.runtime.server.logprobs import TokenNames
from sapwood.runtime.server.native_fields import GenerateRequest, SamplingParams, sampling_of
from sapwood.runtime.server.openapi import body
from sapwood.runtime.server.service import Job, Service, new_id, samples, service_of
from sapwood.runtime.server.sse import DONE, Events, event, stream, while_connected

router = APIRouter()
decoder = msgspec.json.Decoder(GenerateRequest)
REFUSED = ("image_data", "video_data", "audio_data", "input_embeds", "lora_path", "token_ids_logprob")


@router.post("/generate", openapi_extra=body(GenerateRequest))
@router.put("/generate", include_in_schema=False)
async def generate(request: Request) -> Response:
    """Continue one text, or a list of them."""
    fields = await read(request, decoder)
    service = service_of(request)
    batch = Batch(service, fields)
    if fields.stream:
        return await stream(request, batch.events())
    return JsonResponse(await while_connected(request, batch.whole()))


@dataclass
class Sample:
    """One of the answers while it grows."""

    rid: str
    job: Job
    start: int | None  # first prompt position with a logprob
    with_text: bool
    text: str = ""
    ids: list[int] = field(default_factory=list)
    logprobs: list[Logprob] = field(default_factory=list)
    prompt_logprobs: list[Logprob] = field(default_factory=list)
    reason: dict[str, Any] | None = None
    usage: Usage | None = None


class Batch:
    """All samples of one request."""

    def __init__(self, service: Service, fields: GenerateRequest) -> None:
        for name in REFUSED:
            if getattr(fields, name):
                raise invalid(f"{name} is not supported; leave it out", name)
        self.service = service
        self.fields = fields
        self.started = time.perf_counter()
        self.single, prompts = prompts_of(service, fields)
        self.samples: list[Sample] = []
        for index, ids in enumerate(prompts):
            params = _nth(fields.sampling_params, index) or SamplingParams()
            n = params.n or 1
            if not 1 <= n <= 128:
                raise invalid(f"n must be between 1 and 128, got {n}", "n")
            self.single = self.single and n == 1
            self.samples += self._samples(index, ids, params, n)

    def _samples(self, index: int, ids: list[int], params: SamplingParams, n: int) -> list[Sample]:
        fields = self.fields
        wanted = _nth(fields.return_logprob, index)
        start = self._start(index, ids, params) if wanted else None
        top = (_nth(fields.top_logprobs_num, index) or 0) if wanted else None
        sampling = sampling_of(params, logprobs=top, prompt_start=start, room=self.service.room(ids, None))
        job = Job(
            ids=ids,
            sampling=sampling,
            namespace=fields.cache_salt or fields.extra_key or "",
            priority=fields.priority or 0,
            timeout=self.service.config.request_timeout,
        )
        rid = _nth(fields.rid, index) or new_id("")
        names = [rid] if n == 1 else [f"{rid}-{i}" for i in range(n)]
        with_text = bool(fields.return_text_in_logprobs)
        return [Sample(name, one, start, with_text) for name, one in zip(names, samples(job, n), strict=True)]

    def _start(self, index: int, ids: list[int], params: SamplingParams) -> int | None:
        """Where prompt logprobs begin; SGLang's -1 (and absence) means at the end: none."""
        start: int | None = _nth(self.fields.logprob_start_len, index)
        if start is None and self._legacy() and params.max_new_tokens == 0 and self.fields.input_ids is not None:
            return 0  # its frontend scores choices alone so, and says no start
        if start is None or start < 0:
            return None
        if start >= len(ids):
            raise invalid(f"logprob_start_len is {start}, but the prompt has {len(ids)} tokens", "logprob_start_len")
        return start

    def _legacy(self) -> bool:
        return self.service.config.logprob_layout == "legacy"

    async def whole(self) -> Any:
        """The answer that isn't streamed."""
        async with aclosing(self._chunks()) as chunks:
            async for _ in chunks:
                pass
        results = [self._result(sample, sample.logprobs) for sample in self.samples]
        return results[0] if self.single else results

    async def events(self) -> Events:
        """One event a chunk: text and ids so far, log probabilities of the new tokens only."""
        seen = [0] * len(self.samples)
        async with aclosing(self._chunks()) as chunks:
            async for index in chunks:
                sample = self.samples[index]
                result = self._result(sample, sample.logprobs[seen[index] :])
                seen[index] = len(sample.logprobs)
                yield event(result if self.single else {**result, "index": index})
        yield DONE

    async def _chunks(self) -> Any:
        """Run all samples; yields the index of the one that grew. An aborted one ends with what it has."""
        jobs = [sample.job for sample in self.samples]
        rids = [sample.rid for sample in self.samples]
        async with aclosing(self.service.stream_all(jobs, rids)) as chunks:
            try:
                async for index, chunk in chunks:
                    sample = self.samples[index]
                    sample.text += chunk.text
                    sample.ids += chunk.ids
                    sample.logprobs += chunk.logprobs
                    sample.prompt_logprobs += chunk.prompt_logprobs
                    if chunk.finish_reason is not None:
                        sample.usage = chunk.usage
                        sample.reason = _reason(chunk.finish_reason, chunk.matched, sample)
                    yield index
            except Cancelled as error:
                for index, sample in enumerate(self.samples):
                    if sample.reason is None:
                        sample.reason = {"type": "abort", "message": str(error), "status_code": None, "err_type": None}
                        yield index

    def _result(self, sample: Sample, new: Sequence[Logprob]) -> dict[str, Any]:
        usage = sample.usage or Usage(len(sample.job.ids), 0, len(sample.ids))
        meta: dict[str, Any] = {
            "id": sample.rid,
            "finish_reason": sample.reason,
            "prompt_tokens": usage.prompt_tokens,
            "completion_tokens": usage.completion_tokens,
            "cached_tokens": usage.cached_tokens,
            "reasoning_tokens": 0,
            "jumped_tokens": usage.jumped_tokens,
            "weight_version": "default",
            "num_retractions": 0,
            "e2e_latency": time.perf_counter() - self.started,
        }
        if sample.job.sampling.logprobs is not None:
            meta |= self._logprobs(sample, new)
        result = {"text": sample.text, "output_ids": sample.ids, "meta_info": meta}
        if self.fields.return_prompt_token_ids:
            result["prompt_token_ids"] = sample.job.ids
        return result

    def _logprobs(self, sample: Sample, new: Sequence[Logprob]) -> dict[str, Any]:
        names = self.service.names if sample.with_text else None
        prompt = in_layout(sample.prompt_logprobs, sample.start, legacy=self._legacy())
        meta: dict[str, Any] = {
            "input_token_logprobs": [_entry(entry.logprob, entry.id, names) for entry in prompt],
            "output_token_logprobs": [_entry(entry.logprob, entry.id, names) for entry in new],
            "output_token_logprobs_length": len(sample.logprobs),
        }
        if sample.job.sampling.logprobs:
            meta["input_top_logprobs"] = [_top(entry, names) for entry in prompt]
            meta["output_top_logprobs"] = [_top(entry, names) for entry in new]
        return meta


def in_layout(prompt: Sequence[Logprob], start: int | None, *, legacy: bool) -> list[Logprob]:
    """Prompt logprobs as a version of SGLang lays them out.

    current: from `start` on, the first one null. legacy: from `start + 1` on, all real; from 0, the first one null.
    """
    if not prompt or start is None:
        return []
    if legacy and start > 0:
        return list(prompt[1:])
    return [Logprob(prompt[0].id, None), *prompt[1:]]


def prompts_of(service: Service, fields: GenerateRequest) -> tuple[bool, list[list[int]]]:
    """Whether a single prompt was sent, and the prompts as ids."""
    if (fields.text is None) == (fields.input_ids is None):
        raise invalid("send either text or input_ids", "text")
    if fields.text is not None:
        single = isinstance(fields.text, str)
        texts = [fields.text] if isinstance(fields.text, str) else fields.text
        prompts = [service.encode_prompt(text, "text") for text in texts]
    else:
        assert fields.input_ids is not None
        flat = [item for item in fields.input_ids if isinstance(item, int)]
        single = len(flat) == len(fields.input_ids)
        if flat and not single:
            raise invalid("input_ids mixes ids and lists of ids; send one list, or a list of lists", "input_ids")
        prompts = [flat] if single else [item for item in fields.input_ids if isinstance(item, list)]
    if not prompts:
        raise invalid("the list of prompts is empty; send at least one", "text")
    for ids in prompts:
        service.check_prompt(ids, "text" if fields.text is not None else "input_ids")
    return single, prompts


def _nth(value: Any, index: int) -> Any:
    """A field that is given once for all prompts, or as a list with one for each."""
    if not isinstance(value, list):
        return value
    if index >= len(value):
        raise invalid(f"a list has {len(value)} entries, but there are more prompts; give one for each")
    return value[index]


def _reason(reason: str, matched: str | int | None, sample: Sample) -> dict[str, Any]:
    if reason == "length":
        return {"type": "length", "length": len(sample.ids)}
    return {"type": "stop", "matched": matched}


def _entry(logprob: float | None, id: int, names: TokenNames | None) -> tuple[float | None, int, str | None]:
    return logprob, id, names.text_of(id) if names else None


def _top(entry: Logprob, names: TokenNames | None) -> list[tuple[float | None, int, str | None]] | None:
    return None if entry.logprob is None else [_entry(logprob, id, names) for id, logprob in entry.top]
