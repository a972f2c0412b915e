"""Speculation: tokens that a drafter expects are computed along with the next one, and kept as far as they come true.

    ids    ... a b c        draft  d e f          one batch: rows for c d e f, logits of each
    chosen after c: d ✓   after d: e ✓   after e: x ✗      ids ... a b c d e x; the slot of f is given back

What is chosen is what would have been chosen anyway, so the text never changes. A draft costs rows; it is made only as long as
it is expected to bring more tokens in that time than the batch brings without it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

from sapwood.errors import OutOfSlots
from sapwood.kernels.plan import Batch, Output
from sapwood.radix.tree import RadixTree
from sapwood.runtime.scheduler.grammars import GrammarJobs
from sapwood.runtime.scheduler.request import RequestState
from sapwood.runtime.scheduler.stats import DEEPEST
from sapwood.runtime.speculative.drafter import Drafter, Wish

RETRY = 24  # tokens after which a request whose drafts don't pay is given another chance
LEARNING = 0.15  # weight of the newest observation


@dataclass(slots=True)
class Luck:
    """How well one request's drafts do."""

    acceptance: float = 0.6  # estimated chance that a drafted token comes true, given those before it did
    is_followed: bool = False  # by the drafter: only from when a draft may pay, since reading a prompt takes it time
    num_since: int = 0  # tokens since the last draft
    num_drafted: int = 0
    num_accepted: int = 0


class Drafts:
    """Decides who gets a draft, and how long a one."""

    def __init__(self, drafter: Drafter, tree: RadixTree, grammars: GrammarJobs) -> None:
        self._drafter = drafter
        self._tree = tree
        self._grammars = grammars
        self._luck: dict[RequestState, Luck] = {}
        self._plain: dict[int, float] = {}  # seconds of a step by its number of rows, without drafts
        self._row_seconds: float | None = None  # of one more row
        self._draft_seconds: float | None = None  # to think of one more token
        self._num_decoding = 0
        self._num_drafted = 0
        self._fresh: set[RequestState] = set()  # those whose drafts lie in slots of their own

    def luck(self, request: RequestState) -> Luck:
        """The counts of a request; zeros if it never was in a batch."""
        return self._luck.get(request) or Luck()

    def start(self, request: RequestState) -> None:
        """A request begins to run, or goes on after it was preempted."""
        self._luck.setdefault(request, Luck())

    def finish(self, request: RequestState) -> None:
        """Forget a request."""
        self._fresh.discard(request)
        luck = self._luck.pop(request, None)
        if luck is not None and luck.is_followed:
            self._drafter.finish(str(request.order))

    def propose(self, decoding: Iterable[RequestState]) -> None:
        """Append drafts to the paths of requests for which it pays."""
        requests = list(decoding)
        self._num_decoding, self._num_drafted = len(requests), 0
        drafted: list[RequestState] = []
        wishes: list[Wish] = []
        for request in requests:
            depth, least = self._depth(request)
            if depth and request.path is not None and self._tree.num_free + self._tree.num_evictable > depth:
                self._follow(request)
                drafted.append(request)
                wishes.append(Wish(str(request.order), request.ids[-1], request.path.slots, depth, least))
        if not wishes:
            return
        began = time.perf_counter()
        drafts = self._drafter.propose(wishes)
        self._learn_cost(time.perf_counter() - began, sum(len(draft.ids) for draft in drafts))
        for request, draft in zip(drafted, drafts, strict=True):
            self._append(request, self._grammars.allowed(request, draft.ids))

    def observe_batch(self, batch: Batch, output: Output) -> None:
        """The target computed a batch."""
        self._drafter.observe(batch, output)

    def settle(self, request: RequestState, num_kept: int) -> None:
        """Take back what of the draft lies beyond the first `num_kept` positions. What others had computed stays as cache."""
        if request.path is not None and len(request.path) > num_kept:
            request.path.truncate(num_kept, discard=request in self._fresh)
        self._fresh.discard(request)

    def accepted(self, request: RequestState, ids: list[int], num_drafted: int, num_accepted: int) -> None:
        """`ids` were added to a request's text; of those drafted for it, the first `num_accepted` came true."""
        luck = self._luck[request]
        if ids and luck.is_followed and self._drafter.needs_texts:
            self._drafter.accept(str(request.order), ids)
        luck.num_since += len(ids)
        if num_drafted:
            luck.num_since = 0
            luck.num_drafted += num_drafted
            luck.num_accepted += num_accepted
            tried = num_accepted + (num_accepted < num_drafted)
            for came_true in [1.0] * num_accepted + [0.0] * (tried - num_accepted):
                luck.acceptance += LEARNING * (came_true - luck.acceptance)

    def observe(self, num_rows: int, seconds: float) -> None:
        """A step of that many rows took that long. Only steps of nothing but decodes teach anything."""
        if num_rows != self._num_decoding + self._num_drafted or not num_rows:
            return
        known = self._plain.get(self._num_decoding)
        if not self._num_drafted:
            self._plain[num_rows] = seconds if known is None else known + LEARNING * (seconds - known)
        elif known is not None:
            found = max(0.0, seconds - known) / self._num_drafted
            old = self._row_seconds
            self._row_seconds = found if old is None else old + LEARNING * (found - old)

    def _learn_cost(self, seconds: float, num_tokens: int) -> None:
        if num_tokens:
            found = seconds / num_tokens
            old = self._draft_seconds
            self._draft_seconds = found if old is None else old + LEARNING * (found - old)

    def _append(self, request: RequestState, draft: list[int]) -> None:
        """Make a draft part of a request's path, if there is room."""
        if not draft or request.path is None:
            return
        before = self._tree.pool.num_taken
        try:
            request.path.extend(draft)
        except OutOfSlots:  # what could be evicted is kept for others
            return
        request.draft = draft
        self._num_drafted += len(draft)
        if self._tree.pool.num_taken - before == len(draft):
            self._fresh.add(request)

    def _follow(self, request: RequestState) -> None:
        luck = self._luck[request]
        if not luck.is_followed:
            luck.is_followed = True
            self._drafter.start(str(request.order), request.ids, request.message.namespace)

    def _depth(self, request: RequestState) -> tuple[int, float]:
        """The number of tokens for which a draft is expected to pay best, and the least chance at which one more does."""
        luck, path = self._luck[request], request.path
        room = request.max_len - len(request.ids) - 1
        settled = request.ending is None and request.next_logit == len(request.ids) - 1
        if path is None or room < 1 or not settled or request.message.want_hidden:
            return 0, 1.0
        plain = self._plain.get(self._num_decoding)
        if plain is None:
            return 0, 1.0  # first see what it costs without
        row = self._row_seconds if self._row_seconds is not None else plain / (self._num_decoding + 4)
        cost = row + (self._draft_seconds or 0.0)
        least = cost * self._num_decoding / plain  # tokens that this time brings without drafts
        best, depth, gain, chance = 0.0, 0, 0.0, 1.0
        for size in range(1, min(DEEPEST, room) + 1):
            chance *= luck.acceptance
            gain += chance
            if gain - size * least > best:
                best, depth = gain - size * least, size
        if not depth and luck.num_since >= RETRY * self._num_decoding:
            return 1, 0.0
        if depth and self._drafter.knows_chances:  # how far a draft goes, its own chances tell better
            depth = min(DEEPEST, room)
        return depth, least
