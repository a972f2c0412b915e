"""Runs what a program appended. No thread of its own: text is taken at once, a generation goes on from its last reply.

    append ─► operations ─► text, roles       at once, into `pending`
                         └► gen, select       encode what is pending, submit, return; the reply's callback continues
                         └► fork              children get the state as it is then, and begin

The state is token ids: what was generated stays as it was generated, new text is encoded once. So a call costs what is new.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from sapwood.errors import SapwoodError
from sapwood.lang.backends import Backend, Call
from sapwood.lang.choices import METHODS
from sapwood.lang.expressions import Expression, Gen, Reasoning, RoleBegin, RoleEnd, Select, Text, VarBegin, VarEnd
from sapwood.lang.turns import turn
from sapwood.lang.waiting import Waiter
from sapwood.runtime.completion import Assembler, Chunk
from sapwood.runtime.messages import Failed, Generate, Reply, Sampling, Usage


class ProgramError(SapwoodError):
    """A call of a program failed: says which call, where in the program, and why."""


@dataclass(eq=False)
class Fork(Expression):
    children: list[Executor]


@dataclass
class Written:
    """What a program has so far: everything that a fork copies."""

    ids: list[int] = field(default_factory=list)
    pending: list[tuple[str, bool]] = field(
        default_factory=list
    )  # text not encoded yet; True: special tokens count in it
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


class Executor:
    """One program state. Appending never blocks; `watch` tells when something changed."""

    def __init__(
        self,
        backend: Backend,
        defaults: Sampling,
        *,
        stream: bool = False,
        timeout: float | None = None,
        started: bool = True,
    ) -> None:
        self.backend = backend
        self.written = Written()
        self.error: Exception | None = None
        self.usages: list[Usage] = []
        self.chunks: list[tuple[str | None, str, dict[str, Any]]] = []  # (variable, text, meta), for streams
        self.closed = False  # the program's body ended
        self._defaults = defaults
        self._stream = stream
        self._timeout = timeout
        self._operations: deque[Expression] = deque()
        self._busy = not started
        self._lock = threading.RLock()
        self._waiters: list[Waiter] = []
        self._calls: list[Call] = []
        self._children: list[Executor] = []

    @property
    def is_idle(self) -> bool:
        """Whether everything that was appended is done (or failed)."""
        return not self._busy and not self._operations

    def append(self, expressions: list[Expression]) -> None:
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
        children = [
            Executor(self.backend, self._defaults, stream=self._stream, timeout=self._timeout, started=False)
            for _ in range(size)
        ]
        self._children += children
        self.append([Fork(children)])
        return children

    def cancel(self) -> None:
        """Give up everything that runs, here and in all forks."""
        self.fail(ProgramError("the program was cancelled"))
        for call in self._calls:
            call.cancel()
        for child in self._children:
            child.cancel()

    def fail(self, error: Exception) -> None:
        with self._lock:
            self.error = self.error or error
            self._operations.clear()
            self._busy = False
        self.notify()

    def _pump(self) -> None:
        """Do operations until one has to wait for the backend."""
        while True:
            with self._lock:
                if self._busy or self.error is not None or not self._operations:
                    if self.error is not None:
                        self._operations.clear()
                    break
                self._busy = True
                operation = self._operations.popleft()
            try:
                waits = self._do(operation)
            except Exception as error:
                self.fail(_explained(operation, error))
                return
            if waits:
                return
            with self._lock:
                self._busy = False
        self.notify()

    def _resume(self) -> None:
        with self._lock:
            if self.error is not None:
                return
            self._busy = False
        self.notify()
        self._pump()

    def _do(self, operation: Expression) -> bool:
        """True when a reply will go on from here."""
        written = self.written
        if isinstance(operation, Text):
            self._write(operation.text)
        elif isinstance(operation, Gen):
            self._generate(operation)
            return True
        elif isinstance(operation, Select):
            self._select(operation)
            return True
        elif isinstance(operation, RoleBegin):
            self._begin_role(operation.role)
        elif isinstance(operation, RoleEnd):
            self._end_role(operation.role)
        elif isinstance(operation, VarBegin):
            written.scopes[operation.name] = len(written.text)
        elif isinstance(operation, VarEnd):
            self._set(operation.name, written.text[written.scopes.pop(operation.name) :])
        elif isinstance(operation, Reasoning):
            self._separate(operation)
        elif isinstance(operation, Fork):
            for child in operation.children:
                child.written = written.copy()
                child._resume()
        return False

    def _write(self, text: str, special: bool = False) -> None:
        if text:
            self.written.pending.append((text, special))
            self.written.text += text
            if self._stream:
                self.chunks.append((None, text, {}))

    def _set(self, name: str | None, value: Any, meta: dict[str, Any] | None = None) -> None:
        self.written.variables[name] = value
        if meta is not None:
            self.written.meta[name] = meta

    def _begin_role(self, role: str) -> None:
        written = self.written
        if written.role_open is not None:
            raise ProgramError(f"a {role} turn can't begin inside the {written.role_open} turn")
        written.roles += (role,)
        written.role_open = role
        self._write(turn(self.backend.tokenizer, written.roles).before, special=True)
        written.role_start = len(written.text)

    def _end_role(self, role: str) -> None:
        written = self.written
        if written.role_open != role:
            raise ProgramError(f"the {role} turn that ends here wasn't begun")
        content = written.text[written.role_start :]
        written.messages.append({"role": role, "content": content})
        written.role_open = None
        self._write(turn(self.backend.tokenizer, written.roles).after, special=True)

    def _encode(self, pending: list[tuple[str, bool]]) -> list[int]:
        """Pieces that are written the same way are encoded together, so that tokens don't break where pieces meet."""
        joined: list[tuple[str, bool]] = []
        for text, special in pending:
            if joined and joined[-1][1] == special:
                joined[-1] = (joined[-1][0] + text, special)
            else:
                joined.append((text, special))
        tokenizer, ids = self.backend.tokenizer, list[int]()
        for index, (text, special) in enumerate(joined):
            first = index == 0 and not self.written.ids
            ids += tokenizer.encode(text, special=special, bos=first)
        if not joined and not self.written.ids and tokenizer.bos_id is not None:
            ids.append(tokenizer.bos_id)
        return ids

    def _submit(
        self,
        sampling: Sampling,
        ids: list[int],
        done: Callable[[list[int], Chunk, str], None],
        piece: Callable[[Chunk], None] | None,
        operation: Expression,
    ) -> None:
        """Ask the backend to continue ids; `done` gets all new ids, the last chunk and the whole text."""
        assembler = Assembler(self.backend.tokenizer.token_bytes)
        new_ids: list[int] = []
        texts: list[str] = []

        def on_reply(reply: Reply) -> None:
            try:
                if isinstance(reply, Failed):
                    assembler.chunk(reply)
                chunk = assembler.chunk(reply)
                new_ids.extend(chunk.ids)
                texts.append(chunk.text)
                if piece is not None:
                    piece(chunk)
                if chunk.finish_reason is not None:
                    if chunk.usage is not None:
                        self.usages.append(chunk.usage)
                    done(new_ids, chunk, "".join(texts))
            except Exception as error:
                self.fail(_explained(operation, error))

        request = Generate(self.backend.new_rid(), ids, sampling, stream=piece is not None, timeout=self._timeout)
        self._calls = [*self._calls[-7:], self.backend.submit(request, on_reply)]

    def _take_pending(self) -> list[int]:
        written = self.written
        written.ids += self._encode(written.pending)
        written.pending = []
        return written.ids

    def _generate(self, operation: Gen) -> None:
        import msgspec

        sampling = msgspec.structs.replace(self._defaults, **operation.overrides)
        results: list[tuple[list[int], Chunk, str] | None] = [None] * operation.n
        left = operation.n

        def finish(index: int, ids: list[int], chunk: Chunk, text: str) -> None:
            nonlocal left
            results[index] = (ids, chunk, text)
            left -= 1
            if not left:
                self._generated(operation, [r for r in results if r is not None])

        def piece(chunk: Chunk) -> None:
            meta = {"finish_reason": chunk.finish_reason, "logprobs": chunk.logprobs, "usage": chunk.usage}
            self.chunks.append((operation.name, chunk.text, meta))
            self.notify()

        ids = self._take_pending()
        for index in range(operation.n):
            own = sampling
            if operation.n > 1 and sampling.seed is not None:
                own = msgspec.structs.replace(sampling, seed=sampling.seed + index)
            self._submit(
                own, list(ids), partial(finish, index),
                piece if self._stream and index == 0 else None, operation,
            )  # fmt: skip

    def _generated(self, operation: Gen, results: list[tuple[list[int], Chunk, str]]) -> None:
        ids, chunk, text = results[0]
        kept, rest = self._without_stop(ids, text) if isinstance(chunk.matched, str) else (ids, "")
        written = self.written
        written.ids += kept
        if rest:
            written.pending.append((rest, False))
        written.text += text
        convert = operation.convert or (lambda value: value)
        values = [convert(text) for _, _, text in results]
        metas = [_meta(chunk, ids) for ids, chunk, _ in results]
        self._set(
            operation.name,
            values[0] if operation.n == 1 else values,
            metas[0] if operation.n == 1 else {"samples": metas},
        )
        self._resume()

    def _without_stop(self, ids: list[int], text: str) -> tuple[list[int], str]:
        """The tokens that lie before a stop string, and the text that shared a token with it."""
        coded, size, count = text.encode(), 0, 0
        table = self.backend.tokenizer.token_bytes
        while count < len(ids) and size + len(table[ids[count]]) <= len(coded):
            size += len(table[ids[count]])
            count += 1
        return ids[:count], coded[size:].decode("utf-8", "replace")

    def _select(self, operation: Select) -> None:
        """Score every choice as a prompt: the tree computes what they share once."""
        method = METHODS.get(operation.method)
        if method is None:
            raise ProgramError(f"there is no choices_method '{operation.method}'; choose one of {', '.join(METHODS)}")
        written = self.written
        encoded = [self._encode([*written.pending, (choice, False)]) for choice in operation.choices]
        shared = _common(encoded)
        sets = [(written.ids + ids, len(written.ids) + shared) for ids in encoded]
        sets = [(ids, max(start, 1)) for ids, start in sets]
        needs_alone = operation.method == "unconditional_likelihood_normalized"
        if needs_alone:
            bos = self.backend.tokenizer.bos_id
            first = [bos] if bos is not None else sets[0][0][:1]
            sets += [(first + ids[shared:], 1) for ids in encoded]
        scores: list[list[float] | None] = [None] * len(sets)

        def finish(index: int, _ids: list[int], chunk: Chunk, _text: str) -> None:
            scores[index] = [lp.logprob for lp in chunk.prompt_logprobs if lp.logprob is not None]
            if all(score is not None for score in scores):
                known = [score for score in scores if score is not None]
                given = known[: len(encoded)]
                self._selected(operation, encoded, given, method(given, known[len(encoded) :]))

        for index, (ids, start) in enumerate(sets):
            sampling = Sampling(max_tokens=0, prompt_logprobs=0, prompt_logprobs_start=start)
            self._submit(sampling, ids, partial(finish, index), None, operation)

    def _selected(
        self, operation: Select, encoded: list[list[int]], logprobs: list[list[float]], scores: list[float]
    ) -> None:
        best = max(range(len(scores)), key=lambda i: scores[i])
        written = self.written
        written.ids += encoded[best]
        written.pending = []
        written.text += operation.choices[best]
        if self._stream:
            self.chunks.append((operation.name, operation.choices[best], {}))
        meta = {"choices": operation.choices, "scores": scores, "token_logprobs": logprobs}
        self._set(operation.name, operation.choices[best], meta)
        self._resume()

    def _separate(self, operation: Reasoning) -> None:
        """Split the variable that the expression before wrote, and keep only the answer in the text."""
        for inner in [operation.expression]:
            name = getattr(inner, "name", None)
            value = self.written.variables.get(name)
            if not isinstance(value, str):
                continue
            thought, found, answer = value.partition("</think>")
            if found:
                self._set(name, answer.strip())
                self._set(f"{name}_reasoning_content", thought.removeprefix("<think>").strip())
            else:
                self._set(f"{name}_reasoning_content", "")


def _common(lists: list[list[int]]) -> int:
    """Leading ids that all share, leaving each at least one."""
    most = min(len(ids) for ids in lists) - 1
    shared = 0
    while shared < most and all(ids[shared] == lists[0][shared] for ids in lists):
        shared += 1
    return shared


def _meta(chunk: Chunk, ids: list[int]) -> dict[str, Any]:
    """What SGLang calls meta_info."""
    usage = chunk.usage
    return {
        "finish_reason": {"type": chunk.finish_reason, "matched": chunk.matched},
        "prompt_tokens": usage.prompt_tokens if usage else 0,
        "completion_tokens": usage.completion_tokens if usage else 0,
        "cached_tokens": usage.cached_tokens if usage else 0,
        "logprobs": chunk.logprobs,
        "output_ids": list(ids),
    }


def _explained(operation: Expression, error: Exception) -> Exception:
    if isinstance(error, ProgramError):
        return error
    kind = type(operation).__name__.lower()
    name, line = getattr(operation, "name", None), getattr(operation, "line", "")
    call = f"{kind}({name!r})" if name else f"{kind}()"
    explained = ProgramError(f"{call}{f' at {line}' if line else ''} failed: {error}")
    explained.__cause__ = error
    return explained
