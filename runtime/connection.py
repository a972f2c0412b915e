"""The client's socket and the one thread that owns it: sends requests, hands replies to whoever asked, notices the end.

any thread ── submit ──► outgoing ─┐                    ┌─► on_reply(reply)
                                   └─► I/O thread ══════┤
                  wake pipe ───────────┘  DEALER        └─► monitor: the backend went away
"""

from __future__ import annotations

import contextlib
import os
import threading
import traceback
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import Any

import msgspec
import zmq
from zmq.utils.monitor import recv_monitor_message

from sapwood.errors import BackendDied, InvalidRequest
from sapwood.runtime.messages import Abort, Failed, Reply, Request, Tokens

OnReply = Callable[[Reply], None]


class Connection:
    """A live link to one backend. Usable from any thread; `on_reply` is called on the I/O thread and must be quick.

    Once the backend is gone every waiting call gets `Failed(kind="died")`, and `submit` raises BackendDied.
    """

    def __init__(self, address: str, describe_end: Callable[[], str] = lambda: "its connection was closed") -> None:
        self.address = address
        self._describe_end = describe_end
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._dealer: zmq.Socket[bytes] = self._context.socket(zmq.DEALER)
        self._dealer.setsockopt(zmq.LINGER, 0)
        self._dealer.setsockopt(zmq.SNDHWM, 0)
        self._dealer.setsockopt(zmq.RCVHWM, 0)
        self._dealer.setsockopt(zmq.RECONNECT_IVL, 50)
        self._dealer.setsockopt(zmq.RECONNECT_IVL_MAX, 1000)
        if address.startswith("tcp://"):
            self._dealer.setsockopt(zmq.HEARTBEAT_IVL, 2000)
            self._dealer.setsockopt(zmq.HEARTBEAT_TIMEOUT, 6000)
        self._monitor: Any = self._dealer.get_monitor_socket(zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_SUCCEEDED)
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_write, False)
        self._lock = threading.Lock()
        self._calls: dict[str, OnReply] = {}
        self._outgoing: deque[bytes] = deque()
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(list[Reply])
        self._numbers = count(1)
        self._death: str | None = None
        self._closing = False
        try:
            self._dealer.connect(address)
        except zmq.ZMQError as error:
            self._release()
            raise InvalidRequest(f"'{address}' is no address of a backend: {error}") from None
        self._thread = threading.Thread(target=self._run, name="sapwood-client", daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        return self._death is None and not self._closing

    def new_rid(self) -> str:
        """A request id that this connection hasn't used."""
        return f"{next(self._numbers):x}"

    def submit(self, request: Request, on_reply: OnReply | None) -> None:
        """Send a request; `on_reply` gets what comes back, up to its last reply. Raises BackendDied."""
        payload = self._encoder.encode(request)
        with self._lock:
            if self._death is not None:
                raise BackendDied(self._death)
            if self._closing:
                raise BackendDied("the client is closed")
            if on_reply is not None:
                if request.rid in self._calls:
                    raise InvalidRequest(f"a request with the id '{request.rid}' is running; choose another id")
                self._calls[request.rid] = on_reply
            quiet = not self._outgoing
            self._outgoing.append(payload)
        if quiet:
            self._wake()

    def abort(self, target: str) -> None:
        """Give up a request, if it is still running: its `on_reply` gets Failed(kind="cancelled")."""
        if target in self._calls and self.is_alive:
            self.submit(Abort(self.new_rid(), target), None)

    def declare_dead(self, why: str) -> None:
        """The backend is known to be gone: fail everything that waits."""
        self._die(why)

    def close(self) -> None:
        """Let go. Calls that still wait fail."""
        with self._lock:
            if self._closing:
                return
            self._closing = True
        self._wake()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # then it is awake, or gone
            os.write(self._wake_write, b"\0")

    def _run(self) -> None:
        poller = zmq.Poller()
        for source in (self._dealer, self._monitor, self._wake_read):
            poller.register(source, zmq.POLLIN)
        while not self._closing:
            events = dict(poller.poll())
            if self._wake_read in events:
                os.read(self._wake_read, 4096)
            self._send()
            if self._dealer in events:
                self._receive()
            if self._monitor in events:
                self._notice()
        self._die("the client was closed")
        self._release()

    def _send(self) -> None:
        with self._lock:
            outgoing = list(self._outgoing)
            self._outgoing.clear()
        for payload in outgoing:
            self._dealer.send(payload)

    def _receive(self) -> None:
        """One message: the poll that follows tells of the next at less cost than a try that finds none."""
        for reply in self._decoder.decode(self._dealer.recv()):
            self._hand_out(reply)

    def _hand_out(self, reply: Reply) -> None:
        if isinstance(reply, Tokens) and reply.finish_reason is None:
            on_reply = self._calls.get(reply.rid)
        else:
            with self._lock:
                on_reply = self._calls.pop(reply.rid, None)
        if on_reply is not None:
            try:
                on_reply(reply)
            except Exception:
                traceback.print_exc()

    def _notice(self) -> None:
        """Something happened to the connection."""
        while self._monitor.poll(0):
            event = recv_monitor_message(self._monitor)["event"]
            if event == zmq.EVENT_DISCONNECTED:
                self._die(f"the backend at {self.address} is gone ({self._describe_end()})")
            elif event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self._death = None  # it was started again at the same address

    def _die(self, why: str) -> None:
        with self._lock:
            self._death = why
            calls, self._calls = self._calls, {}
            self._outgoing.clear()
        for rid, on_reply in calls.items():
            try:
                on_reply(Failed(rid, "died", why))
            except Exception:
                traceback.print_exc()

    def _release(self) -> None:
        self._dealer.disable_monitor()
        self._monitor.close(0)
        self._dealer.close(0)
        self._context.term()
        os.close(self._wake_read)
        os.close(self._wake_write)
