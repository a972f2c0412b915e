"""From replies to text: what a caller of `Client.generate` and `Client.stream` gets. Knows no sockets and no threads."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from dataclasses import dataclass, field

from sapwood.errors import (
    BackendDied,
    Cancelled,
    DeadlineExceeded,
    GrammarError,
    InvalidRequest,
    Overloaded,
    SapwoodError,
)
from sapwood.runtime.messages import Answer, ErrorKind, Failed, FinishReason, Logprob, Reply, Tokens, Usage

ERRORS: dict[ErrorKind, type[SapwoodError]] = {
    "invalid": InvalidRequest,
    "overloaded": Overloaded,
    "deadline": DeadlineExceeded,
    "cancelled": Cancelled,
    "died": BackendDied,
    "internal": SapwoodError,
}


@dataclass(slots=True)
class Chunk:
    """A piece of a growing answer. The last one has a `finish_reason` and the `usage`."""

    text: str
    ids: list[int]
    logprobs: list[Logprob] = field(default_factory=list)
    prompt_logprobs: list[Logprob] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    matched: str | int | None = None
    usage: Usage | None = None
    hidden: list[float] = field(default_factory=list)


@dataclass(slots=True)
class Completion:
    """A whole answer. `ids` are all generated tokens; `text` is theirs, without a stop string that ended it."""

    ids: list[int]
    text: str
    logprobs: list[Logprob]
    prompt_logprobs: list[Logprob]
    finish_reason: FinishReason
    matched: str | int | None
    usage: Usage
    hidden: list[float]


def error_of(failed: Failed) -> SapwoodError:
    """The exception that a failure stands for."""
    if failed.kind == "grammar":
        return GrammarError(failed.message, failed.where)
    return ERRORS[failed.kind](failed.message)


class Assembler:
    """Turns the replies to one request into chunks; never shows a part of a character."""

    def __init__(self, token_bytes: Sequence[bytes]) -> None:
        self._token_bytes = token_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def chunk(self, reply: Reply) -> Chunk:
        """What a reply brings. Raises the error that a `Failed` stands for."""
        if isinstance(reply, Failed):
            raise error_of(reply)
        assert isinstance(reply, Tokens)
        table = self._token_bytes
        coded = b"".join([table[i] for i in reply.ids if i < len(table)])
        if reply.trim:
            coded = coded[: -reply.trim]
        return Chunk(
            text=self._decoder.decode(coded, final=reply.finish_reason is not None),
            ids=reply.ids,
            logprobs=reply.logprobs,
            prompt_logprobs=reply.prompt_logprobs,
            finish_reason=reply.finish_reason,
            matched=reply.matched,
            usage=reply.usage,
            hidden=reply.hidden,
        )

    def completion(self, reply: Reply) -> Completion:
        """The whole answer that came in one reply."""
        chunk = self.chunk(reply)
        assert chunk.finish_reason is not None and chunk.usage is not None, "asked for without streaming"
        return Completion(
            ids=chunk.ids,
            text=chunk.text,
            logprobs=chunk.logprobs,
            prompt_logprobs=chunk.prompt_logprobs,
            finish_reason=chunk.finish_reason,
            matched=chunk.matched,
            usage=chunk.usage,
            hidden=chunk.hidden,
        )


def value_of(reply: Reply) -> object:
    """The value of an answer. Raises the error that a `Failed` stands for."""
    if isinstance(reply, Failed):
        raise error_of(reply)
    assert isinstance(reply, Answer)
    return reply.value
