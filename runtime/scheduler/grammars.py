"""Grammars of requests: compiled off the loop, cached, followed by one matcher a request.

A compile can take seconds, so a request waits for its grammar beside the queue; an error in it is that request's alone.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

from sapwood.errors import GrammarError, SapwoodError
from sapwood.runtime.messages import GrammarSpec
from sapwood.runtime.scheduler.request import RequestState

if TYPE_CHECKING:
    from sapwood.constrained import Grammar, Matcher, Stop, Vocabulary

CACHED = 256  # compiled grammars that are kept
TIMEOUT = 10.0  # seconds for a compile


class GrammarJobs:
    """Compiles with one thread. `wake` is called from there when a compile has ended."""

    def __init__(self, vocabulary: Vocabulary, wake: Callable[[], None]) -> None:
        self._vocabulary = vocabulary
        self._wake = wake
        self._pool: ThreadPoolExecutor | None = None
        self._cache: OrderedDict[GrammarSpec, Future[Grammar]] = OrderedDict()
        self._compiling: dict[RequestState, Future[Grammar]] = {}
        self._stops: dict[Future[Grammar], Stop] = {}  # of those that somebody waits for
        self._matchers: dict[RequestState, Matcher] = {}

    def __len__(self) -> int:
        return len(self._compiling)

    def start(self, request: RequestState, spec: GrammarSpec) -> bool:
        """Get a request its matcher; False when it must wait for `ready`. Raises GrammarError."""
        future = self._cache.get(spec)
        if future is None:
            future = self._compile(spec)
        self._cache.move_to_end(spec)
        if future.done():
            self._matchers[request] = self._result(spec, future).matcher()
            return True
        self._compiling[request] = future
        return False

    def ready(self) -> list[tuple[RequestState, SapwoodError | None]]:
        """Requests whose compile ended since the last call; with the error where it failed."""
        ended: list[tuple[RequestState, SapwoodError | None]] = []
        for request, future in [item for item in self._compiling.items() if item[1].done()]:
            del self._compiling[request]
            spec = request.message.sampling.grammar
            assert spec is not None
            self._stops.pop(future, None)
            try:
                self._matchers[request] = self._result(spec, future).matcher()
                ended.append((request, None))
            except SapwoodError as error:
                ended.append((request, error))
        return ended

    def matcher(self, request: RequestState) -> Matcher | None:
        """The request's matcher, if it has a grammar."""
        return self._matchers.get(request)

    def allowed(self, request: RequestState, ids: list[int]) -> list[int]:
        """The first of `ids`, as far as the request's grammar allows them."""
        matcher = self._matchers.get(request)
        if matcher is None:
            return ids
        count = 0
        with suppress(ValueError):  # the first that is not allowed
            for token in ids:
                matcher.advance(token)
                count += 1
        matcher.rollback(count)
        return ids[:count]

    def finish(self, request: RequestState) -> None:
        """Forget a request. Its grammar stays cached; a compile that nobody waits for any more is stopped."""
        self._matchers.pop(request, None)
        future, spec = self._compiling.pop(request, None), request.message.sampling.grammar
        if future is None or future in self._compiling.values():
            return
        stop = self._stops.pop(future, None)
        if stop is not None and spec is not None and not future.done():
            stop.set()
            future.cancel()  # if it hasn't begun
            if self._cache.get(spec) is future:
                del self._cache[spec]

    def close(self) -> None:
        for stop in self._stops.values():
            stop.set()
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _compile(self, spec: GrammarSpec) -> Future[Grammar]:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="grammars")
        from sapwood.constrained import Stop

        stop = Stop()
        self._cache[spec] = future = self._pool.submit(compile_spec, spec, self._vocabulary, stop)
        self._stops[future] = stop
        future.add_done_callback(lambda _: self._wake())
        while len(self._cache) > CACHED:
            self._cache.popitem(last=False)
        return future

    def _result(self, spec: GrammarSpec, future: Future[Grammar]) -> Grammar:
        try:
            return future.result()
        except SapwoodError:
            self._cache.pop(spec, None)
            raise
        except Exception as error:
            self._cache.pop(spec, None)
            raise GrammarError(f"the grammar can't be compiled: {error}") from error


def compile_spec(spec: GrammarSpec, vocabulary: Vocabulary, stop: Stop | None = None) -> Grammar:
    """Compile what a message asks for. Raises GrammarError."""
    from sapwood.constrained import compile as compile_grammar

    grammar = compile_grammar(
        {spec.kind: spec.text},
        vocabulary,
        whitespace=spec.whitespace,
        any_order=spec.any_order,
        timeout=TIMEOUT,
        stop=stop,
    )
    if grammar.is_empty():
        raise GrammarError("no text matches the grammar")
    return grammar
