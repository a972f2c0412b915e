"""A whole backend in the test's own process, without sockets: requests in, finished texts out."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from sapwood.runtime.assembly import System, assemble
from sapwood.runtime.fake import fake_tokenizer
from sapwood.runtime.messages import Failed, Generate, Logprob, Sampling, Tokens, Usage
from sapwood.runtime.options import BackendOptions

CLIENT = b"test"
TOKENIZER = fake_tokenizer()


@dataclass(slots=True)
class Outcome:
    """All that came back for one request."""

    ids: list[int] = field(default_factory=list)
    logprobs: list[Logprob] = field(default_factory=list)
    prompt_logprobs: list[Logprob] = field(default_factory=list)
    chunks: list[list[int]] = field(default_factory=list)
    last: Tokens | None = None
    failed: Failed | None = None

    @property
    def text(self) -> str:
        assert self.last is not None, self.failed
        coded = b"".join(TOKENIZER.token_bytes[i] for i in self.ids)
        return coded[: len(coded) - self.last.trim].decode("utf-8", "replace")

    @property
    def usage(self) -> Usage:
        assert self.last is not None and self.last.usage is not None, self.failed
        return self.last.usage


class Driver:
    """Steps a system by hand and collects what it replies. The tree is checked after each step."""

    def __init__(self, **options: Any) -> None:
        self.system: System = assemble(
            BackendOptions(
                **{"model": "fake", "check": True, "num_slots": 2048, "threads": 1, "speculative": "off", **options}
            )
        )
        self.scheduler = self.system.scheduler
        self.tree = self.system.tree
        self.outcomes: dict[str, Outcome] = {}
        self.batches: list[int] = []  # rows of each step
        inner = self.system.plan.run

        def counted(batch: Any) -> Any:
            self.batches.append(len(batch.ids))
            return inner(batch)

        self.system.plan.run = counted  # type: ignore[method-assign]

    @property
    def num_rows(self) -> int:
        """Rows computed so far."""
        return sum(self.batches)

    def submit(self, rid: str, prompt: str | list[int], client: bytes = CLIENT, **fields: Any) -> None:
        """Send one request; what isn't a field of `Generate` is one of `Sampling`."""
        own = {name: fields.pop(name) for name in list(fields) if name in Generate.__struct_fields__}
        ids = TOKENIZER.encode(prompt) if isinstance(prompt, str) else prompt
        self.outcomes[rid] = Outcome()
        self.scheduler.submit(client, Generate(rid, ids, Sampling(**{"temperature": 0.0, **fields}), **own))

    def step(self, count: int = 1) -> None:
        for _ in range(count):
            self.scheduler.step()
            self.collect()

    def finish(self) -> dict[str, Outcome]:
        """Step until nobody is left."""
        until = time.monotonic() + 30
        while self.scheduler.num_live:
            assert time.monotonic() < until, "requests are stuck"
            if not self.scheduler.busy:
                time.sleep(0.001)  # a grammar compiles
            self.step()
        self.collect()
        return self.outcomes

    def collect(self) -> None:
        for replies in self.scheduler.outbox.take().values():
            for reply in replies:
                outcome = self.outcomes[reply.rid]
                if isinstance(reply, Failed):
                    outcome.failed = reply
                    continue
                assert isinstance(reply, Tokens) and outcome.last is None
                outcome.chunks.append(reply.ids)
                outcome.ids += reply.ids
                outcome.logprobs += reply.logprobs
                outcome.prompt_logprobs += reply.prompt_logprobs
                if reply.finish_reason is not None:
                    outcome.last = reply

    def complete(self, prompt: str | list[int], **fields: Any) -> Outcome:
        """One request from start to end, alone."""
        rid = f"alone-{len(self.outcomes)}"
        self.submit(rid, prompt, **fields)
        return self.finish()[rid]


def alone(prompt: str | list[int], **fields: Any) -> Outcome:
    """One request in a fresh system: nothing cached, nobody beside it."""
    return Driver().complete(prompt, **fields)
