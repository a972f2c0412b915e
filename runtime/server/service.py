"""What all routes stand on: one client, the running jobs, and the counters. Knows no API's layout."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from starlette.requests import Request

from sapwood.runtime.messages import ModelInfo, Sampling, Usage
from sapwood.runtime.server.config import ServerConfig
from sapwood.runtime.server.errors import ApiError, invalid
from sapwood.runtime.server.fields import GenerationFields, sample
from sapwood.runtime.server.logprobs import TokenNames
from sapwood.runtime.server.metrics import Metrics

if TYPE_CHECKING:
    from sapwood.runtime.client import Chunk, Client, Completion
    from sapwood.runtime.tokenizer import Tokenizer


@dataclass(frozen=True)
class Job:
    """One text to continue."""

    ids: list[int]
    sampling: Sampling
    namespace: str = ""
    priority: int = 0
    timeout: float | None = None
    pooling: Literal["last", "mean"] | None = None  # the hidden state that is wanted, if any


@dataclass
class Service:
    """The state of one server. Routes reach it through `service_of(request)`."""

    client: Client
    config: ServerConfig
    metrics: Metrics = field(default_factory=Metrics)
    started: float = field(default_factory=time.time)
    draining: bool = False
    _running: set[str] = field(default_factory=set)

    @property
    def info(self) -> ModelInfo:
        """What the backend serves."""
        return self.client.info

    @property
    def alive(self) -> bool:
        """Whether the backend answers."""
        return self.client.is_alive

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer."""
        return self.client.tokenizer

    @property
    def model(self) -> str:
        """The name under which the model is served."""
        return self.config.served_model_name or self.info.name

    @property
    def fingerprint(self) -> str:
        """OpenAI's `system_fingerprint`."""
        return f"sapwood-{self.info.fingerprint[:12]}"

    @cached_property
    def names(self) -> TokenNames:
        """What tokens are called in log probabilities."""
        return TokenNames(self.tokenizer)

    def encode_prompt(self, text: str, param: str) -> list[int]:
        """Ids of a raw prompt: special tokens in it count, and the model's beginning-of-text goes before it."""
        if not text:
            raise invalid("the prompt is empty; give at least one character to continue", param)
        return self.tokenizer.encode(text, special=True, bos=True)

    def check_prompt(self, ids: Sequence[int], param: str) -> None:
        """Refuse what can't be continued: nothing at all, unknown ids, more than the context holds."""
        if not ids:
            raise invalid("the prompt is empty; give at least one token to continue", param)
        if max(ids) >= self.info.vocab_size or min(ids) < 0:
            raise invalid(f"token ids must be between 0 and {self.info.vocab_size - 1}", param)
        if len(ids) >= self.info.context_length:
            raise invalid(
                f"the prompt has {len(ids)} tokens, but this model's context length is {self.info.context_length} "
                "and at least one must be left for the answer; shorten the prompt",
                param,
                "context_length_exceeded",
            )

    def room(self, ids: Sequence[int], asked: int | None) -> int:
        """How many tokens may follow `ids`: what was asked for, never more than the context has left."""
        left = self.info.context_length - len(ids)
        return left if asked is None else min(asked, left)

    def job(self, ids: list[int], sampling: Sampling, fields: GenerationFields) -> Job:
        """A job with the request's own cache salt, priority and deadline."""
        return Job(
            ids=ids,
            sampling=sampling,
            namespace=fields.cache_salt or "",
            priority=fields.priority or 0,
            timeout=fields.timeout or self.config.request_timeout,
        )

    async def complete(self, job: Job) -> Completion:
        """Run one job to its end."""
        with self.metrics.request() as watch:
            result = await self.client.agenerate(job.ids, job.sampling, **self._fields(job))
            watch.finish(job.ids, result.usage)
            return result

    async def complete_all(self, jobs: Sequence[Job]) -> list[Completion]:
        """Run jobs side by side; when one fails, the others are cancelled and its error is raised."""
        if len(jobs) == 1:
            return [await self.complete(jobs[0])]
        tasks = [asyncio.ensure_future(self.complete(job)) for job in jobs]
        try:
            return list(await asyncio.gather(*tasks))
        finally:
            await _cancel(tasks)

    async def stream(self, job: Job, rid: str | None = None) -> AsyncGenerator[Chunk, None]:
        """Run one job, chunk by chunk. Closing the generator ends the job; so does `abort` with its `rid`."""
        fields = self._fields(job)
        if rid is not None:
            fields["rid"] = rid
        with self.metrics.request() as watch, self._named(rid):
            async with aclosing(self.client.astream(job.ids, job.sampling, **fields)) as chunks:
                async for chunk in chunks:
                    watch.chunk(len(chunk.ids))
                    if chunk.usage is not None:
                        watch.finish(job.ids, chunk.usage)
                    yield chunk

    async def stream_all(
        self, jobs: Sequence[Job], rids: Sequence[str] | None = None
    ) -> AsyncGenerator[tuple[int, Chunk], None]:
        """Run jobs side by side; chunks come with the index of their job."""
        if len(jobs) == 1:
            async with aclosing(self.stream(jobs[0], rids[0] if rids else None)) as chunks:
                async for chunk in chunks:
                    yield 0, chunk
            return
        queue: asyncio.Queue[tuple[int, Chunk | None]] = asyncio.Queue()

        async def pump(index: int, job: Job) -> None:
            try:
                async with aclosing(self.stream(job, rids[index] if rids else None)) as chunks:
                    async for chunk in chunks:
                        queue.put_nowait((index, chunk))
            finally:
                queue.put_nowait((index, None))

        tasks = [asyncio.ensure_future(pump(index, job)) for index, job in enumerate(jobs)]
        try:
            for _ in tasks:
                while (item := await queue.get())[1] is not None:
                    yield item[0], item[1]
                if tasks[item[0]].done() or await asyncio.wait([tasks[item[0]]]):
                    tasks[item[0]].result()
        finally:
            await _cancel(tasks)

    def _fields(self, job: Job) -> dict[str, Any]:
        fields: dict[str, Any] = {"namespace": job.namespace, "priority": job.priority, "timeout": job.timeout}
        if job.pooling is not None:
            fields |= {"want_hidden": True, "pooling": job.pooling}
        return fields

    @contextmanager
    def _named(self, rid: str | None) -> Iterator[None]:
        if rid is None:
            yield
            return
        if rid in self._running:
            raise ApiError(409, f"a request with the id {rid!r} is running; choose another", param="rid")
        self._running.add(rid)
        try:
            yield
        finally:
            self._running.discard(rid)

    def abort(self, prefix: str) -> int:
        """Cancel named requests whose id begins with `prefix`; returns how many."""
        found = [rid for rid in self._running if rid.startswith(prefix)]
        for rid in found:
            self.client.abort(rid)
        return len(found)


def samples(job: Job, n: int) -> list[Job]:
    """`n` jobs with the same prompt and seeds of their own."""
    if n == 1:
        return [job]
    return [
        Job(job.ids, sample(job.sampling, i), job.namespace, job.priority, job.timeout, job.pooling) for i in range(n)
    ]


def total(usages: Sequence[Usage | None], *, prompts: int = 1) -> Usage:
    """Counts of several samples together; prompt tokens count once for each of `prompts` prompts."""
    known = [usage for usage in usages if usage is not None]
    per_prompt = max(len(usages) // prompts, 1)
    firsts = known[::per_prompt]
    return Usage(
        prompt_tokens=sum(usage.prompt_tokens for usage in firsts),
        cached_tokens=sum(usage.cached_tokens for usage in firsts),
        completion_tokens=sum(usage.completion_tokens for usage in known),
        jumped_tokens=sum(usage.jumped_tokens for usage in known),
        drafted_tokens=sum(usage.drafted_tokens for usage in known),
        accepted_tokens=sum(usage.accepted_tokens for usage in known),
    )


def usage_body(usage: Usage, num_reasoning: int = 0) -> dict[str, Any]:
    """OpenAI's `usage`; cached tokens always, what grammars and drafts saved beside them."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {
            "reasoning_tokens": num_reasoning,
            "accepted_prediction_tokens": usage.accepted_tokens,
            "rejected_prediction_tokens": usage.drafted_tokens - usage.accepted_tokens,
            "jumped_tokens": usage.jumped_tokens,
        },
    }


def service_of(request: Request) -> Service:
    """The app's service."""
    service: Service = request.app.state.service
    return service


def new_id(prefix: str) -> str:
    """A fresh id such as `chatcmpl-3f...`."""
    return f"{prefix}{uuid.uuid4().hex}"


async def _cancel(tasks: Sequence[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
