"""The scheduler: takes requests, runs them step by step, and puts replies into its outbox. One thread uses it.

    submit ─► (grammar, pages) ─► waiting ─► reading its prompt ─► decoding ─► done
                                      ▲                │ preempted     │
                                      └────────────────┴───────────────┘

A running request's path covers all its ids, so its slots are its own from admission on. Preempting it is releasing the path.
"""

from __future__ import annotations

import heapq
import secrets
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain

from sapwood.errors import Cancelled, DeadlineExceeded, InvalidRequest, OutOfSlots, Overloaded, SapwoodError
from sapwood.kernels.sampling import Sampled, SampleRow
from sapwood.radix.snapshot import Snapshots
from sapwood.radix.tiers import Tiers
from sapwood.radix.tree import RadixTree
from sapwood.runtime.engine.engine import Engine
from sapwood.runtime.messages import Generate
from sapwood.runtime.scheduler.batch import BatchComposer, Step, Wanted
from sapwood.runtime.scheduler.drafts import Drafts, Luck
from sapwood.runtime.scheduler.fetches import Fetches
from sapwood.runtime.scheduler.grammars import GrammarJobs
from sapwood.runtime.scheduler.output import Outbox, OutputProcessor, Tokenizer
from sapwood.runtime.scheduler.policies import policy_maker
from sapwood.runtime.scheduler.queue import WaitingQueue
from sapwood.runtime.scheduler.request import RequestState
from sapwood.runtime.scheduler.stats import SchedulerStats
from sapwood.runtime.scheduler.validate import Limits, check
from sapwood.runtime.speculative.drafter import Drafter


@dataclass(frozen=True, slots=True)
class Capacity:
    """How much at once."""

    max_running: int = 256
    max_waiting: int = 4096
    chunk_rows: int = 128  # rows of prompts in a step that decodes too: bounds the pause between two tokens


class Scheduler:
    """Composes batches for `engine` from requests whose KV lives in `tree`.

    `wake`: called from other threads when a step has become due; `check`: verify the tree after each step.
    """

    def __init__(
        self,
        engine: Engine,
        tree: RadixTree,
        tokenizer: Tokenizer,
        grammars: GrammarJobs,
        limits: Limits,
        capacity: Capacity,
        policy: str = "fcfs",
        *,
        drafter: Drafter | None = None,
        tiers: Tiers | None = None,
        wake: Callable[[], None] = lambda: None,
        check: bool = False,
    ) -> None:
        self.engine = engine
        self.tree = tree
        self.outbox = Outbox()
        self.stats = SchedulerStats()
        self.snapshots = Snapshots(tree, engine.plan.kv, wake)
        self._limits = limits
        self._capacity = capacity
        self._grammars = grammars
        self._output = OutputProcessor(tokenizer, grammars, self.outbox)
        self._fetches = Fetches(tiers)
        self._drafts = None if drafter is None else Drafts(drafter, tree, grammars)
        self._composer = BatchComposer(tree.num_slots, engine.plan.max_rows)
        self._max_running = min(capacity.max_running, engine.plan.max_rows)
        self._queue = WaitingQueue(policy_maker(policy, tree.peek))
        self._live: dict[tuple[bytes, str], RequestState] = {}
        self._reading: dict[RequestState, None] = {}  # in order of admission
        self._decoding: dict[RequestState, None] = {}
        self._deadlines: list[tuple[float, int, tuple[bytes, str]]] = []  # when, whose order and key
        self._num_arrived = 0
        self._blocked = False  # whoever is next doesn't fit until slots are given back
        self._check = check

    @property
    def busy(self) -> bool:
        """Whether a step would do something."""
        return bool(self._decoding or self._reading or len(self._queue) or self.snapshots.is_due)

    @property
    def num_live(self) -> int:
        """Requests that are here: running, waiting, or with a grammar that compiles."""
        return len(self._live)

    @property
    def next_deadline(self) -> float | None:
        """The earliest time.monotonic() at which a step is due although nothing is busy."""
        times = [self._deadlines[0][0] if self._deadlines else None, self.tree.next_expiry]
        return min((when for when in times if when is not None), default=None)

    @property
    def running(self) -> list[RequestState]:
        return [*self._decoding, *self._reading]

    @property
    def waiting(self) -> list[RequestState]:
        return list(self._queue)

    def clients(self) -> set[bytes]:
        """Whose requests are here."""
        return {client for client, _ in self._live}

    def submit(self, client: bytes, message: Generate) -> None:
        """Take a request; refusals go to the outbox."""
        try:
            request = self._arrive(client, message)
        except SapwoodError as error:
            self.outbox.fail(client, message.rid, error)
            return
        try:
            spec = message.sampling.grammar
            if spec is None or request.only_reads or self._grammars.start(request, spec):
                self._enqueue(request)
        except SapwoodError as error:
            self._fail(request, error)

    def abort(self, client: bytes, target: str = "") -> None:
        """Give up one request of a client, or all of them; each is answered as cancelled."""
        for request in self._of(client):
            if target in ("", request.message.rid):
                self._fail(request, Cancelled("the request was cancelled"))

    def drop_client(self, client: bytes) -> None:
        """A client is gone: free what its requests hold, tell nobody."""
        for request in self._of(client):
            self._remove(request)
        self.outbox.replies.pop(client, None)

    def set_policy(self, name: str) -> None:
        """Rank waiting requests by another policy from now on."""
        self._queue.change_policy(policy_maker(name, self.tree.peek))

    def step(self) -> None:
        """Do what is due: expire, admit, run one batch, handle its tokens. Errors end the requests concerned, never the loop."""
        began = time.perf_counter()
        elsewhere = self.engine.run_seconds + self.engine.sample_seconds
        self._expire()
        self._start_prepared()
        if self.snapshots.advance():
            self._blocked = False
        try:
            self._admit()
            step = self._compose()
            if step is not None:
                self._run(step)
        except Exception as error:
            traceback.print_exc(file=sys.stderr)
            for request in list(self._live.values()):  # whoever caused it, it must not come back with the next step
                self._fail(request, error)
        if self._check:
            self.tree.check()
        elsewhere = self.engine.run_seconds + self.engine.sample_seconds - elsewhere
        self.stats.schedule_seconds += time.perf_counter() - began - elsewhere

    def _arrive(self, client: bytes, message: Generate) -> RequestState:
        if not message.ids and self._limits.bos_id is not None:
            message.ids = [self._limits.bos_id]
        check(message, self._limits)
        if (client, message.rid) in self._live:
            raise InvalidRequest(f"a request with the id '{message.rid}' is running; choose another id")
        if len(self._queue) + len(self._grammars) + len(self._fetches) >= self._capacity.max_waiting:
            raise Overloaded(f"{self._capacity.max_waiting} requests are waiting already; try again later")
        sampling, prompt_len = message.sampling, len(message.ids)
        self._num_arrived += 1
        request = RequestState(
            client=client,
            message=message,
            order=self._num_arrived,
            arrived=time.monotonic(),
            seed=secrets.randbits(64) if sampling.seed is None else sampling.seed,
            ids=list(message.ids),
            prompt_len=prompt_len,
            max_len=min(prompt_len + sampling.max_tokens, self._limits.context_length),
            next_logit=prompt_len - 1,
        )
        self._live[request.key] = request
        if message.timeout is not None:
            heapq.heappush(self._deadlines, (request.arrived + message.timeout, request.order, request.key))
        return request

    def _enqueue(self, request: RequestState) -> None:
        """Let a request wait whose grammar, if any, is ready."""
        self._output.begin(request)
        self.stats.num_output += request.num_output
        if self._fetches.start(request):
            self._queue.add(request)

    def _start_prepared(self) -> None:
        """Let those wait in the queue whose grammar has been compiled, or whose pages have come from disk."""
        if len(self._fetches):
            for request in self._fetches.ready():
                self._queue.add(request)
        if not len(self._grammars):
            return
        for request, error in self._grammars.ready():
            try:
                if error is not None:
                    raise error
                self._enqueue(request)
            except SapwoodError as reason:
                self._fail(request, reason)

    def _expire(self) -> None:
        """End requests that have taken too long, and forget cache that nobody has used for long."""
        self.tree.expire()
        now = time.monotonic()
        while self._deadlines and self._deadlines[0][0] <= now:
            _, order, key = heapq.heappop(self._deadlines)
            request = self._live.get(key)
            if request is not None and request.order == order:
                self._fail(request, DeadlineExceeded(f"the request's {request.message.timeout:g} seconds are over"))

    def _admit(self) -> None:
        while not self._blocked and len(self._decoding) + len(self._reading) < self._max_running:
            request = self._queue.choose()
            if request is None:
                return
            if not self._lock_path(request):
                if self.snapshots.let_go():
                    continue
                victim = min(chain(self._decoding, self._reading), key=_expendable, default=None)
                if victim is None:
                    self._fail(request, InvalidRequest(self._too_large(request)))
                elif victim.message.priority < request.message.priority:
                    self._preempt(victim)
                else:
                    self._blocked = True
                    return
                continue
            self._queue.admit(request)
            self._reading[request] = None
            if self._drafts is not None and not request.only_reads:
                self._drafts.start(request)
            if request.is_complete:
                self._finish(request)

    def _lock_path(self, request: RequestState) -> bool:
        """Match and extend a request's path, if there is room for it and for what the running ones need next."""
        tree = self.tree
        namespace = request.message.namespace
        path = tree.match(request.array, namespace, priority=request.message.priority)
        reserve = 4 * (len(self._decoding) + len(self._reading))
        try:
            if tree.available(namespace) < len(request.ids) - len(path) + reserve:
                raise OutOfSlots("no room yet")
            path.extend(request.array[len(path) :])
        except OutOfSlots:
            path.release()
            return False
        self._fetches.restore(path)
        request.path = path
        return True

    def _compose(self) -> Step | None:
        if self._drafts is not None:
            self._drafts.propose(self._decoding)
        rows = self._capacity.chunk_rows if self._decoding else self._composer.max_rows
        return self._composer.compose(self._decoding, self._readers(), rows)

    def _readers(self) -> list[RequestState]:
        """Who reads, in the order in which they are given rows: the oldest is sure to get on, then the shortest go first."""
        if len(self._reading) < 2:
            return list(self._reading)
        oldest = min(self._reading, key=lambda r: r.order)
        others = (request for request in self._reading if request is not oldest)
        return [oldest, *sorted(others, key=lambda r: (-r.message.priority, r.num_missing))]

    def _run(self, step: Step) -> None:
        """Run a batch and handle what it gives to each request."""
        began = time.perf_counter()
        self._output.masks.start([wanted.request for wanted in step.wanted if _chooses(wanted)])
        try:
            output = self.engine.run(step.batch)
        finally:
            self._output.masks.wait()
        if self._drafts is not None:
            self._drafts.observe(len(step.batch.ids), time.perf_counter() - began)
            self._drafts.observe_batch(step.batch, output)
        self.tree.mark_computed(step.stored)
        choosing: list[Wanted] = []
        rows: list[SampleRow] = []
        for wanted in step.wanted:
            request = wanted.request
            self._score(wanted)
            request.next_logit = wanted.start + len(wanted.outs)
            if output.hidden is not None and request.message.want_hidden:
                self._output.pool(request, wanted.start, output.hidden[wanted.outs])
            if _chooses(wanted):
                try:
                    rows.append(self._output.row(request))
                    choosing.append(wanted)
                except SapwoodError as error:
                    self._fail(request, error)
        if choosing:
            outs = [wanted.outs[len(wanted.request.ids) - 1 - wanted.start] for wanted in choosing]
            for wanted, sampled in zip(choosing, self.engine.choose(outs, rows), strict=True):
                self._take(wanted, sampled)
        for request in [w.request for w in step.wanted] + [r for r in self._reading if r.only_reads]:
            if request.is_complete and request.key in self._live:
                self._finish(request)
        self.stats.stepped(len(step.batch.ids))

    def _score(self, wanted: Wanted) -> None:
        """Logprobs of the tokens that are there already: the prompt's, and those a grammar forced."""
        request, position = wanted.request, wanted.start + 1
        ids = request.ids[position : position + len(wanted.outs)]
        sampling = request.message.sampling
        if ids and not (sampling.logprobs is None and sampling.prompt_logprobs is None):
            num_top = max(sampling.logprobs or 0, sampling.prompt_logprobs or 0)
            self._output.score(request, position, self.engine.score(wanted.outs[: len(ids)], ids, num_top))

    def _take(self, wanted: Wanted, sampled: Sampled) -> None:
        """A token was chosen for a request: extend its path by it, by what it forces, and by drafted ones that come true."""
        request = wanted.request
        if request in self._reading:
            del self._reading[request]
            self._decoding[request] = None
        draft, request.draft = request.draft, []
        before = len(request.ids)
        try:
            num_true = self._accept(wanted, sampled, draft)
        except (SapwoodError, ValueError) as error:
            self._fail(request, error)
            return
        self.stats.num_output += len(request.ids) - before
        if self._drafts is not None:
            self._drafts.accepted(request, request.ids[before:], len(draft), num_true)
            self._drafts.settle(request, before + num_true)
            self.stats.verified(len(draft), num_true)
        if not request.is_complete:
            self._extend(request, before + num_true)
            if request.message.stream:
                self._output.emit(request)

    def _accept(self, wanted: Wanted, sampled: Sampled, draft: list[int]) -> int:
        """Append the chosen token and, as long as they are what was drafted, those after it; returns how many were."""
        request, num_true = wanted.request, 0
        logits = iter(wanted.outs[len(request.ids) - wanted.start :])
        while True:
            size = request.next_logit = len(request.ids)
            self._output.accept(request, sampled)
            if num_true == len(draft) or sampled.id != draft[num_true] or len(request.ids) == size:
                return num_true
            num_true += 1
            following = next(logits, None)
            if request.ending is not None or len(request.ids) > size + 1 or following is None:
                return num_true
            (sampled,) = self.engine.choose([following], [self._output.row(request)])

    def _extend(self, request: RequestState, start: int) -> None:
        """Own slots for a request's ids from `start` on; when none are left, others are preempted for it, or it itself."""
        while request.path is not None:
            try:
                if start == len(request.ids) - 1:
                    request.path.push(request.ids[start])
                else:
                    request.path.extend(request.ids[start:])
                return
            except OutOfSlots:
                if self.snapshots.let_go():
                    continue
                victim = min(chain(self._decoding, self._reading), key=_expendable)
                if victim is request and len(self._decoding) + len(self._reading) == 1:
                    self._fail(request, InvalidRequest(self._too_large(request)))
                    return
                self._preempt(victim)

    def _preempt(self, request: RequestState) -> None:
        """Let a request wait again. What was computed for it stays as cache until others need the room."""
        assert request.path is not None
        self._decoding.pop(request, None)
        self._reading.pop(request, None)
        request.path.release()
        request.path = None
        request.draft = []
        self._queue.put_back(request)
        self.stats.num_preempted += 1

    def _finish(self, request: RequestState) -> None:
        self.stats.finished(request)
        luck = Luck() if self._drafts is None else self._drafts.luck(request)
        self.stats.num_drafted += luck.num_drafted
        self.stats.num_accepted += luck.num_accepted
        self._output.emit_last(request, luck.num_drafted, luck.num_accepted)
        self._remove(request)

    def _fail(self, request: RequestState, error: Exception) -> None:
        self.stats.num_failed += 1
        self.outbox.fail(request.client, request.message.rid, error)
        self._remove(request)

    def _remove(self, request: RequestState) -> None:
        """Forget a request wherever it stands. Its computed KV stays as cache."""
        self._live.pop(request.key, None)
        self._decoding.pop(request, None)
        self._reading.pop(request, None)
        self._queue.discard(request)
        self._output.finish(request)
        self._fetches.finish(request)
        if self._drafts is not None:
            self._drafts.finish(request)
        if request.path is not None:
            request.path.release()
            request.path = None
        self._blocked = False

    def _of(self, client: bytes) -> list[RequestState]:
        return [request for key, request in self._live.items() if key[0] == client]

    def _too_large(self, request: RequestState) -> str:
        return (
            f"the request needs {len(request.ids)} KV slots but only {self.tree.available(request.message.namespace)} of "
            f"{self.tree.num_slots} can be freed; shorten it, unpin prefixes or start the backend with more slots"
        )


def _chooses(wanted: Wanted) -> bool:
    """Whether the request's next token can be chosen from what it gets."""
    return wanted.request.ending is None and wanted.start + len(wanted.outs) >= len(wanted.request.ids)


def _expendable(request: RequestState) -> tuple[int, int]:
    """Who is preempted first has the least: the lowest priority, then the newest."""
    return request.message.priority, -request.order
