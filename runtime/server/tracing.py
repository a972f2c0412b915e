"""One OpenTelemetry span a request, if an OTLP endpoint is given. Nothing of OpenTelemetry's SDK is imported otherwise.

The layer opens a record for each request that generates; whatever runs on the request's behalf finds it by a context variable
and writes down what the span is to say, under the names of the semantic conventions for generative AI.
"""

from __future__ import annotations

import os
import time
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

import sapwood
from sapwood.errors import InvalidRequest
from sapwood.runtime.messages import Usage

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

OPERATIONS = {
    "/v1/chat/completions": "chat",
    "/v1/responses": "chat",
    "/v1/messages": "chat",
    "/api/chat": "chat",
    "/v1/completions": "text_completion",
    "/generate": "text_completion",
    "/api/generate": "text_completion",
    "/v1/embeddings": "embeddings",
    "/api/embed": "embeddings",
}
ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"  # OpenTelemetry's own variable


class Spans:
    """Owns the way to the collector. `close` sends what is left."""

    def __init__(self, exporter: SpanExporter) -> None:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        name = os.environ.get("OTEL_SERVICE_NAME", "sapwood")
        about = Resource.create({"service.name": name, "service.version": sapwood.__version__})
        self._provider = TracerProvider(resource=about, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self.tracer = self._provider.get_tracer("sapwood", sapwood.__version__)

    def close(self) -> None:
        """Send what is left; this may take seconds where the collector doesn't answer."""
        self._provider.shutdown()


def open_spans(endpoint: str | None) -> Spans | None:
    """Spans to an OTLP collector at `endpoint` (http://host:4318), or at OpenTelemetry's own variable; None without either.

    Raises InvalidRequest if `endpoint` is given and the packages are missing; the variable alone then means nothing.
    """
    found = endpoint or os.environ.get(ENDPOINT)
    if not found:
        return None
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ImportError:
        if endpoint is None:
            return None
        raise InvalidRequest(
            "--otlp-endpoint needs OpenTelemetry's packages; install them with `pip install sapwood[otel]`"
        ) from None
    path = "" if found.endswith("/v1/traces") else "/v1/traces"
    return Spans(OTLPSpanExporter(endpoint=found.rstrip("/") + path))


class Tracing:
    """The layer: one span for each request that generates."""

    def __init__(self, app: ASGIApp, model: str, spans: Spans) -> None:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._app = app
        self._model = model
        self._tracer = spans.tracer
        self._propagator = TraceContextTextMapPropagator()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        operation = OPERATIONS.get(scope["path"]) if scope["type"] == "http" and scope["method"] == "POST" else None
        if operation is None:
            await self._app(scope, receive, send)
            return
        from opentelemetry.trace import SpanKind, StatusCode

        status = 500

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        carrier = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        span = self._tracer.start_span(
            f"{operation} {self._model}", context=self._propagator.extract(carrier), kind=SpanKind.SERVER
        )
        record = Record()
        token = _current.set(record)
        try:
            await self._app(scope, receive, noting)
        finally:
            _current.reset(token)
            span.set_attributes(
                {
                    "gen_ai.operation.name": operation,
                    "gen_ai.provider.name": "sapwood",
                    "gen_ai.response.model": self._model,
                    "http.response.status_code": status,
                    **record.attributes(),
                }
            )
            if status >= 500 or (record.error and status < 400):
                span.set_status(StatusCode.ERROR)
            span.end()


@dataclass
class Record:
    """What is known of a request."""

    started: float = field(default_factory=time.perf_counter)
    first: float | None = None  # seconds to the first token, of streams
    error: str | None = None
    usages: list[tuple[list[int], Usage]] = field(default_factory=list)  # of each sample, with its prompt

    def attributes(self) -> dict[str, Any]:
        """By their names in the semantic conventions. A prompt of several samples counts once."""
        found: dict[str, Any] = {}
        if self.usages:
            prompts = {id(ids): usage for ids, usage in reversed(self.usages)}.values()
            found["gen_ai.usage.input_tokens"] = sum(usage.prompt_tokens for usage in prompts)
            found["gen_ai.usage.cache_read.input_tokens"] = sum(usage.cached_tokens for usage in prompts)
            found["gen_ai.usage.output_tokens"] = sum(usage.completion_tokens for _, usage in self.usages)
        if self.first is not None:
            found["gen_ai.response.time_to_first_chunk"] = self.first
        if self.error is not None:
            found["error.type"] = self.error
        return found


_current: ContextVar[Record | None] = ContextVar("request", default=None)


def current() -> Record | None:
    """The record of the request on whose behalf this runs."""
    return _current.get()
