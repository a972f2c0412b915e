"""Masks of a step, filled by a thread while the step's batch runs: the run is native and leaves Python to others.

What comes after a token is known as soon as it is accepted. So before a batch runs, the thread is given the matchers of those
who will choose from it, and nobody else touches them until it is done. Along a draft it fills the masks of each position,
which are needed if the draft comes true.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from sapwood.errors import GrammarError
from sapwood.runtime.scheduler.grammars import GrammarJobs
from sapwood.runtime.scheduler.request import RequestState

Mask = NDArray[np.uint32]
Masks = dict[int, "Mask | GrammarError"]  # by the number of ids before


class MaskFiller:
    """`start` before a run, `take` after it."""

    def __init__(self, grammars: GrammarJobs) -> None:
        self._grammars = grammars
        self._pool: ThreadPoolExecutor | None = None
        self._filling: Future[dict[RequestState, Masks]] | None = None

    def start(self, requests: Sequence[RequestState]) -> None:
        """Begin to fill what these may need; those without a grammar are passed over."""
        self._filling = None
        constrained = [request for request in requests if self._grammars.matcher(request) is not None]
        if not constrained:
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="masks")
        self._filling = self._pool.submit(self._fill_all, constrained)

    def wait(self) -> None:
        """Return when the matchers are the caller's again."""
        if self._filling is not None:
            self._filling.result()

    def take(self, request: RequestState) -> Mask | None:
        """The mask for the request's next token; None if it has no grammar. Raises GrammarError."""
        masks = {} if self._filling is None else self._filling.result().get(request, {})
        mask = masks.get(len(request.ids))
        if isinstance(mask, GrammarError):
            raise mask
        return self._fill(request) if mask is None else mask

    def _fill_all(self, requests: Sequence[RequestState]) -> dict[RequestState, Masks]:
        return {request: self._fill_along(request) for request in requests}

    def _fill_along(self, request: RequestState) -> Masks:
        """The masks after the request's ids and after each token of its draft, as far as the grammar allows these."""
        matcher = self._grammars.matcher(request)
        assert matcher is not None
        masks: Masks = {}
        taken, size = 0, len(request.ids)
        try:
            for token in [*request.draft, None]:
                mask = self._fill(request)
                assert mask is not None
                masks[size + taken] = mask
                if token is None or not mask[token // 32] >> token % 32 & 1:
                    break
                matcher.advance(token)
                taken += 1
        except GrammarError as error:
            masks[size + taken] = error
        matcher.rollback(taken)
        return masks

    def _fill(self, request: RequestState) -> Mask | None:
        matcher = self._grammars.matcher(request)
        if matcher is None:
            return None
        mask = matcher.mask()
        if not request.message.sampling.jump and (forced := matcher.jump()):
            return _only(forced[0], len(mask))  # so that jumping never changes the ids
        return mask


def _only(token: int, num_words: int) -> Mask:
    """A mask that allows one token."""
    mask = np.zeros(num_words, np.uint32)
    mask[token // 32] = 1 << (token % 32)
    return mask
