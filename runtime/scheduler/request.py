"""A request while the backend has it: data only. What a feature needs beyond this, the feature keeps itself."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from sapwood.radix.path import Path
from sapwood.runtime.messages import FinishReason, Generate, Logprob


@dataclass(frozen=True, slots=True)
class Ending:
    """Why and where the text ends."""

    reason: FinishReason
    matched: str | int | None = None
    trim: int = 0  # bytes at the end of the text that belong to a stop string


@dataclass(slots=True, eq=False)
class RequestState:
    """One `Generate` and how far it has come.

        ids      prompt ............ | output .................
                 0                   prompt_len               len(ids)
        logits   done and used ........... | next_logit ... wanted

    Logits at position p score or choose the token at p + 1. A request that just decodes wants those of its last position
    only; prompt logprobs and the logprobs of jumped tokens move `next_logit` back.
    """

    client: bytes  # routing id of the socket that sent it
    message: Generate
    order: int  # of arrival
    arrived: float  # time.monotonic()
    seed: int
    ids: list[int]
    prompt_len: int
    max_len: int  # prompt and output together never get longer
    next_logit: int
    path: Path | None = None  # while running: covers all of `ids`, and `draft`
    draft: list[int] = field(default_factory=list)  # expected after `ids`; in the path, but not chosen yet
    ending: Ending | None = None  # nothing is chosen any more; logprobs may still be missing
    num_own_rows: int = 0  # prompt positions computed on its behalf
    num_jumped: int = 0
    num_clear: int = 0  # output tokens that can't be part of a stop string any more
    num_sent: int = 0  # output tokens sent
    prompt_logprobs: list[Logprob] = field(default_factory=list)
    logprobs: list[Logprob] = field(default_factory=list)  # of the output, from its first token on
    hidden: list[float] = field(default_factory=list)
    _array: NDArray[np.int32] | None = None  # what `array` gave last

    @property
    def array(self) -> NDArray[np.int32]:
        """`ids` as int32, for the tree; made once as long as nothing is added."""
        if self._array is None or len(self._array) != len(self.ids):
            self._array = np.asarray(self.ids, np.int32)
        return self._array

    @property
    def num_output(self) -> int:
        return len(self.ids) - self.prompt_len

    @property
    def only_reads(self) -> bool:
        """Nothing is generated: the prompt is computed (and scored, if asked for)."""
        return self.message.sampling.max_tokens == 0

    @property
    def end_of_rows(self) -> int:
        """Positions before this one must be computed."""
        if self.ending is None or self.only_reads:
            return len(self.ids) + len(self.draft)
        return len(self.ids) - 1

    @property
    def num_missing(self) -> int:
        """Positions that must still be computed, for it or for others too."""
        return len(self.ids) if self.path is None else self.end_of_rows - self.path.num_computed

    @property
    def end_of_logits(self) -> int:
        """Positions before this one, from `next_logit` on, have logits that are wanted."""
        if self.ending is None or (self.only_reads and self.message.want_hidden):
            return len(self.ids) + len(self.draft)
        return len(self.ids) - 1

    @property
    def is_complete(self) -> bool:
        """It has ended and nothing that was asked for is missing."""
        if self.ending is None or self.next_logit < self.end_of_logits:
            return False
        return not self.only_reads or (self.path is not None and self.path.num_computed == self.prompt_len)

    @property
    def num_cached(self) -> int:
        """Prompt tokens whose keys and values were not computed on its behalf, but by others, before or beside it."""
        present = 0 if self.path is None else min(self.prompt_len, self.path.num_computed)
        return max(0, present - self.num_own_rows)

    @property
    def key(self) -> tuple[bytes, str]:
        """Names it among all clients' requests."""
        return self.client, self.message.rid
