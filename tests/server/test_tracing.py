"""One OpenTelemetry span a request: what it says, and that nothing is loaded where nobody asked for it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import httpx
import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from sapwood.errors import InvalidRequest
from sapwood.runtime.client import Client
from sapwood.runtime.server.app import create_app
from sapwood.runtime.server.config import ServerConfig
from sapwood.runtime.server.tracing import Spans, open_spans

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def spans_of(client: Client, folder: object, requests: list[tuple[str, dict[str, Any]]]) -> list[ReadableSpan]:
    """The spans that requests (path, body) leave behind."""
    exporter = InMemorySpanExporter()
    spans = Spans(exporter)
    app = create_app(client, ServerConfig(data_dir=str(folder)), spans)

    async def send() -> None:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test", timeout=30) as http:
            await http.get("/health")
            for path, body in requests:
                await http.post(path, json=body, headers={"traceparent": PARENT})

    asyncio.run(send())
    spans.close()
    return list(exporter.get_finished_spans())


def said(span: ReadableSpan) -> Mapping[str, Any]:
    assert span.attributes is not None
    return span.attributes


def test_a_stream_is_one_span_with_its_tokens_and_its_first_one_s_time(backend: Client, tmp_path: object) -> None:
    body = {"prompt": "a span of its own", "max_tokens": 5, "ignore_eos": True, "stream": True}
    first, again = spans_of(backend, tmp_path, [("/v1/completions", body)] * 2)
    assert first.name == "text_completion fake" and first.kind is SpanKind.SERVER
    about = said(first)
    assert about["gen_ai.operation.name"] == "text_completion" and about["gen_ai.response.model"] == "fake"
    assert about["gen_ai.usage.input_tokens"] == 18 and about["gen_ai.usage.output_tokens"] == 5
    assert said(again)["gen_ai.usage.cache_read.input_tokens"] == 17
    assert first.start_time and first.end_time
    assert 0 < about["gen_ai.response.time_to_first_chunk"] < (first.end_time - first.start_time) / 1e9
    assert about["http.response.status_code"] == 200 and first.status.status_code is not StatusCode.ERROR


def test_the_caller_s_trace_goes_on(backend: Client, tmp_path: object) -> None:
    (span,) = spans_of(backend, tmp_path, [("/v1/embeddings", {"input": "a"})])
    assert span.context and f"{span.context.trace_id:032x}" == PARENT.split("-")[1]
    assert span.parent and f"{span.parent.span_id:016x}" == PARENT.split("-")[2]


def test_samples_share_a_span_and_their_prompt_counts_once(backend: Client, tmp_path: object) -> None:
    body = {"prompt": ["abc", "abcdef"], "max_tokens": 4, "ignore_eos": True, "n": 2}
    (span,) = spans_of(backend, tmp_path, [("/v1/completions", body)])
    assert said(span)["gen_ai.usage.input_tokens"] == 4 + 7
    assert said(span)["gen_ai.usage.output_tokens"] == 16
    assert "gen_ai.response.time_to_first_chunk" not in said(span)


def test_a_refused_request_says_so(backend: Client, tmp_path: object) -> None:
    wrong, expired = spans_of(
        backend,
        tmp_path,
        [
            ("/v1/completions", {"prompt": "a", "regex": "(("}),
            ("/v1/completions", {"prompt": "a", "max_tokens": 10**6, "ignore_eos": True, "stream": True, "timeout": 0.2}),
        ],
    )  # fmt: skip
    assert said(wrong)["http.response.status_code"] == 400 and said(wrong)["error.type"] == "GrammarError"
    assert wrong.status.status_code is not StatusCode.ERROR  # the client's mistake
    assert said(expired)["http.response.status_code"] == 200 and said(expired)["error.type"] == "DeadlineExceeded"
    assert expired.status.status_code is StatusCode.ERROR


def test_spans_reach_a_collector() -> None:
    received: list[tuple[str, bytes]] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Collector) as collector:
        Thread(target=collector.serve_forever, daemon=True).start()
        spans = open_spans(f"http://127.0.0.1:{collector.server_address[1]}")
        assert spans is not None
        spans.tracer.start_span("one").end()
        spans.close()
        collector.shutdown()
    assert [path for path, _ in received] == ["/v1/traces"] and b"sapwood" in received[0][1]


def test_without_an_endpoint_nothing_of_the_sdk_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    code = (
        "import sys; from sapwood.runtime.server.tracing import open_spans; import sapwood.runtime.server.serving;"
        "assert open_spans(None) is None;"
        "sys.exit(any(name.startswith(('opentelemetry.sdk', 'opentelemetry.exporter')) for name in sys.modules))"
    )
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_an_endpoint_without_the_packages_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(InvalidRequest, match=r"pip install sapwood\[otel\]"):
        open_spans("http://127.0.0.1:4318")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")  # meant for others, perhaps
    assert open_spans(None) is None
