"""`@function`: from a Python function to a program that can be run, streamed, bound and run many times at once."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from sapwood.lang.backends import Backend, default_backend
from sapwood.lang.batch import Results, awaited_in_order, in_order, progress
from sapwood.lang.executor import Executor, Settings
from sapwood.lang.expressions import SAMPLING_NAMES, Gen, run_overrides
from sapwood.lang.state import ProgramState
from sapwood.runtime.messages import Sampling

if TYPE_CHECKING:
    from sapwood.lang.trace import Trace

IN_FLIGHT = 64  # programs of a batch that run at the same time, unless told otherwise

_PLAIN = Sampling()


class Function:
    """A program. `f.run(...)` runs it; calling it is the same."""

    def __init__(self, body: Callable[..., Any], bound: dict[str, Any] | None = None) -> None:
        self.body = body
        self._bound = bound or {}
        self._signature = inspect.signature(body)
        names = list(self._signature.parameters)
        if not names:
            raise TypeError(f"the program {body.__name__} needs a first parameter: its state, called s by custom")
        self._names = names[1:]
        self.__name__ = body.__name__
        self.__doc__ = body.__doc__

    def __call__(self, *args: Any, **kwargs: Any) -> ProgramState:
        return self.run(*args, **kwargs)

    def inline(self, state: ProgramState, *args: Any, **arguments: Any) -> Any:
        """Run the body on a state that another program began: what `s += program` and `s.call(program)` do."""
        state.ret_value = self.body(state, *args, **{**arguments, **self._bound})
        return state.ret_value

    def bind(self, **values: Any) -> Function:
        """The same program with these arguments fixed."""
        unknown = set(values) - set(self._names)
        if unknown:
            raise TypeError(f"{self.__name__} has no parameter {', '.join(sorted(unknown))}")
        return Function(self.body, {**self._bound, **values})

    def run(
        self,
        *args: Any,
        stream: bool = False,
        backend: Backend | None = None,
        timeout: float | None = None,
        retries: int = 0,
        **kwargs: Any,
    ) -> ProgramState:
        """Run the body. Returns when it ends; generations may still run, and reading them waits.

        Sampling parameters (temperature, max_tokens, ...) become defaults of every `gen`; the others are the program's
        arguments. `stream`: return at once, and iterate `text_iter()`. `timeout`: seconds for the whole program, forks
        included. `retries`: of calls that the backend had no room for, after growing pauses.
        """
        options = {"stream": stream, "timeout": timeout, "retries": retries}
        state, arguments = self._begin(args, kwargs, backend, options)
        if inspect.iscoroutinefunction(self.body):
            asyncio.run(self._body_async(state, args, arguments))
        elif stream:
            threading.Thread(target=self._body_quietly, args=(state, args, arguments), daemon=True).start()
        else:
            self._body(state, args, arguments)
        return state

    async def run_async(
        self,
        *args: Any,
        backend: Backend | None = None,
        timeout: float | None = None,
        retries: int = 0,
        **kwargs: Any,
    ) -> ProgramState:
        """Run an `async def` program (in which `await s["x"]` reads) or a plain one, and wait for all of it."""
        state, arguments = self._begin(args, kwargs, backend, {"timeout": timeout, "retries": retries})
        if inspect.iscoroutinefunction(self.body):
            await self._body_async(state, args, arguments)
        else:
            await asyncio.to_thread(self._body, state, args, arguments)
        await state.async_sync()
        return state

    def run_batch(
        self,
        batch: Sequence[dict[str, Any] | tuple[Any, ...]],
        *,
        num_threads: int | str = "auto",
        progress_bar: bool = False,
        generator_style: bool = False,
        output: str | Path | None = None,
        backend: Backend | None = None,
        timeout: float | None = None,
        retries: int = 0,
        **sampling: Any,
    ) -> Any:
        """Run the program for every set of arguments, up to `num_threads` ("auto": 64) at a time, on one thread.

        Returns the states in order; with `generator_style` an iterator over them in order, which holds no more than it
        must. With `output` each result becomes a line of that JSONL file as it ends, runs that the file has already are left
        out, and the number of new lines is returned. A program that fails keeps its error (`state.error()`) and doesn't
        disturb the others.
        """
        limit = IN_FLIGHT if num_threads == "auto" else max(1, int(num_threads))
        calls = [self._call_of(arguments) for arguments in batch]
        kept = None if output is None else Results(output)
        if kept is not None:
            calls = [call for call in calls if not kept.has(call)]
        if not calls:
            return 0 if kept is not None else iter(()) if generator_style else []
        chosen, options = backend or default_backend(), {"timeout": timeout, "retries": retries}

        def start(index: int) -> tuple[ProgramState, Callable[[], None]]:
            state, own = self._begin((), {**sampling, **calls[index]}, chosen, options)
            return state, lambda: self._body_quietly(state, (), own)

        async def start_async(index: int) -> ProgramState:
            state, own = self._begin((), {**sampling, **calls[index]}, chosen, options)
            with suppress(Exception):  # it is the state's error then
                await self._body_async(state, (), own)
            await state.async_sync()
            return state

        def states() -> Iterator[ProgramState]:
            with progress(len(calls), progress_bar) as advance:
                if inspect.iscoroutinefunction(self.body):
                    yield from awaited_in_order(len(calls), start_async, limit, advance)
                else:
                    yield from in_order(len(calls), start, limit, advance)

        if kept is not None:
            for call, state in zip(calls, states(), strict=True):
                kept.write(call, state)
            return len(calls)
        return states() if generator_style else list(states())

    def trace(self, **arguments: Any) -> Trace:
        """The program as a graph, without running it: what it would append, with names in place of arguments and answers."""
        from sapwood.lang.trace import trace

        return trace(self.body, self._names, {**arguments, **self._bound})

    def cache(self, backend: Backend | None = None) -> int:
        """Read the constant text that the program begins with into the backend's tree; how many tokens it has."""
        state, _ = self._begin((), {}, backend, {}, bind=False)
        prefix = self.trace().prefix()
        if not prefix:
            return 0
        state += prefix
        state += Gen(None, {"max_tokens": 0})
        return len(state.ids())

    def _call_of(self, arguments: dict[str, Any] | tuple[Any, ...]) -> dict[str, Any]:
        if isinstance(arguments, dict):
            return arguments
        free = [name for name in self._names if name not in self._bound]
        if len(arguments) > len(free):
            raise TypeError(f"{self.__name__} takes {len(free)} arguments ({', '.join(free)}), not {len(arguments)}")
        return dict(zip(free, arguments, strict=False))

    def _begin(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        backend: Backend | None,
        options: dict[str, Any],
        bind: bool = True,
    ) -> tuple[ProgramState, dict[str, Any]]:
        names = [name for name in kwargs if name in SAMPLING_NAMES and name not in self._names]
        given = {name: kwargs[name] for name in names}
        arguments = {**{name: value for name, value in kwargs.items() if name not in given}, **self._bound}
        if bind:
            self._signature.bind(None, *args, **arguments)  # TypeError before anything starts
        defaults = _PLAIN if not given else msgspec.structs.replace(_PLAIN, **run_overrides(given))
        timeout = options.get("timeout")
        settings = Settings(
            defaults=defaults,
            stream=options.get("stream", False),
            deadline=None if timeout is None else time.monotonic() + timeout,
            retries=options.get("retries", 0),
            awaits=inspect.iscoroutinefunction(self.body),
        )
        return ProgramState(Executor(backend or default_backend(), settings)), arguments

    def _body(self, state: ProgramState, args: tuple[Any, ...], arguments: dict[str, Any]) -> None:
        try:
            state.ret_value = self.body(state, *args, **arguments)
        except BaseException:
            state.cancel()
            raise
        finally:
            state._executor.closed = True
            state._executor.notify()

    def _body_quietly(self, state: ProgramState, args: tuple[Any, ...], arguments: dict[str, Any]) -> None:
        """The body's own failure becomes the state's error."""
        try:
            state.ret_value = self.body(state, *args, **arguments)
        except Exception as error:
            state._executor.fail(error)
        finally:
            state._executor.closed = True
            state._executor.notify()

    async def _body_async(self, state: ProgramState, args: tuple[Any, ...], arguments: dict[str, Any]) -> None:
        try:
            state.ret_value = await self.body(state, *args, **arguments)
        except BaseException as error:
            if isinstance(error, Exception):
                state._executor.fail(error)
            state.cancel()
            raise
        finally:
            state._executor.closed = True
            state._executor.notify()


def function(body: Callable[..., Any] | None = None, num_api_spec_tokens: int | None = None) -> Any:
    """Make a program of a function whose first parameter is the state. `num_api_spec_tokens` is taken for SGLang's sake:
    a state goes on from its last token here, so there is no prompt to be paid again that it would save."""
    if body is None:
        return Function
    return Function(body)
