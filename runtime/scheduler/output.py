"""What becomes of each chosen token: logprobs, grammar, jumps, stop strings, length, and the messages that tell the client.

Knows nothing of the tree, slots or batches: a token is appended to `RequestState.ids`, and an `Ending` says that it was the last.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sapwood.errors import (
    BackendDied,
    Cancelled,
    DeadlineExceeded,
    GrammarError,
    InvalidRequest,
    Overloaded,
)
from sapwood.kernels.sampling import Sampled, SampleRow
from sapwood.runtime.engine.choosing import Chooser
from sapwood.runtime.messages import Answer, ErrorKind, Failed, Logprob, Reply, Tokens, Usage
from sapwood.runtime.scheduler.grammars import GrammarJobs
from sapwood.runtime.scheduler.masks import MaskFiller
from sapwood.runtime.scheduler.request import Ending, RequestState
from sapwood.runtime.scheduler.stops import StopStrings

KINDS: list[tuple[type[Exception], ErrorKind]] = [
    (GrammarError, "grammar"),
    (InvalidRequest, "invalid"),
    (Overloaded, "overloaded"),
    (DeadlineExceeded, "deadline"),
    (Cancelled, "cancelled"),
    (BackendDied, "died"),
]


class Tokenizer(Protocol):
    """What is needed to know of a vocabulary."""

    @property
    def token_bytes(self) -> Sequence[bytes]: ...
    @property
    def eos_ids(self) -> frozenset[int]: ...


class Outbox:
    """Replies of this step, by client."""

    def __init__(self) -> None:
        self.replies: dict[bytes, list[Reply]] = {}

    def put(self, client: bytes, reply: Reply) -> None:
        self.replies.setdefault(client, []).append(reply)

    def fail(self, client: bytes, rid: str, error: Exception) -> None:
        """Tell a client that its request failed."""
        kinds = (kind for error_type, kind in KINDS if isinstance(error, error_type))
        kind: ErrorKind = next(kinds, "internal")
        self.put(client, Failed(rid, kind, str(error), getattr(error, "where", None)))

    def answer(self, client: bytes, rid: str, value: object) -> None:
        self.put(client, Answer(rid, value))

    def take(self) -> dict[bytes, list[Reply]]:
        """All replies so far, which are then gone from here."""
        replies, self.replies = self.replies, {}
        return replies


class OutputProcessor:
    """Owns how each request's text goes on: its chooser, its matcher, its stop strings."""

    def __init__(self, tokenizer: Tokenizer, grammars: GrammarJobs, outbox: Outbox) -> None:
        self._token_bytes = tokenizer.token_bytes
        self._eos_ids = tokenizer.eos_ids
        self._grammars = grammars
        self.masks = MaskFiller(grammars)
        self._outbox = outbox
        self._choosers: dict[RequestState, Chooser] = {}
        self._ends: dict[RequestState, frozenset[int]] = {}
        self._stops: dict[RequestState, StopStrings] = {}
        self._sums: dict[RequestState, NDArray[np.float64]] = {}  # of hidden states, until all are there

    def begin(self, request: RequestState) -> None:
        """A request with its grammar ready, before it is queued. What the grammar forces at the start is appended."""
        sampling = request.message.sampling
        request.next_logit = _first_logit(request)
        if sampling.prompt_logprobs is not None and sampling.prompt_logprobs_start == 0:
            request.prompt_logprobs.append(Logprob(request.ids[0], None))
        if request.only_reads:
            request.ending = Ending("length")
            return
        ends = frozenset(sampling.stop_token_ids)
        if not sampling.ignore_eos or sampling.grammar is not None:
            ends |= self._eos_ids
        self._ends[request] = ends
        self._choosers[request] = Chooser(sampling, request.seed, request.ids, ends)
        if sampling.stop:
            self._stops[request] = StopStrings(sampling.stop)
        self._jump(request)
        if sampling.logprobs is None and sampling.prompt_logprobs is None and not _wants_mean(request):
            request.next_logit = len(request.ids) - 1

    def row(self, request: RequestState) -> SampleRow:
        """How the request's next token is to be chosen."""
        return self._choosers[request].row(request.ids, self.masks.take(request))

    def accept(self, request: RequestState, sampled: Sampled) -> None:
        """A token was chosen: append it and what it forces, or end the text."""
        token = sampled.id
        if token in self._ends[request]:
            request.ending = Ending("stop", token)
            request.num_clear = request.num_output
            return
        wants_logprobs = request.message.sampling.logprobs is not None
        if wants_logprobs:
            request.logprobs.append(Logprob(token, sampled.logprob, sampled.top))
        matcher = self._grammars.matcher(request)
        if matcher is not None:
            matcher.advance(token)
        self._append(request, token)
        if matcher is not None and request.ending is None:
            self._jump(request)
        if not wants_logprobs:
            request.next_logit = len(request.ids) - 1

    def score(self, request: RequestState, position: int, scored: Sequence[Sampled]) -> None:
        """Logprobs of the request's tokens from `position` on, as far as they are asked for."""
        sampling = request.message.sampling
        for at, one in enumerate(scored, position):
            of_prompt = at < request.prompt_len
            num_top = sampling.prompt_logprobs if of_prompt else sampling.logprobs
            if num_top is not None:
                logprobs = request.prompt_logprobs if of_prompt else request.logprobs
                logprobs.append(Logprob(one.id, one.logprob, one.top[:num_top]))

    def pool(self, request: RequestState, position: int, hidden: NDArray[np.float32]) -> None:
        """The hidden states [positions, width] from `position` on: keep the last, or add those of the prompt up.

        One by one in float64, so that the mean doesn't depend on how the prompt was cut into steps.
        """
        if not _wants_mean(request):
            request.hidden = hidden[-1].tolist()
        elif position < request.prompt_len:
            sums = self._sums.setdefault(request, np.zeros(hidden.shape[1]))
            for row in hidden[: request.prompt_len - position]:
                sums += row
            request.hidden = (sums / request.prompt_len).tolist()

    def emit(self, request: RequestState) -> None:
        """Send what is new and can be no part of a stop string."""
        ready = request.num_clear
        if request.message.sampling.logprobs is not None:
            ready = min(ready, len(request.logprobs))
        if ready > request.num_sent:
            self._outbox.put(request.client, self._tokens(request, ready))

    def emit_last(self, request: RequestState, num_drafted: int, num_accepted: int) -> None:
        """Send the end of the text."""
        ending = request.ending
        assert ending is not None
        last = self._tokens(request, request.num_output)
        last.finish_reason, last.matched, last.trim = ending.reason, ending.matched, ending.trim
        last.hidden = request.hidden
        last.usage = Usage(
            prompt_tokens=request.prompt_len,
            cached_tokens=request.num_cached,
            completion_tokens=request.num_output,
            jumped_tokens=request.num_jumped,
            drafted_tokens=num_drafted,
            accepted_tokens=num_accepted,
        )
        self._outbox.put(request.client, last)

    def finish(self, request: RequestState) -> None:
        """Forget a request."""
        self._choosers.pop(request, None)
        self._ends.pop(request, None)
        self._stops.pop(request, None)
        self._sums.pop(request, None)
        self._grammars.finish(request)

    def _tokens(self, request: RequestState, ready: int) -> Tokens:
        first = request.prompt_len + request.num_sent
        tokens = Tokens(request.message.rid, request.ids[first : request.prompt_len + ready])
        if request.logprobs:
            tokens.logprobs = request.logprobs[request.num_sent : ready]
        if request.prompt_logprobs:
            tokens.prompt_logprobs, request.prompt_logprobs = request.prompt_logprobs, []
        request.num_sent = ready
        return tokens

    def _append(self, request: RequestState, token: int) -> None:
        """Append a token; ends the text at a stop string, the length limit or the grammar's end."""
        request.ids.append(token)
        num_held = 0
        stops = self._stops.get(request)
        if stops is not None and request.num_output >= request.message.sampling.min_tokens:
            matched = stops.push(self._token_bytes[token] if token < len(self._token_bytes) else b"")
            if matched is not None:
                request.ending = Ending("stop", matched, stops.trim)
            num_held = stops.num_held
        if request.ending is None:
            matcher = self._grammars.matcher(request)
            if matcher is not None and matcher.is_done():
                request.ending = Ending("stop")
            elif len(request.ids) >= request.max_len:
                request.ending = Ending("length")
        request.num_clear = request.num_output if request.ending is not None else request.num_output - num_held

    def _jump(self, request: RequestState) -> None:
        """Append the tokens that the grammar forces now."""
        matcher = self._grammars.matcher(request)
        if matcher is None or not request.message.sampling.jump:
            return
        for token in matcher.jump():
            matcher.advance(token)
            request.num_jumped += 1
            self._append(request, token)
            if request.ending is not None:
                return


def _wants_mean(request: RequestState) -> bool:
    return request.message.want_hidden and request.message.pooling == "mean"


def _first_logit(request: RequestState) -> int:
    """The first position whose logits are wanted."""
    sampling = request.message.sampling
    if sampling.prompt_logprobs is not None:
        return max(0, sampling.prompt_logprobs_start - 1)
    if _wants_mean(request):
        return 0
    return request.prompt_len if request.only_reads and not request.message.want_hidden else request.prompt_len - 1
