"""A client whose model says what the test wrote down, for what a model of random weights never says."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any

from sapwood.runtime.client import Client
from sapwood.runtime.completion import Assembler, Chunk, Completion
from sapwood.runtime.fake import fake_tokenizer
from sapwood.runtime.messages import Sampling, Tokens, Usage


class Scripted:
    """Answers everything with `text`, `chunk_len` tokens (bytes) at a time. `sampling` is what was asked for last."""

    is_alive = True

    def __init__(self, backend: Client, text: str, *, template: str | None = None, chunk_len: int = 1) -> None:
        self.info = backend.info
        self.tokenizer = fake_tokenizer()
        if template is not None:
            self.tokenizer.chat_template = template
        self.ids = list(text.encode())
        self.chunk_len = chunk_len
        self.prompt = ""
        self.sampling = Sampling()

    async def astream(self, prompt: Sequence[int], sampling: Sampling, **fields: Any) -> AsyncGenerator[Chunk, None]:
        """The script, cut into chunks."""
        self.prompt, self.sampling = self.tokenizer.decode(list(prompt)), sampling
        assembler = Assembler(self.tokenizer.token_bytes)
        for start in range(0, len(self.ids), self.chunk_len):
            yield assembler.chunk(Tokens("1", self.ids[start : start + self.chunk_len]))
        usage = Usage(len(prompt), 0, len(self.ids))
        yield assembler.chunk(Tokens("1", [], finish_reason="stop", usage=usage))

    async def agenerate(self, prompt: Sequence[int], sampling: Sampling, **fields: Any) -> Completion:
        """The script, whole."""
        self.prompt, self.sampling = self.tokenizer.decode(list(prompt)), sampling
        usage = Usage(len(prompt), 0, len(self.ids))
        whole = Tokens("1", self.ids, finish_reason="stop", usage=usage)
        return Assembler(self.tokenizer.token_bytes).completion(whole)
