"""Keys, limits, clients that go away, files and batches, what is measured."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import openai
import pytest

from sapwood.errors import InvalidRequest
from sapwood.runtime.client import Client
from sapwood.runtime.server.serving import listen
from sapwood.runtime.server.sse import EventStream

Serve = Callable[..., str]
ENDLESS = {"prompt": "on and on", "max_tokens": 10**6, "ignore_eos": True}


def wait_until(true: Callable[[], bool], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.01)


def running(http: httpx.Client) -> float:
    lines = http.get("/metrics").text.splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith("sglang:num_running_reqs ")))


def test_a_key_opens_everything_and_no_key_only_health_and_the_page(serve: Serve) -> None:
    url = serve(api_keys=("first", "second"))
    with httpx.Client(base_url=url) as http:
        assert http.get("/health").status_code == 200 and http.get("/").status_code == 200
        for path in ("/v1/models", "/metrics", "/server_info", "/watch"):
            refused = http.get(path)
            assert refused.status_code == 401 and refused.json()["error"]["type"] == "authentication_error"
        for key in ("first", "second"):
            assert http.get("/v1/models", headers={"Authorization": f"Bearer {key}"}).status_code == 200
        assert http.get("/v1/models", headers={"x-api-key": "first"}).status_code == 200
        assert http.get("/v1/models", headers={"Authorization": "Bearer firs"}).status_code == 401


def test_an_admin_key_takes_the_admin_routes_from_the_others(serve: Serve) -> None:
    url = serve(api_keys=("user",), admin_keys=("root",))
    with httpx.Client(base_url=url) as http:
        assert http.post("/flush_cache", headers={"Authorization": "Bearer user"}).status_code == 401
        assert http.post("/flush_cache", headers={"Authorization": "Bearer root"}).status_code == 200
        assert http.get("/v1/models", headers={"Authorization": "Bearer root"}).status_code == 200


def test_a_body_that_is_too_large_is_refused(serve: Serve) -> None:
    with httpx.Client(base_url=serve(max_body=1000)) as http:
        assert http.post("/v1/completions", json={"prompt": "x" * 2000}).status_code == 413
        chunked = http.post("/v1/completions", content=(b" " * 100 for _ in range(20)))
        assert chunked.status_code == 413


def test_more_requests_than_allowed_are_told_to_come_back(serve: Serve) -> None:
    with httpx.Client(base_url=serve(max_concurrency=1)) as http:
        with http.stream("POST", "/v1/completions", json={**ENDLESS, "stream": True}) as first:
            lines = first.iter_lines()  # dropping it would end the stream
            next(lines)
            refused = http.post("/v1/completions", json={"prompt": "a"})
        assert refused.status_code == 429 and refused.headers["retry-after"] == "1"
        wait_until(lambda: http.post("/v1/completions", json={"prompt": "a", "max_tokens": 1}).status_code == 200)


def test_a_full_queue_is_a_429_and_costs_the_others_nothing(serve: Serve) -> None:
    with Client.launch("fake", max_queue=1, max_running=1, threads=1) as narrow, ThreadPoolExecutor(12) as pool:
        url = serve(narrow)
        body = {"prompt": "a", "max_tokens": 300, "ignore_eos": True}
        statuses = list(
            pool.map(lambda _: httpx.post(f"{url}/v1/completions", json=body, timeout=30).status_code, range(12))
        )
    assert set(statuses) == {200, 429}


def test_cors_is_off_unless_asked_for(serve: Serve) -> None:
    origin = {"Origin": "http://a.example"}
    assert "access-control-allow-origin" not in httpx.get(serve() + "/health", headers=origin).headers
    allowed = httpx.get(serve(cors_origins=("http://a.example",)) + "/health", headers=origin)
    assert allowed.headers["access-control-allow-origin"] == "http://a.example"


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_goes_away_frees_its_slots(http: httpx.Client, backend: Client, stream: bool) -> None:
    try:
        with httpx.stream(
            "POST", f"{http.base_url}/v1/completions", json={**ENDLESS, "stream": stream}, timeout=0.3
        ) as one:
            next(one.iter_lines())
    except httpx.ReadTimeout:
        pass
    wait_until(lambda: running(http) == 0)
    wait_until(lambda: not backend.ask("stats")["num_running"])  # type: ignore[index]


def test_a_stream_closes_its_source_when_the_client_disconnects() -> None:
    closed = []

    async def scenario() -> None:
        async def source():  # type: ignore[no-untyped-def]
            try:
                while True:
                    yield b"data: 1\n\n"
                    await asyncio.sleep(0.001)
            finally:
                closed.append(True)

        events = source()
        response = EventStream(await anext(events), events, lambda error: b"", None)

        async def receive() -> dict[str, str]:
            await asyncio.sleep(0.01)
            return {"type": "http.disconnect"}

        async def send(message: object) -> None:
            pass

        await response({"type": "http"}, receive, send)  # type: ignore[arg-type]

    asyncio.run(scenario())
    assert closed == [True]


def test_metrics_carry_sglangs_names(http: httpx.Client) -> None:
    http.post("/v1/completions", json={"prompt": "count me", "max_tokens": 3})
    text = http.get("/metrics").text
    for name in (
        "num_requests_total",
        "prompt_tokens_total",
        "generation_tokens_total",
        "time_to_first_token_seconds_count",
    ):
        assert f"sglang:{name}" in text


def test_the_live_tree_is_streamed(http: httpx.Client) -> None:
    http.post("/v1/completions", json={"prompt": "a tree to see", "max_tokens": 3})
    with http.stream("GET", "/watch") as stream:
        seen = json.loads(next(stream.iter_lines()).removeprefix("data: "))
    assert seen["stats"]["num_slots"] > 0 and seen["tree"]["children"]


def test_a_pinned_prefix_survives(http: httpx.Client) -> None:
    assert http.post("/pin", json={"text": "keep this in mind"}).json()["pinned_tokens"] == 18
    assert http.post("/unpin", json={"text": "keep this in mind"}).status_code == 200


def test_a_snapshot_brings_the_tree_back(http: httpx.Client) -> None:
    prompt = {"prompt": "a text that is worth keeping over a restart", "max_tokens": 1}
    http.post("/v1/completions", json=prompt)
    assert http.post("/cache/save", json={"name": "first"}).json()["num_tokens"] > 0
    assert http.post("/flush_cache").status_code == 200
    assert http.post("/cache/load", json={"name": "first"}).json()["num_tokens"] > 0
    usage = http.post("/v1/completions", json=prompt).json()["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] >= usage["prompt_tokens"] - 1
    assert http.post("/cache/load", json={"name": "second"}).status_code == 404
    for name in ("", "../out", "/tmp/out", "a/b"):
        assert http.post("/cache/save", json={"name": name}).status_code == 400


def test_a_port_in_use_is_one_clear_sentence() -> None:
    with listen("127.0.0.1", 0) as taken, pytest.raises(InvalidRequest, match="is in use.*--port"):
        listen("127.0.0.1", taken.getsockname()[1])


def test_a_batch_runs_and_its_results_are_kept_over_a_restart(serve: Serve, tmp_path: Path) -> None:
    lines = [
        {"custom_id": str(i), "method": "POST", "url": "/v1/completions", "body": {"prompt": "go", "regex": regex}}
        for i, regex in enumerate(["one", "two", "(("])
    ]
    folder = str(tmp_path / "kept")
    first = openai.OpenAI(base_url=serve(data_dir=folder) + "/v1", api_key="none", max_retries=0)
    content = "\n".join(map(json.dumps, lines)).encode()
    file = first.files.create(file=("in.jsonl", content), purpose="batch")
    assert file.bytes == len(content) and first.files.content(file.id).content == content
    batch = first.batches.create(input_file_id=file.id, endpoint="/v1/completions", completion_window="24h")
    wait_until(lambda: first.batches.retrieve(batch.id).status == "completed")
    second = openai.OpenAI(base_url=serve(data_dir=folder) + "/v1", api_key="none", max_retries=0)
    done = second.batches.retrieve(batch.id)
    assert done.request_counts and (done.request_counts.completed, done.request_counts.failed) == (2, 1)
    results = [json.loads(line) for line in second.files.content(done.output_file_id or "").text.splitlines()]
    texts = {result["custom_id"]: result["response"]["body"]["choices"][0]["text"] for result in results}
    assert texts == {"0": "one", "1": "two"}
    failed = json.loads(second.files.content(done.error_file_id or "").text)
    assert failed["custom_id"] == "2" and failed["response"]["status_code"] == 400
    second.files.delete(file.id)
    with pytest.raises(openai.NotFoundError):
        first.files.retrieve(file.id)
    first.close()
    second.close()


def test_a_batch_with_a_broken_line_fails_and_names_it(serve: Serve) -> None:
    with openai.OpenAI(base_url=serve() + "/v1", api_key="none", max_retries=0) as ai:
        file = ai.files.create(file=("in.jsonl", b'{"custom_id": "1"}'), purpose="batch")
        batch = ai.batches.create(input_file_id=file.id, endpoint="/v1/completions", completion_window="24h")
        wait_until(lambda: ai.batches.retrieve(batch.id).status == "failed")
        errors = ai.batches.retrieve(batch.id).errors
        assert errors and errors.data and "line 1" in (errors.data[0].message or "")


def test_the_page_is_complete_and_asks_nobody_else(http: httpx.Client) -> None:
    page = http.get("/")
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'self'" in page.headers["content-security-policy"]
    for name in (
        "style.css",
        "main.js",
        "api.js",
        "chat.js",
        "conversation.js",
        "settings.js",
        "tree.js",
        "charts.js",
        "tip.js",
    ):
        part = http.get(f"/page/{name}")
        assert part.status_code == 200 and "https://" not in part.text
    assert http.get("/page/..%2Fapp.py").status_code == 404
