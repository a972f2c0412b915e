"""What a program's body holds in its hand: `s += ...`, `s["x"]`, forks and roles."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sapwood.lang import search
from sapwood.lang.executor import Event, Executor, ProgramError
from sapwood.lang.expressions import (
    Expression,
    Reasoning,
    RoleBegin,
    RoleEnd,
    Text,
    VarBegin,
    VarEnd,
    assistant,
    parts,
    system,
    user,
)
from sapwood.lang.waiting import AsyncWaiter, current_waiter
from sapwood.runtime.messages import Usage


class ProgramState:
    """A program on its way. Appending returns at once; reading a variable waits for it.

    A failed call raises `ProgramError` where its variable, or the text, is read.
    """

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self.ret_value: Any = None

    def __iadd__(self, other: Any) -> ProgramState:
        """Append text, an expression, a list of them, another program (it goes on in this state: same prefix, same
        variables), or a state that ran by itself (its text and variables)."""
        if other is None:
            raise ValueError("None can't be appended to a program")
        if isinstance(other, ProgramState):
            self._executor.append([Text(other.text())])
            self._executor.children.append(other._executor)  # its calls count as calls of this program
            for name, value in other.variables().items():
                self.set_var(name, value)
            return self
        if callable(getattr(other, "inline", None)):
            other.inline(self)
            return self
        self._executor.append(_unfolded(list(parts(other))))
        return self

    def __getitem__(self, name: str) -> Any:
        """The variable's value, as soon as it is there. In an `async def` program: something to await."""
        if self._executor.settings.awaits and not self._executor.root.closed:
            return self.aget(name)
        return self.get_var(name)

    def __setitem__(self, name: str, value: Any) -> None:
        self.set_var(name, value)

    def __contains__(self, name: str) -> bool:
        return name in self._executor.written.variables

    def get_var(self, name: str, timeout: float | None = None) -> Any:
        """The variable's value, as soon as it is there. KeyError if the program never writes it."""
        self._wait(lambda: name in self._executor.written.variables, timeout)
        return self._value(name)

    async def aget(self, name: str) -> Any:
        """As `s[name]`, awaited: `await s.aget("x")`."""
        await self._await(lambda: name in self._executor.written.variables)
        return self._value(name)

    def set_var(self, name: str, value: Any) -> None:
        self._executor.set(name, value)
        self._executor.notify()

    def variables(self) -> dict[str, Any]:
        """All named variables, once everything that was appended is done."""
        self._finished()
        return {name: value for name, value in self._executor.written.variables.items() if name is not None}

    def text(self) -> str:
        """Everything written so far, the chat template's marks included. Waits for what was appended."""
        self._finished()
        return self._executor.written.text

    def messages(self) -> list[dict[str, str]]:
        """The conversation as role and content."""
        self._finished()
        return list(self._executor.written.messages)

    def ids(self) -> list[int]:
        """The token ids so far. What isn't encoded yet is not among them."""
        self._finished()
        return list(self._executor.written.ids)

    def sync(self) -> None:
        """Wait for everything that was appended; raises nothing."""
        self._wait(lambda: False)

    async def async_sync(self) -> None:
        """As `sync`, awaited."""
        await self._await(lambda: False)

    def error(self) -> Exception | None:
        """Why the program failed, None if it didn't."""
        self.sync()
        return self._executor.error

    def get_meta_info(self, name: str, timeout: float | None = None) -> dict[str, Any] | None:
        """What is known of a call: finish_reason, token counts, logprobs; for a select its scores."""
        self.get_var(name, timeout)
        return self._executor.written.meta.get(name)

    def usage(self) -> Usage:
        """The counts of all calls of this state and of its forks, summed."""
        usages = [event.usage for event in self.events() if event.usage is not None]
        return Usage(*(sum(getattr(usage, name) for usage in usages) for name in Usage.__struct_fields__))

    def events(self) -> list[Event]:
        """The calls of this state and of its forks that ended, in the order of their beginnings."""
        events: list[Event] = []
        for executor in self._executor.tree():
            ProgramState(executor).sync()
            events += executor.events
        return sorted(events, key=lambda event: event.began)

    def report(self, path: str | Path) -> Path:
        """Write an HTML page about this run: its calls over time, what each reused, its text."""
        from sapwood.lang.report import write_report

        return write_report(self, Path(path))

    def call(self, program: Any, *args: Any, **arguments: Any) -> ProgramState:
        """Run another program from here, on a fork: it reads all that is written so far, and changes nothing here."""
        child = self.fork(1)[0]
        program.inline(child, *args, **arguments)
        return child

    def call_tools(self, name: str | None = None) -> Any:
        """Run the function that `gen(name, tools=[...])` chose, append its result as a turn, and return it."""
        from sapwood.lang.tools import call_tool

        return call_tool(self, name)

    def parallel(self, *expressions: Any) -> ProgramStateGroup:
        """One fork for each expression, side by side; their variables, named differently, are set here."""
        return search.parallel(self, expressions)

    def best_of(self, n: int, expression: Any, key: Callable[[ProgramState], Any]) -> ProgramState:
        """Try an expression on `n` forks and go on from the one with the highest `key`."""
        return search.best_of(self, n, expression, key)

    def vote(self, n: int, expression: Any, name: str) -> Any:
        """Try an expression on `n` forks and go on from one with the most frequent value of the variable `name`."""
        return search.vote(self, n, expression, name)

    def beam(
        self, expression: Any, key: Callable[[ProgramState], Any], *, depth: int, width: int = 2, branch: int = 2
    ) -> ProgramState:
        """Grow `depth` steps; at each, fork the `width` best `branch` times. Goes on from the best. `expression` may be a
        function of the step."""
        return search.beam(self, expression, key, depth, width, branch)

    def cancel(self) -> None:
        """Give up all that runs, forks included."""
        self._executor.cancel()

    def fork(self, size: int = 1, position_ids_offset: list[int] | None = None) -> ProgramStateGroup:
        """`size` states that begin where this one is; they run side by side and share all they have in common."""
        return ProgramStateGroup([ProgramState(child) for child in self._executor.fork(size)], self)

    @contextmanager
    def copy(self) -> Iterator[ProgramState]:
        """A fork of one, joined at the end of the block."""
        group = self.fork(1)
        try:
            yield group[0]
        finally:
            group.join()

    def system(self, content: str | Expression | None = None) -> Any:
        """A turn: `s.system("...")`, or `with s.system(): s += ...`."""
        return self._turn("system", system, content)

    def user(self, content: str | Expression | None = None) -> Any:
        return self._turn("user", user, content)

    def assistant(self, content: str | Expression | None = None) -> Any:
        return self._turn("assistant", assistant, content)

    @contextmanager
    def var_scope(self, name: str) -> Iterator[None]:
        """The variable `name` becomes the text that the block writes."""
        self._executor.append([VarBegin(name)])
        try:
            yield
        finally:
            self._executor.append([VarEnd(name)])

    def system_begin(self) -> None:
        self._executor.append([RoleBegin("system")])

    def system_end(self) -> None:
        self._executor.append([RoleEnd("system")])

    def user_begin(self) -> None:
        self._executor.append([RoleBegin("user")])

    def user_end(self) -> None:
        self._executor.append([RoleEnd("user")])

    def assistant_begin(self) -> None:
        self._executor.append([RoleBegin("assistant")])

    def assistant_end(self) -> None:
        self._executor.append([RoleEnd("assistant")])

    def text_iter(self, var_name: str | None = None) -> Iterator[str]:
        """New text as it comes (run with stream=True); of one variable if it is named."""
        seen = 0
        while True:
            waiter = current_waiter()
            self._executor.watch(waiter)
            done, chunks = self._streamed(), self._executor.chunks
            while seen < len(chunks):
                name, text, _ = chunks[seen]
                seen += 1
                if text and var_name in (None, name):
                    yield text
            if self._executor.error is not None:
                raise self._executor.error
            if done and seen == len(chunks):
                return
            waiter.wait()

    async def text_async_iter(self, var_name: str | None = None, return_meta_data: bool = False) -> AsyncIterator[Any]:
        """As `text_iter`, awaited; with `return_meta_data` pairs of text and what is known of it."""
        seen = 0
        while True:
            waiter = AsyncWaiter()
            self._executor.watch(waiter)
            done, chunks = self._streamed(), self._executor.chunks
            while seen < len(chunks):
                name, text, meta = chunks[seen]
                seen += 1
                if text and var_name in (None, name):
                    yield (text, meta) if return_meta_data else text
            if self._executor.error is not None:
                raise self._executor.error
            if done and seen == len(chunks):
                return
            await waiter.wait()

    def _streamed(self) -> bool:
        return self._executor.closed and self._executor.is_idle

    def _turn(self, role: str, make: Callable[[Any], Expression], content: Any) -> Any:
        if content is not None:
            self.__iadd__(make(content))
            return None
        return self._turn_block(role)

    @contextmanager
    def _turn_block(self, role: str) -> Iterator[None]:
        self._executor.append([RoleBegin(role)])
        try:
            yield
        finally:
            self._executor.append([RoleEnd(role)])

    def _wait(self, ready: Callable[[], bool], timeout: float | None = None) -> None:
        executor = self._executor
        if ready() or executor.is_idle or executor.error is not None:
            return
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            waiter = current_waiter()
            executor.watch(waiter)
            if ready() or executor.is_idle or executor.error is not None:
                return
            if not waiter.wait(None if until is None else until - time.monotonic()):
                raise TimeoutError(f"the program wasn't ready after {timeout:g} s")

    async def _await(self, ready: Callable[[], bool]) -> None:
        while True:
            waiter = AsyncWaiter()
            self._executor.watch(waiter)
            if ready() or self._executor.is_idle or self._executor.error is not None:
                return
            await waiter.wait()

    def _value(self, name: str) -> Any:
        variables = self._executor.written.variables
        if name in variables:
            return variables[name]
        if self._executor.error is not None:
            raise self._executor.error
        raise KeyError(f"the program never wrote the variable '{name}'")

    def _finished(self) -> None:
        self.sync()
        if self._executor.error is not None:
            raise self._executor.error


class ProgramStateGroup:
    """Forks of one state."""

    def __init__(self, states: list[ProgramState], parent: ProgramState) -> None:
        self._states = states
        self._parent = parent

    def __getitem__(self, index: int) -> ProgramState:
        return self._states[index]

    def __setitem__(self, index: int, state: ProgramState) -> None:
        assert state is self._states[index], "`forks[i] += ...` is the only assignment"

    def __len__(self) -> int:
        return len(self._states)

    def __iter__(self) -> Iterator[ProgramState]:
        return iter(self._states)

    def __iadd__(self, other: Any) -> ProgramStateGroup:
        """The same for all, one of a list for each, or what a function of the index gives."""
        if callable(other) and not isinstance(other, Expression):
            other = [other(index) for index in range(len(self._states))]
        if isinstance(other, (list, tuple)):
            if len(other) != len(self._states):
                raise ValueError(f"{len(self._states)} forks can't take {len(other)} expressions")
            for state, expression in zip(self._states, other, strict=True):
                state += expression
        elif isinstance(other, Expression):
            for state in self._states:
                state += other
        else:
            raise ValueError("append an expression, a list of them or a function to forks; use forks[i] += for text")
        return self

    def join(self, mode: str = "gather_variable") -> None:
        """Wait for all forks. "gather_variable": each new variable becomes a list on the parent. "concate_and_append" (or
        "concat"): the texts that the forks added are appended to the parent, in order."""
        parent = self._parent
        parent.sync()
        known, length = set(parent._executor.written.variables), len(parent._executor.written.text)
        for state in self._states:
            state.sync()
        failed = next((s._executor.error for s in self._states if s._executor.error is not None), None)
        if failed is not None:
            raise failed
        if mode in ("concate_and_append", "concat"):
            parent += "".join(state.text()[length:] for state in self._states)
        elif mode != "gather_variable":
            raise ValueError(f"there is no join mode '{mode}'; choose gather_variable or concat")
        gathered: dict[Any, list[Any]] = {}
        for state in self._states:
            for name, value in state._executor.written.variables.items():
                if name not in known:
                    gathered.setdefault(name, []).append(value)
        for name, values in gathered.items():
            parent.set_var(name, values)


def _unfolded(expressions: list[Expression]) -> list[Expression]:
    """Reasoning comes after the expression that it splits."""
    flat: list[Expression] = []
    for expression in expressions:
        if isinstance(expression, Reasoning):
            flat += _unfolded(list(parts(expression.expression)))
        flat.append(expression)
    return flat


__all__ = ["ProgramError", "ProgramState", "ProgramStateGroup"]
