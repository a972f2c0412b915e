"""The one way into a backend, for programs, the server, the command line and tests.

    with Client.launch("smollm2-135m") as client:
        print(client.generate("Once upon a time", Sampling(max_tokens=32)).text)

Everything stands on `submit(request, on_reply)`; the sync and async calls only differ in how they wait.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

import msgspec

from sapwood.errors import BackendDied, InvalidRequest
from sapwood.runtime.completion import Assembler, Chunk, Completion, value_of
from sapwood.runtime.connection import Connection, OnReply
from sapwood.runtime.messages import Ask, Generate, ModelInfo, Reply, Sampling
from sapwood.runtime.options import BackendOptions
from sapwood.runtime.process import BackendProcess

if TYPE_CHECKING:
    from sapwood.runtime.tokenizer import Tokenizer

__all__ = ["Call", "Chunk", "Client", "Completion"]

CONNECT_SECONDS = 3.0  # until a backend that doesn't answer counts as not there
LAUNCHED_SECONDS = 60.0  # likewise for one that said that it is ready
Prompt = str | Sequence[int]


class Call:
    """A request on its way."""

    __slots__ = ("_connection", "rid")

    def __init__(self, connection: Connection, rid: str) -> None:
        self._connection = connection
        self.rid = rid

    def cancel(self) -> None:
        """Give it up: if it still runs, its last reply is Failed(kind="cancelled")."""
        self._connection.abort(self.rid)


class Client:
    """A connection to one backend, and the owner of its process if it launched it. Usable from many threads and asyncio."""

    def __init__(self, connection: Connection, process: BackendProcess | None, options: BackendOptions | None) -> None:
        self._connection = connection
        self._process = process
        self._options = options
        self._tokenizer: Tokenizer | None = None
        self._lock = threading.Lock()
        self.info: ModelInfo = self._ask_info()

    @classmethod
    def launch(
        cls, model: str = "smollm2-135m", *, progress: Callable[[str], None] = lambda text: None, **options: Any
    ) -> Client:
        """Start a backend process and own it. `options` are those of `BackendOptions`; `progress` hears of the loading."""
        try:
            chosen = msgspec.convert({"model": str(model), **options}, BackendOptions)
        except msgspec.ValidationError as error:
            raise InvalidRequest(f"a backend option is wrong: {error}") from None
        unknown = set(options) - set(BackendOptions.__struct_fields__)
        if unknown:
            raise InvalidRequest(f"unknown backend options: {', '.join(sorted(unknown))}")
        process, connection = _launch(chosen, progress)
        return cls(connection, process, chosen)

    @classmethod
    def connect(cls, address: str) -> Client:
        """Use a backend that listens at `address`. Raises BackendDied if none answers there."""
        if address.startswith("ipc://") and not Path(address.removeprefix("ipc://")).exists():
            raise BackendDied(_nobody(address))
        return cls(Connection(address), None, None)

    @property
    def address(self) -> str:
        """Where the backend listens."""
        return self._connection.address

    @property
    def is_alive(self) -> bool:
        """Whether the backend is there, as far as is known."""
        return self._connection.is_alive

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer, loaded at first use."""
        with self._lock:
            if self._tokenizer is None:
                from sapwood.runtime.assembly import open_tokenizer

                path = self.info.path  # on another machine the backend's path may not exist
                self._tokenizer = open_tokenizer(path if Path(path).exists() else self.info.name)
            return self._tokenizer

    def submit(self, request: Generate | Ask, on_reply: OnReply) -> Call:
        """Send a request. `on_reply` is called on the I/O thread with each reply, the last one included; it must be quick."""
        connection = self._connection
        connection.submit(request, on_reply)
        return Call(connection, request.rid)

    def new_rid(self) -> str:
        """A request id that this client hasn't used."""
        return self._connection.new_rid()

    def abort(self, rid: str) -> None:
        """Give up the request with this id, if it still runs."""
        self._connection.abort(rid)

    def generate(self, prompt: Prompt, sampling: Sampling | None = None, **fields: Any) -> Completion:
        """The whole answer. `fields` are those of `Generate`: namespace, priority, timeout, want_hidden, pooling, rid."""
        request = self._request(prompt, sampling, stream=False, **fields)
        return self._assembler().completion(self._wait(request))

    def stream(self, prompt: Prompt, sampling: Sampling | None = None, **fields: Any) -> Generator[Chunk, None, None]:
        """The answer as it grows; closing the iterator gives the request up."""
        assembler, replies = self._assembler(), SimpleQueue[Reply]()
        call = self.submit(self._request(prompt, sampling, stream=True, **fields), replies.put)
        return _chunks(call, replies, assembler)

    async def agenerate(self, prompt: Prompt, sampling: Sampling | None = None, **fields: Any) -> Completion:
        """As `generate`; cancelling the task gives the request up."""
        request = self._request(prompt, sampling, stream=False, **fields)
        return self._assembler().completion(await self._await(request))

    async def astream(
        self, prompt: Prompt, sampling: Sampling | None = None, **fields: Any
    ) -> AsyncGenerator[Chunk, None]:
        """As `stream`."""
        assembler, mailbox = self._assembler(), _Mailbox()
        call = self.submit(self._request(prompt, sampling, stream=True, **fields), mailbox.put)
        done = False
        try:
            while not done:
                for reply in await mailbox.take():
                    chunk = assembler.chunk(reply)
                    done = chunk.finish_reason is not None
                    yield chunk
        finally:
            if not done:
                call.cancel()

    def ask(self, what: str, **args: Any) -> Any:
        """An admin call: info, stats, flush, tree, pin, unpin, save, load, policy, quota."""
        return value_of(self._wait(self._ask(what, args)))

    async def aask(self, what: str, **args: Any) -> Any:
        """As `ask`."""
        return value_of(await self._await(self._ask(what, args)))

    def restart(self, progress: Callable[[str], None] = lambda text: None) -> None:
        """Start the backend anew, with the same options. Calls that wait fail; the tree starts empty."""
        if self._options is None:
            raise InvalidRequest("only a client that launched its backend can restart it")
        self._end()
        self._process, self._connection = _launch(self._options, progress)
        self.info = self._ask_info()

    def close(self) -> None:
        """Let go of the backend; one that was launched ends, and leaves no process and no file."""
        self._end()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)

    def _end(self) -> None:
        self._connection.close()
        if self._process is not None:
            self._process.close()

    def _assembler(self) -> Assembler:
        return Assembler(self.tokenizer.token_bytes)

    def _request(
        self, prompt: Prompt, sampling: Sampling | None, *, stream: bool, rid: str | None = None, **fields: Any
    ) -> Generate:
        ids = self.tokenizer.encode(prompt, special=True, bos=True) if isinstance(prompt, str) else list(prompt)
        return Generate(rid or self.new_rid(), ids, sampling or Sampling(), stream=stream, **fields)

    def _ask(self, what: str, args: dict[str, Any]) -> Ask:
        try:
            return msgspec.convert({"type": "Ask", "rid": self.new_rid(), "what": what, "args": args}, Ask)
        except msgspec.ValidationError as error:
            raise InvalidRequest(f"a backend can't be asked for '{what}': {error}") from None

    def _ask_info(self) -> ModelInfo:
        replies = SimpleQueue[Reply]()
        self._connection.submit(self._ask("info", {}), replies.put)
        try:
            patience = CONNECT_SECONDS if self._process is None else LAUNCHED_SECONDS
            answer = value_of(replies.get(timeout=patience))
        except BaseException as error:
            self._end()
            if isinstance(error, Empty):
                raise BackendDied(_nobody(self.address)) from None
            raise
        return msgspec.convert(answer, ModelInfo)

    def _wait(self, request: Generate | Ask) -> Reply:
        """The last reply to a request."""
        replies = SimpleQueue[Reply]()
        call = self.submit(request, replies.put)
        try:
            return replies.get()
        except BaseException:  # Ctrl-C while waiting
            call.cancel()
            raise

    async def _await(self, request: Generate | Ask) -> Reply:
        mailbox = _Mailbox()
        call = self.submit(request, mailbox.put)
        try:
            return (await mailbox.take())[-1]
        except asyncio.CancelledError:
            call.cancel()
            raise


class _Mailbox:
    """Replies on their way from the I/O thread to a task. Wakes the event loop once for all that came meanwhile."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None
        self._lock = threading.Lock()
        self._replies: list[Reply] = []

    def put(self, reply: Reply) -> None:
        with self._lock:
            self._replies.append(reply)
            first = len(self._replies) == 1
        if first and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def take(self) -> list[Reply]:
        """All that came since the last time; waits for the first."""
        while not self._replies:
            self._waiter = self._loop.create_future()
            await self._waiter
        with self._lock:
            replies, self._replies = self._replies, []
        return replies


def _chunks(call: Call, replies: SimpleQueue[Reply], assembler: Assembler) -> Generator[Chunk, None, None]:
    done = False
    try:
        while not done:
            chunk = assembler.chunk(replies.get())
            done = chunk.finish_reason is not None
            yield chunk
    finally:
        if not done:
            call.cancel()


def _nobody(address: str) -> str:
    return f"no backend answers at {address}; check the address, or start one there"


def _launch(options: BackendOptions, progress: Callable[[str], None]) -> tuple[BackendProcess, Connection]:
    process = BackendProcess(options)
    try:
        process.wait_until_ready(progress)
        return process, Connection(process.address, process.describe_end)
    except BaseException:
        process.close()
        raise
