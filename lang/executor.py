"""Runs what a program appended. No thread of its own: text is taken at once, a generation goes on from its last reply.

    append ─► operations ─► text, roles       at once, into `pending`
                         └► gen, select       encode what is pending, submit, return; the reply's callback continues
                         └► fork              children get the state as it is then, and begin

The state is token ids: what was generated stays as it was generated, new text is encoded once. So a call costs what is new.
What is asked of the backend, and what becomes of its answers, is in `calls.py`.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from sapwood.errors import DeadlineExceeded, InvalidRequest, Overloaded, SapwoodError
from sapwood.lang.backends import Backend, Call
from sapwood.lang.calls import choose, generate
from sapwood.lang.encoding import Piece, encode
from sapwood.lang.expressions import (
    Expression,
    Gen,
    Reasoning,
    RoleBegin,
    RoleEnd,
    Select,
    Text,
    VarBegin,
    VarEnd,
    needs,
)
from sapwood.lang.turns import turn
from sapwood.lang.waiting import Waiter
from sapwood.runtime.completion import Assembler, Chunk
from sapwood.runtime.messages import Generate, Reply, Sampling, Usage

RETRY_SECONDS = 0.2  # before the first retry of a call that the backend had no room for; doubled each time


class ProgramError(SapwoodError):
    """A call of a program failed: says which call, where in the program, and why."""


@dataclass(eq=False)
class Fork(Expression):
    children: list[Executor]


@dataclass
class Written:
    """What a program has so far: everything that a fork copies."""

    ids: list[int] = field(default_factory=list)
    pending: list[Piece] = field(default_factory=list)  # text not encoded yet
    text: str = ""
    variables: dict[str | None, Any] = field(default_factory=dict)
    meta: dict[str | None, dict[str, Any]] = field(default_factory=dict)
    messages: list[dict[str, str]] = field(default_factory=list)
    roles: tuple[str, ...] = ()
    role_open: str | None = None
    role_start: int = 0  # where the open role's content begins in `text`
    scopes: dict[str, int] = field(default_factory=dict)

    def copy(self) -> Written:
        return Written(
            list(self.ids), list(self.pending), self.text, dict(self.variables), dict(self.meta), list(self.messages),
            self.roles, self.role_open, self.role_start, dict(self.scopes),
        )  # fmt: skip


@dataclass(frozen=True)
class Event:
    """A call that ended: what a report draws."""

    kind: str
    name: str | None
    line: str
    began: float  # monotonic seconds
    ended: float
    usage: Usage | None


@dataclass(frozen=True)
class Settings:
    """What holds for a whole program, forks included."""

    defaults: Sampling = Sampling()
    stream: bool = False
    deadline: float | None = None  # monotonic seconds
    retries: int = 0  # of calls that the backend had no room for
    awaits: bool = False  # the body is a coroutine: `await s["x"]`


class Executor:
    """One program state. Appending never blocks; `watch` tells when something changed."""

    def __init__(self, backend: Backend, settings: Settings, parent: Executor | None = None) -> None:
        self.backend = backend
        self.settings = settings
        self.parent = parent
        self.written = Written()
        self.error: Exception | None = None
        self.events: list[Event] = []
        self.chunks: list[tuple[str | None, str, dict[str, Any]]] = []  # (variable, text, meta), for streams
        self.closed = False  # the program's body ended
        self.children: list[Executor] = []
        self._operations: deque[Expression] = deque()
        self._busy = parent is not None  # a fork begins when its parent comes to it
        self._lock = threading.RLock()
        self._waiters: list[Waiter] = []
        self._calls: set[Call] = set()

    @property
    def is_idle(self) -> bool:
        """Whether everything that was appended is done (or failed)."""
        return not self._busy and not self._operations

    @property
    def root(self) -> Executor:
        return self if self.parent is None else self.parent.root

    def tree(self) -> Iterator[Executor]:
        """This state and all forks of it."""
        yield self
        for child in self.children:
            yield from child.tree()

    def append(self, expressions: list[Expression]) -> None:
        """Queue operations. Raises InvalidRequest, and queues nothing, if the backend can't do one of them."""
        for expression in expressions:
            lacking = needs(expression) & getattr(self.backend, "lacks", frozenset())
            if lacking:
                raise InvalidRequest(
                    f"this program needs {', '.join(sorted(lacking))}, which its backend doesn't offer"
                )
        with self._lock:
            self._operations.extend(expressions)
        self._pump()

    def watch(self, waiter: Waiter) -> None:
        """Set the waiter at the next change."""
        with self._lock:
            self._waiters.append(waiter)

    def notify(self) -> None:
        with self._lock:
            waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            waiter.set()

    def fork(self, size: int) -> list[Executor]:
        """Children that begin where this state stands once all that was appended so far is done."""
        children = [Executor(self.backend, self.settings, self) for _ in range(size)]
        self.children += children
        self.append([Fork(children)])
        return children

    def cancel(self) -> None:
        """Give up everything that runs, here and in all forks."""
        if not self.is_idle:
            self.fail(ProgramError("the program was cancelled"))
        for call in list(self._calls):
            call.cancel()
        for child in self.children:
            child.cancel()

    def fail(self, error: Exception) -> None:
        """End the program here. Forks that have not begun fail with it."""
        with self._lock:
            self.error = self.error or error
            self._busy = False
            dropped, self._operations = self._operations, deque()
        for operation in dropped:
            if isinstance(operation, Fork):
                for child in operation.children:
                    child.fail(self.error)
        self.notify()

    def set(self, name: str | None, value: Any, meta: dict[str, Any] | None = None) -> None:
        if meta is not None:
            self.written.meta[name] = meta
        self.written.variables[name] = value

    def write(self, text: str, special: bool = False) -> None:
        if text:
            self.written.pending.append((text, special))
            self.written.text += text
            if self.settings.stream:
                self.chunks.append((None, text, {}))

    def encoded(self, more: str = "") -> list[int]:
        """The ids of what is pending, followed by `more`."""
        pieces = [*self.written.pending, (more, False)]
        return encode(self.backend.tokenizer, pieces, first=not self.written.ids)

    def take_pending(self) -> list[int]:
        """All ids so far, pending text included."""
        self.written.ids += self.encoded()
        self.written.pending = []
        return self.written.ids

    def adopt(self, child: Executor) -> None:
        """Go on from where a fork of this state got to."""
        self.written = child.written.copy()

    def submit(
        self,
        operation: Expression,
        sampling: Sampling,
        ids: list[int],
        done: Callable[[list[int], Chunk, str], None],
        piece: Callable[[Chunk], None] | None = None,
        failed: Callable[[Exception], None] | None = None,
        attempt: int = 0,
    ) -> None:
        """Ask the backend to continue ids; `done` gets all new ids, the last chunk and the whole text."""
        timeout, began = None, time.monotonic()
        if self.settings.deadline is not None:
            timeout = self.settings.deadline - began
            if timeout <= 0:
                raise DeadlineExceeded("the program's time ran out before this call")
        assembler = Assembler(self.backend.tokenizer.token_bytes)
        new_ids: list[int] = []
        texts: list[str] = []
        calls: list[Call] = []

        def on_reply(reply: Reply) -> None:
            try:
                chunk = assembler.chunk(reply)
                new_ids.extend(chunk.ids)
                texts.append(chunk.text)
                if piece is not None:
                    piece(chunk)
                if chunk.finish_reason is not None:
                    self._calls.difference_update(calls)
                    self.events.append(_event(operation, began, chunk.usage))
                    done(new_ids, chunk, "".join(texts))
            except Overloaded as error:
                if attempt >= self.settings.retries:
                    (failed or self.fail)(explained(operation, error))
                    return
                again = (operation, sampling, ids, done, piece, failed, attempt + 1)
                timer = threading.Timer(RETRY_SECONDS * 2**attempt, self._again, again)
                timer.daemon = True
                timer.start()
            except Exception as error:
                self._calls.difference_update(calls)
                (failed or self.fail)(explained(operation, error))

        request = Generate(self.backend.new_rid(), ids, sampling, stream=piece is not None, timeout=timeout)
        calls.append(self.backend.submit(request, on_reply))
        self._calls.update(calls)

    def resume(self) -> None:
        """The backend answered: go on."""
        with self._lock:
            if self.error is not None:
                return
            self._busy = False
        self.notify()
        self._pump()

    def _again(self, operation: Expression, *arguments: Any) -> None:
        if self.error is None:
            try:
                self.submit(operation, *arguments)
            except Exception as error:
                self.fail(explained(operation, error))

    def _pump(self) -> None:
        """Do operations until one has to wait for the backend."""
        while True:
            with self._lock:
                if self._busy or not self._operations:
                    break
                if self.error is None:
                    self._busy = True
                    operation = self._operations.popleft()
            if self.error is not None:
                self.fail(self.error)
                return
            try:
                waits = self._do(operation)
            except Exception as error:
                self.fail(explained(operation, error))
                return
            if waits:
                return
            with self._lock:
                self._busy = False
        self.notify()

    def _do(self, operation: Expression) -> bool:
        """True when a reply will go on from here."""
        written = self.written
        if isinstance(operation, Text):
            self.write(operation.text)
        elif isinstance(operation, Gen):
            generate(self, operation)
            return True
        elif isinstance(operation, Select):
            choose(self, operation)
            return True
        elif isinstance(operation, RoleBegin):
            self._begin_role(operation.role)
        elif isinstance(operation, RoleEnd):
            self._end_role(operation.role)
        elif isinstance(operation, VarBegin):
            written.scopes[operation.name] = len(written.text)
        elif isinstance(operation, VarEnd):
            self.set(operation.name, written.text[written.scopes.pop(operation.name) :])
        elif isinstance(operation, Reasoning):
            self._separate(operation)
        elif isinstance(operation, Fork):
            for child in operation.children:
                child.written = written.copy()
                child.resume()
        return False

    def _begin_role(self, role: str) -> None:
        written = self.written
        if written.role_open is not None:
            raise ProgramError(f"a {role} turn can't begin inside the {written.role_open} turn")
        written.roles += (role,)
        written.role_open = role
        self.write(turn(self.backend.tokenizer, written.roles).before, special=True)
        written.role_start = len(written.text)

    def _end_role(self, role: str) -> None:
        written = self.written
        if written.role_open != role:
            raise ProgramError(f"the {role} turn that ends here wasn't begun")
        content = written.text[written.role_start :]
        written.messages.append({"role": role, "content": content})
        written.role_open = None
        self.write(turn(self.backend.tokenizer, written.roles).after, special=True)

    def _separate(self, operation: Reasoning) -> None:
        """Split the variable that the expression before wrote, and keep only the answer in the text."""
        name = getattr(operation.expression, "name", None)
        value = self.written.variables.get(name)
        if not isinstance(value, str):
            return
        thought, found, answer = value.partition("</think>")
        self.set(f"{name}_reasoning_content", thought.removeprefix("<think>").strip() if found else "")
        if not found:
            return
        self.set(name, answer.strip())
        written = self.written
        if written.text.endswith(value):  # the thought isn't read again: the ids go back to where it began
            before, kept = written.text[: -len(value)], answer.strip()
            ids = written.meta.get(name, {}).get("output_ids", [])
            if ids and written.ids[-len(ids) :] == ids and not written.pending:
                written.ids = written.ids[: -len(ids)]
                written.pending = [(kept, False)]
                written.text = before + kept


def _event(operation: Expression, began: float, usage: Usage | None) -> Event:
    name, line = getattr(operation, "name", None), getattr(operation, "line", "")
    return Event(type(operation).__name__.lower(), name, line, began, time.monotonic(), usage)


def explained(operation: Expression, error: Exception) -> Exception:
    """The error, with the call and the line of the program that it belongs to."""
    if isinstance(error, ProgramError):
        return error
    kind = type(operation).__name__.lower()
    name, line = getattr(operation, "name", None), getattr(operation, "line", "")
    call = f"{kind}({name!r})" if name else f"{kind}()"
    said = ProgramError(f"{call}{f' at {line}' if line else ''} failed: {error}")
    said.__cause__ = error
    return said
