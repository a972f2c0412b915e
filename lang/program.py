"""`@function`: from a Python function to a program that can be run, streamed, bound and run many times at once."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from sapwood.lang.backends import Backend, default_backend
from sapwood.lang.executor import Executor
from sapwood.lang.expressions import sampling_overrides
from sapwood.lang.state import ProgramState
from sapwood.lang.waiting import Hub
from sapwood.runtime.messages import Sampling

IN_FLIGHT = 64  # programs of a batch that run at the same time, unless told otherwise

# Arguments of run() that are sampling parameters, not the program's own; SGLang's names are understood.
_SAMPLING = {
    "max_new_tokens", "min_new_tokens", "max_tokens", "min_tokens", "stop", "stop_token_ids", "temperature", "top_p",
    "top_k", "min_p", "frequency_penalty", "presence_penalty", "repetition_penalty", "ignore_eos", "seed", "logit_bias",
}  # fmt: skip


class Function:
    """A program. `f.run(...)` runs it; calling it is the same."""

    def __init__(self, body: Callable[..., Any], bound: dict[str, Any] | None = None) -> None:
        self.body = body
        self._bound = bound or {}
        names = list(inspect.signature(body).parameters)
        if not names:
            raise TypeError(f"the program {body.__name__} needs a first parameter: its state, called s by custom")
        self._names = names[1:]
        self.__name__ = body.__name__
        self.__doc__ = body.__doc__

    def __call__(self, *args: Any, **kwargs: Any) -> ProgramState:
        return self.run(*args, **kwargs)

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
        **kwargs: Any,
    ) -> ProgramState:
        """Run the body. Returns when it ends; generations may still run, and reading them waits.

        Sampling parameters (temperature, max_tokens, ...) become defaults of every `gen`; the others are the program's
        arguments. `stream`: return at once, and iterate `text_iter()`. `timeout`: seconds for each call.
        """
        state, arguments = self._begin(args, kwargs, backend, stream, timeout)
        if inspect.iscoroutinefunction(self.body):
            asyncio.run(self._body_async(state, args, arguments))
        elif stream:
            threading.Thread(target=self._body_quietly, args=(state, args, arguments), daemon=True).start()
        else:
            self._body(state, args, arguments)
        return state

    async def run_async(
        self, *args: Any, backend: Backend | None = None, timeout: float | None = None, **kwargs: Any
    ) -> ProgramState:
        """Run an `async def` program (in which `await s.aget("x")` reads) or a plain one, and wait for all of it."""
        state, arguments = self._begin(args, kwargs, backend, False, timeout)
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
        backend: Backend | None = None,
        timeout: float | None = None,
        **sampling: Any,
    ) -> Any:
        """Run the program for every set of arguments, up to `num_threads` ("auto": 64) at a time, on one thread.

        Returns the states in order; with `generator_style` an iterator over them in order. A program that fails keeps its
        error (`state.error()`) and doesn't disturb the others.
        """
        limit = IN_FLIGHT if num_threads == "auto" else max(1, int(num_threads))
        calls = [self._call_of(arguments, sampling) for arguments in batch]
        run = self._batches(calls, limit, progress_bar, backend or default_backend() if calls else None, timeout)
        return run if generator_style else [state for state in run]

    def _batches(
        self,
        calls: list[dict[str, Any]],
        limit: int,
        progress_bar: bool,
        backend: Backend | None,
        timeout: float | None,
    ) -> Iterator[ProgramState]:
        size = max(limit * 4, 200)
        with _progress(len(calls), progress_bar) as advance:
            for first in range(0, len(calls), size):
                states: list[ProgramState | None] = [None] * len(calls[first : first + size])

                def job(index: int, arguments: dict[str, Any], states: list[Any] = states) -> Callable[[], None]:
                    def run() -> None:
                        state, own = self._begin((), dict(arguments), backend, False, timeout)
                        states[index] = state
                        self._body_quietly(state, (), own)
                        state.sync()
                        advance()

                    return run

                Hub().run((job(i, arguments) for i, arguments in enumerate(calls[first : first + size])), limit)
                yield from (state for state in states if state is not None)

    def _call_of(self, arguments: dict[str, Any] | tuple[Any, ...], sampling: dict[str, Any]) -> dict[str, Any]:
        if isinstance(arguments, dict):
            return {**sampling, **arguments}
        free = [name for name in self._names if name not in self._bound]
        if len(arguments) > len(free):
            raise TypeError(f"{self.__name__} takes {len(free)} arguments ({', '.join(free)}), not {len(arguments)}")
        return {**sampling, **dict(zip(free, arguments, strict=False))}

    def _begin(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        backend: Backend | None,
        stream: bool,
        timeout: float | None,
    ) -> tuple[ProgramState, dict[str, Any]]:
        given = {name: kwargs.pop(name) for name in list(kwargs) if name in _SAMPLING and name not in self._names}
        for ignored in (
            "return_logprob",
            "logprob_start_len",
            "top_logprobs_num",
            "return_text_in_logprobs",
            "use_thread",
        ):
            if ignored not in self._names:
                kwargs.pop(ignored, None)
        defaults = msgspec.structs.replace(Sampling(), **sampling_overrides(given))
        arguments = {**kwargs, **self._bound}
        inspect.signature(self.body).bind(None, *args, **arguments)  # TypeError before anything starts
        return ProgramState(Executor(backend or default_backend(), defaults, stream=stream, timeout=timeout)), arguments

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
        except BaseException:
            state.cancel()
            raise
        finally:
            state._executor.closed = True
            state._executor.notify()


def function(body: Callable[..., Any] | None = None, num_api_spec_tokens: int | None = None) -> Any:
    """Make a program of a function whose first parameter is the state."""
    if body is None:
        return Function
    return Function(body)


@contextmanager
def _progress(total: int, shown: bool) -> Iterator[Callable[[], None]]:
    """A progress bar over a batch, if one is wanted; calling what it gives advances it."""
    if not shown:
        yield lambda: None
        return
    from rich.progress import Progress

    with Progress() as bar:
        task = bar.add_task("programs", total=total)
        yield lambda: bar.advance(task)
