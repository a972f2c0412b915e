"""Programs on an OpenAI-compatible server: this library's own, vLLM, llama.cpp, a vendor's.

Such a server takes text, so a state's ids are its bytes here. Turns become chat messages; text without turns goes to
/completions. What the server has no field for is refused when the program asks for it, before any call is made.
"""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count
from typing import Any

from sapwood.lang.expressions import GRAMMARS
from sapwood.lang.textual import ByteTokenizer, turns_of
from sapwood.runtime.messages import Failed, FinishReason, Generate, Logprob, Reply, Sampling, Tokens, Usage

CONNECTIONS = 32


class OpenAICall:
    """A request that may not have begun yet."""

    def __init__(self, future: Future[None], state: dict[str, bool]) -> None:
        self._future, self._state = future, state

    def cancel(self) -> None:
        self._state["cancelled"] = True
        self._future.cancel()


class OpenAI:
    """A server by its address, such as http://127.0.0.1:8000/v1.

    `grammars`: which of regex, json_schema, ... it takes; plain servers know json_schema only, in chats.
    `selects`: whether /completions answers `echo` with logprobs.
    """

    def __init__(
        self,
        model: str | None = None,
        *,
        base_url: str = "https://api.openai.com/v1",
        api_key: str | None = None,
        grammars: tuple[str, ...] = ("json_schema",),
        selects: bool = False,
    ) -> None:
        self.tokenizer = ByteTokenizer()
        self.lacks = frozenset({*GRAMMARS} - {*grammars} | (set() if selects else {"select"}))
        self._url = base_url.rstrip("/")
        self._key = api_key or os.environ.get("OPENAI_API_KEY", "none")
        self._pool = ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="sapwood-openai")
        self._numbers = count(1)
        self._model = model

    def new_rid(self) -> str:
        return str(next(self._numbers))

    def submit(self, request: Generate, on_reply: Callable[[Reply], None]) -> OpenAICall:
        state: dict[str, bool] = {}
        return OpenAICall(self._pool.submit(self._run, request, on_reply, state), state)

    def ask(self, what: str, **args: Any) -> Any:
        """The server's models; "flush" and "stats" of Sapwood's and SGLang's servers, which have routes for them."""
        root = self._url.removesuffix("/v1")
        if what == "flush":
            with self._open(f"{root}/flush_cache", {}, 10):
                return None
        path = f"{root}/server_info" if what == "stats" else f"{self._url}/models"
        with self._open(path, None, 10) as response:
            return json.load(response)

    @property
    def model(self) -> str:
        """The model that is asked for: the first that the server names, unless one was chosen."""
        if self._model is None:
            self._model = str(self.ask("info")["data"][0]["id"])
        return self._model

    def _run(self, request: Generate, on_reply: Callable[[Reply], None], state: dict[str, bool]) -> None:
        try:
            for reply in self._replies(request):
                if state.get("cancelled"):
                    on_reply(Failed(request.rid, "cancelled", "the request was cancelled"))
                    return
                on_reply(reply)
        except urllib.error.HTTPError as error:
            said = error.read().decode("utf-8", "replace")[:500]
            kind = "overloaded" if error.code in (429, 503) else "invalid" if error.code < 500 else "internal"
            on_reply(Failed(request.rid, kind, f"the server answered {error.code}: {said}"))  # type: ignore[arg-type]
        except (OSError, ValueError, KeyError) as error:
            on_reply(Failed(request.rid, "died", f"the server at {self._url} can't be used: {error!r}"))

    def _replies(self, request: Generate) -> Iterator[Reply]:
        sampling = request.sampling
        text = self.tokenizer.decode(request.ids)
        turns = turns_of(text)
        if sampling.prompt_logprobs is not None:
            yield self._scored(request, text)
            return
        body: dict[str, Any] = {"model": self.model, **_fields(sampling)}
        if turns:
            body["messages"] = turns if turns[-1]["content"] else turns[:-1]
            if turns[-1]["content"]:
                body |= {"add_generation_prompt": False, "continue_final_message": True}
        else:
            body["prompt"] = text
        path = f"{self._url}{'/chat' if turns else ''}/completions"
        if request.stream:
            yield from self._streamed(
                request, path, {**body, "stream": True, "stream_options": {"include_usage": True}}
            )
            return
        with self._open(path, body, request.timeout) as response:
            answer = json.load(response)
        choice = answer["choices"][0]
        ids = self.tokenizer.encode(_text_of(choice))
        yield Tokens(request.rid, ids, finish_reason=_reason(choice), usage=_usage(answer))

    def _streamed(self, request: Generate, path: str, body: dict[str, Any]) -> Iterator[Reply]:
        """One reply for each event, and a last one with the counts."""
        reason: FinishReason = "stop"
        usage = Usage(0, 0, 0)
        with self._open(path, body, request.timeout) as response:
            for line in response:
                if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
                    continue
                event = json.loads(line[6:])
                if event.get("usage"):
                    usage = _usage(event)
                for choice in event["choices"]:
                    reason = _reason(choice)
                    if text := _text_of(choice):
                        yield Tokens(request.rid, self.tokenizer.encode(text))
        yield Tokens(request.rid, [], finish_reason=reason, usage=usage)

    def _scored(self, request: Generate, text: str) -> Tokens:
        """Log probabilities of the prompt: one for each byte at which a token of the server begins, None for the others."""
        body = {"model": self.model, "prompt": text, "max_tokens": 1, "echo": True, "logprobs": 1, "temperature": 0}
        with self._open(f"{self._url}/completions", body, request.timeout) as response:
            found = json.load(response)["choices"][0]["logprobs"]
        start, at, coded = request.sampling.prompt_logprobs_start, 0, text.encode()
        by_byte: dict[int, float | None] = {}
        for token, logprob in zip(found["tokens"], found["token_logprobs"], strict=True):
            if by_byte or coded.startswith(token.encode()):  # before the text there may be the model's first token
                by_byte[at] = logprob
                at += len(token.encode())
        logprobs = [Logprob(i, by_byte.get(n)) for n, i in enumerate(request.ids) if n >= start]
        return Tokens(
            request.rid, [], prompt_logprobs=logprobs, finish_reason="length", usage=Usage(len(by_byte) - 1, 0, 0)
        )

    def _open(self, url: str, body: dict[str, Any] | None, timeout: float | None) -> Any:
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self._key}"}
        data = None if body is None else json.dumps(body).encode()
        return urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=timeout)


def _text_of(choice: dict[str, Any]) -> str:
    message = choice.get("message") or choice.get("delta") or choice
    return message.get("content") or message.get("text") or ""


def _reason(choice: dict[str, Any]) -> FinishReason:
    return "length" if choice.get("finish_reason") == "length" else "stop"


def _usage(answer: dict[str, Any]) -> Usage:
    usage = answer.get("usage") or {}
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    return Usage(usage.get("prompt_tokens", 0), cached, usage.get("completion_tokens", 0))


def _fields(sampling: Sampling) -> dict[str, Any]:
    """Sampling as the API names it; only what was changed, so that plain servers need no extensions."""
    fields: dict[str, Any] = {"max_tokens": sampling.max_tokens, "temperature": sampling.temperature}
    default = Sampling()
    for name in (
        "top_p", "stop", "seed", "presence_penalty", "frequency_penalty", "top_k", "min_p", "repetition_penalty",
        "ignore_eos", "stop_token_ids", "logit_bias", "min_tokens",
    ):  # fmt: skip
        if getattr(sampling, name) != getattr(default, name):
            fields[name] = getattr(sampling, name)
    grammar = sampling.grammar
    if grammar is not None and grammar.kind == "json_schema":
        schema = {"name": "answer", "schema": json.loads(grammar.text), "strict": True}
        fields["response_format"] = {"type": "json_schema", "json_schema": schema}
    elif grammar is not None:
        fields[grammar.kind] = grammar.text
    return fields
