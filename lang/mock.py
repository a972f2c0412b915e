"""A scripted backend for tests of programs: no model, no process, answers that the test wrote."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any

from sapwood.lang.textual import ByteTokenizer, plain
from sapwood.runtime.messages import Failed, Generate, Logprob, Reply, Tokens, Usage

Answer = str | Exception
Script = Callable[[str, Generate], Answer]


class MockCall:
    def cancel(self) -> None:
        """Nothing runs that could be given up."""


class MockBackend:
    """Answers each generation with what `script(text so far, request)` returns; a list of texts is given out in order.

    An exception as an answer fails that call. A text is cut at stop strings and at max_tokens, which are bytes here. A select
    takes a choice that is among `prefers`, else its first. `requests` and `prompts` keep what was asked.

        backend = MockBackend(["Paris", "2 million"], prefers=["yes"])
        state = program.run(backend=backend)
    """

    def __init__(self, script: Iterable[Answer] | Script = (), prefers: Iterable[str] = ()) -> None:
        self.tokenizer = ByteTokenizer()
        self.prompts: list[str] = []
        self.requests: list[Generate] = []
        self._script: Script | deque[Answer] = script if callable(script) else deque(script)
        self._prefers = tuple(prefers)
        self._numbers = count(1)
        self._waiting: deque[tuple[Generate, Callable[[Reply], None]]] = deque()
        self._is_answering = False

    def new_rid(self) -> str:
        return str(next(self._numbers))

    def submit(self, request: Generate, on_reply: Callable[[Reply], None]) -> MockCall:
        """Answer at once; what an answer leads to is answered after it, not inside it."""
        self._waiting.append((request, on_reply))
        if not self._is_answering:
            self._is_answering = True
            try:
                while self._waiting:
                    asked, answer = self._waiting.popleft()
                    answer(self._reply(asked))
            finally:
                self._is_answering = False
        return MockCall()

    def ask(self, what: str, **args: Any) -> Any:
        """Nothing is known of a mock but how often it was asked."""
        return {"requests": len(self.requests)}

    def _reply(self, request: Generate) -> Reply:
        prompt = self.tokenizer.decode(request.ids)
        sampling = request.sampling
        self.requests.append(request)
        self.prompts.append(plain(prompt))
        usage = Usage(len(request.ids), 0, 0)
        if sampling.prompt_logprobs is not None:
            likely = -0.1 if prompt.endswith(self._prefers) else -1.0
            scored = request.ids[sampling.prompt_logprobs_start :]
            logprobs = [Logprob(token, likely) for token in scored]
            return Tokens(request.rid, [], prompt_logprobs=logprobs, finish_reason="length", usage=usage)
        answer = self._next(request)
        if isinstance(answer, Exception):
            return Failed(request.rid, "internal", str(answer))
        cut = min((at for stop in sampling.stop if (at := answer.find(stop)) >= 0), default=None)
        matched = None if cut is None else next(stop for stop in sampling.stop if answer[cut:].startswith(stop))
        ids = self.tokenizer.encode(answer if cut is None else answer[:cut])
        reason = "length" if len(ids) > sampling.max_tokens else "stop"
        usage = Usage(len(request.ids), 0, min(len(ids), sampling.max_tokens))
        return Tokens(request.rid, ids[: sampling.max_tokens], finish_reason=reason, matched=matched, usage=usage)  # type: ignore[arg-type]

    def _next(self, request: Generate) -> Answer:
        if isinstance(self._script, deque):
            return self._script.popleft() if self._script else ValueError("the mock's script has no more answers")
        return self._script(self.prompts[-1], request)
