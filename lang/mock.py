"""A backend that answers from a script: for tests of programs, without a model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sapwood.errors import InvalidRequest
from sapwood.runtime import fake
from sapwood.runtime.messages import Failed, FinishReason, Generate, Logprob, Reply, Tokens, Usage
from sapwood.runtime.tokenizer import Tokenizer

Script = Callable[[str, Generate], str]


class MockBackend:
    """Answers each generation with what `script(text so far, request)` returns; a list of texts is given out in order.

    A text is cut at stop strings and at max_tokens. All log probabilities are the same, so a select takes its first choice.
    Every request is kept in `requests`.
    """

    def __init__(self, script: Script | list[str]) -> None:
        self.tokenizer: Tokenizer = fake.fake_tokenizer()
        self.requests: list[Generate] = []
        if callable(script):
            self._script: Script = script
        else:
            answers = iter(script)
            self._script = lambda text, request: next(answers)

    def new_rid(self) -> str:
        return str(len(self.requests))

    def submit(self, request: Generate, on_reply: Callable[[Reply], None]) -> MockCall:
        """Answers at once, on the caller's thread."""
        self.requests.append(request)
        try:
            on_reply(self._answer(request))
        except StopIteration:
            on_reply(Failed(request.rid, "invalid", "the mock's script has no more answers"))
        return MockCall()

    def ask(self, what: str, **args: Any) -> Any:
        if what not in ("stats", "flush", "info"):
            raise InvalidRequest(f"the mock backend can't be asked for '{what}'")
        return {}

    def _answer(self, request: Generate) -> Tokens:
        sampling, text = request.sampling, self.tokenizer.decode(request.ids)
        usage = Usage(prompt_tokens=len(request.ids), cached_tokens=0, completion_tokens=0)
        if sampling.prompt_logprobs is not None:
            logprobs = [Logprob(i, -1.0) for i in request.ids[sampling.prompt_logprobs_start :]]
            return Tokens(request.rid, [], prompt_logprobs=logprobs, finish_reason="length", usage=usage)
        answer, matched = self._script(text, request), None
        for stop in sampling.stop:
            if stop in answer:
                answer, matched = answer[: answer.index(stop)], stop
        ids = self.tokenizer.encode(answer)[: sampling.max_tokens]
        usage = Usage(prompt_tokens=len(request.ids), cached_tokens=0, completion_tokens=len(ids))
        reason: FinishReason = "stop" if matched or len(ids) < sampling.max_tokens else "length"
        return Tokens(request.rid, ids, finish_reason=reason, matched=matched, usage=usage)


class MockCall:
    """Over before it can be cancelled."""

    def cancel(self) -> None:
        """Nothing is left to cancel."""
