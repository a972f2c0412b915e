"""A small client for OpenAI-compatible servers on the standard library alone, which counts what it gets."""

from __future__ import annotations

import http.client
import json
import threading
import time
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from sapwood.errors import InvalidRequest, SapwoodError

TIMEOUT = 900.0


class Failure(SapwoodError):
    """A server answered with an error, or with something else than was asked for."""


@dataclass
class Tally:
    """What came back, over all requests of a workload."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    first: list[float] = field(default_factory=list)  # seconds to the first token, one a stream
    between: list[float] = field(default_factory=list)  # seconds between tokens


class Api:
    """One server. Every call opens its own connection, so calls may run in any thread."""

    def __init__(self, url: str, model: str | None, key: str, extra: dict[str, Any]) -> None:
        self.url = url.rstrip("/")
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidRequest(f"{url!r} is no server's address; write it like http://127.0.0.1:8000/v1")
        self._https = parts.scheme == "https"
        self._place = (parts.hostname, parts.port or (443 if self._https else 80))
        self._path = parts.path or "/v1"
        self._headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
        self._extra = extra
        self._lock = threading.Lock()
        self.tally = Tally()
        self.model = model or self._first_model()

    def complete(self, prompt: str, max_tokens: int) -> str:
        """Continue a text."""
        return str(self._post("/completions", {"prompt": prompt, "max_tokens": max_tokens})["text"])

    def chat(self, messages: list[dict[str, str]], max_tokens: int, **more: Any) -> str:
        """Answer a conversation. `more` may set fields of the request, None to leave an extra out."""
        choice = self._post("/chat/completions", {"messages": messages, "max_tokens": max_tokens, **more})
        return str(choice["message"]["content"] or "")

    def stream(self, prompt: str, max_tokens: int) -> None:
        """Continue a text and time its tokens."""
        body = {"prompt": prompt, "max_tokens": max_tokens, "stream": True, "stream_options": {"include_usage": True}}
        started = last = time.perf_counter()
        first, between = None, []
        connection, response = self._open("POST", "/completions", self._body(body))
        for line in response:
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[6:])
            self._count(event.get("usage"))
            if event.get("choices") and event["choices"][0].get("text"):
                now = time.perf_counter()
                if first is None:
                    first = now - started
                else:
                    between.append(now - last)
                last = now
        connection.close()
        with self._lock:
            self.tally.first += [first] if first is not None else []
            self.tally.between += between

    def _first_model(self) -> str:
        connection, response = self._open("GET", "/models", None)
        name = str(json.loads(response.read())["data"][0]["id"])
        connection.close()
        return name

    def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        connection, response = self._open("POST", path, self._body(body))
        answer = json.loads(response.read())
        connection.close()
        self._count(answer.get("usage"))
        choice: dict[str, Any] = answer["choices"][0]
        return choice

    def _body(self, body: dict[str, Any]) -> bytes:
        whole = {"model": self.model, "temperature": 0, **self._extra, **body}
        return json.dumps({name: value for name, value in whole.items() if value is not None}).encode()

    def _open(self, method: str, path: str, body: bytes | None) -> tuple[Any, http.client.HTTPResponse]:
        kind = http.client.HTTPSConnection if self._https else http.client.HTTPConnection
        connection = kind(*self._place, timeout=TIMEOUT)
        try:
            connection.request(method, self._path + path, body, self._headers)
            response = connection.getresponse()
        except OSError as error:
            raise Failure(f"{self.url} can't be reached: {error}") from None
        if response.status != 200:
            raise Failure(f"{path} answered {response.status}: {response.read()[:300].decode('utf-8', 'replace')}")
        return connection, response

    def _count(self, usage: dict[str, Any] | None) -> None:
        if not usage:
            return
        details = usage.get("prompt_tokens_details") or {}
        with self._lock:
            self.tally.prompt_tokens += usage.get("prompt_tokens", 0)
            self.tally.completion_tokens += usage.get("completion_tokens", 0)
            self.tally.cached_tokens += details.get("cached_tokens") or 0
