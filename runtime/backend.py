"""The backend process: one thread that polls a ZMQ socket, steps the scheduler and sends replies.

    client (DEALER) ══ Request ══►  ROUTER ─► scheduler.step ─► ROUTER ══ [Reply, ...] ══► client

Started by `runtime/process.py`, which gives it its options on stdin and keeps that pipe open: when the pipe closes, its owner is
gone and the backend ends at once. With nothing to do it sleeps in poll.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable

import msgspec
import zmq

from sapwood.errors import InvalidRequest, SapwoodError
from sapwood.runtime.admin import Admin
from sapwood.runtime.assembly import System, assemble
from sapwood.runtime.messages import Abort, Failed, Generate, Reply, Request
from sapwood.runtime.options import BackendOptions

__all__ = ["Backend", "BackendOptions", "bind"]

PROBE_SECONDS = 0.5  # how often clients that wait for something are checked to be there
MAX_UNREAD = 100_000  # replies that a client may leave unread before it counts as gone


def bind(context: zmq.Context[zmq.Socket[bytes]], address: str) -> zmq.Socket[bytes]:
    """The socket on which a backend is reached. Only this user can open it if it is an ipc one. Raises InvalidRequest."""
    router: zmq.Socket[bytes] = context.socket(zmq.ROUTER)
    router.setsockopt(zmq.ROUTER_MANDATORY, 1)  # sending to a client that is gone is an error
    router.setsockopt(zmq.SNDHWM, MAX_UNREAD)
    router.setsockopt(zmq.RCVHWM, 0)
    router.setsockopt(zmq.LINGER, 200)
    if address.startswith("tcp://"):
        router.setsockopt(zmq.HEARTBEAT_IVL, 2000)
        router.setsockopt(zmq.HEARTBEAT_TIMEOUT, 6000)
    elif not address.startswith("ipc://"):
        raise InvalidRequest(f"the address must begin with ipc:// or tcp://, not '{address}'")
    elif _is_served(address.removeprefix("ipc://")):
        raise InvalidRequest(f"another backend listens at {address}; end it or choose another address")
    mask = os.umask(0o077)
    try:
        router.bind(address)
    except zmq.ZMQError as error:
        router.close()
        if error.errno == zmq.EADDRINUSE:
            raise InvalidRequest(f"{address} is in use; end what listens there or choose another address") from None
        raise InvalidRequest(f"can't listen at {address}: {error}; choose another address") from None
    finally:
        os.umask(mask)
    return router


def _is_served(path: str) -> bool:
    """Whether somebody answers at this socket file. (ZMQ would take the file over without asking.)"""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(path)
        except OSError:
            return False
        return True


class Backend:
    """Serves a system on a socket. `wake` may be called from any thread to have a step done."""

    def __init__(self, router: zmq.Socket[bytes]) -> None:
        self._router = router
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_write, False)
        self._decoder = msgspec.msgpack.Decoder(Request)
        self._encoder = msgspec.msgpack.Encoder()
        self._next_probe = 0.0

    def wake(self) -> None:
        """Have the loop look again."""
        with contextlib.suppress(BlockingIOError):  # then it will look anyway
            os.write(self._wake_write, b"\0")

    def serve(self, system: System, ended: threading.Event | None = None) -> None:
        """Serve until `ended` is set (and `wake` called)."""
        scheduler, admin = system.scheduler, Admin(system)
        poller = zmq.Poller()
        poller.register(self._router, zmq.POLLIN)
        poller.register(self._wake_read, zmq.POLLIN)
        while ended is None or not ended.is_set():
            if not scheduler.busy:
                events = dict(poller.poll(self._patience(system)))
                if self._wake_read in events:
                    os.read(self._wake_read, 4096)
            self._receive(system, admin)
            scheduler.step()
            if scheduler.num_live:
                self._probe(system)
            self._send(system)

    def _patience(self, system: System) -> int | None:
        """Milliseconds to sleep; None without end."""
        scheduler = system.scheduler
        now, deadline = time.monotonic(), scheduler.next_deadline
        due = [when for when in (deadline, now + PROBE_SECONDS if scheduler.num_live else None) if when is not None]
        return max(0, int((min(due) - now) * 1000) + 1) if due else None

    def _receive(self, system: System, admin: Admin) -> None:
        """Take all messages that are there."""
        router = self._router
        while int(router.getsockopt(zmq.EVENTS)) & zmq.POLLIN:
            client, payload = router.recv_multipart(zmq.NOBLOCK)[:2]
            outbox = system.scheduler.outbox
            try:
                message = self._decoder.decode(payload)
            except msgspec.DecodeError as error:
                outbox.put(client, Failed("", "invalid", f"the message can't be read: {error}"))
                continue
            if isinstance(message, Generate):
                system.scheduler.submit(client, message)
            elif isinstance(message, Abort):
                system.scheduler.abort(client, message.target)
            else:
                admin.take(client, message)

    def _send(self, system: System) -> None:
        outbox = system.scheduler.outbox
        if not outbox.replies:
            return
        for client, replies in outbox.take().items():
            self._send_to(client, replies, system)

    def _send_to(self, client: bytes, replies: list[Reply], system: System) -> None:
        try:
            self._router.send_multipart((client, self._encoder.encode(replies)), zmq.NOBLOCK)
        except zmq.ZMQError:  # it is gone, or hasn't read for very long
            system.scheduler.drop_client(client)

    def _probe(self, system: System) -> None:
        """An empty message to each client that waits: those that can't be reached are dropped."""
        now = time.monotonic()
        if now >= self._next_probe:
            self._next_probe = now + PROBE_SECONDS
            for client in system.scheduler.clients():
                self._send_to(client, [], system)


class Leash:
    """Ends this process at once when its owner is gone or asks for it."""

    def __init__(self, private_folder: str) -> None:
        self._private_folder = private_folder
        self.socket_file = ""  # of an address that was given, once it is ours
        signal.signal(signal.SIGTERM, lambda *_: self.end())
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the owner's matter
        threading.Thread(target=self._watch, name="leash", daemon=True).start()

    def end(self, status: int = 0) -> None:
        """Leave nothing behind, and go."""
        if self._private_folder:
            shutil.rmtree(self._private_folder, ignore_errors=True)
        elif self.socket_file:
            with contextlib.suppress(OSError):
                os.unlink(self.socket_file)
        os._exit(status)

    def _watch(self) -> None:
        while os.read(0, 4096):
            pass
        self.end()


def main() -> None:
    """`python -m sapwood.runtime.backend STATUS_FD PRIVATE_FOLDER`; options as one JSON line on stdin."""
    status = os.fdopen(int(sys.argv[1]), "w", buffering=1)

    def report(**fields: str) -> None:
        with contextlib.suppress(BrokenPipeError):  # then the leash ends us
            status.write(json.dumps(fields) + "\n")

    options = msgspec.json.decode(_read_line(0), type=BackendOptions)
    leash = Leash(sys.argv[2])
    assert options.address is not None
    try:
        run(options, options.address, report, leash)
    except (SapwoodError, MemoryError, OSError) as error:
        report(error=type(error).__name__, message=str(error) or "there is not enough memory; lower num_slots")
        leash.end(1)


def run(options: BackendOptions, address: str, report: Callable[..., None], leash: Leash) -> None:
    """Bind first, so that a taken address shows at once; then load; then serve."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    router = bind(context, address)
    leash.socket_file = address.removeprefix("ipc://") if address.startswith("ipc://") else ""
    backend = Backend(router)
    system = assemble(options, progress=lambda text: report(progress=text), wake=backend.wake)
    gc.freeze()  # what is loaded stays: don't look at it in every collection
    report(ready=router.getsockopt_string(zmq.LAST_ENDPOINT))  # with the port, where any was fine
    backend.serve(system)


def _read_line(descriptor: int) -> bytes:
    """One line, without taking anything that follows it out of the pipe."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(descriptor, 1)
        if not byte:
            break
        line += byte
    return line


if __name__ == "__main__":
    main()
