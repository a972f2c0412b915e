"""What programs run on: the one small interface, and the default."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from sapwood.runtime.messages import Generate, Reply

if TYPE_CHECKING:
    from sapwood.runtime.tokenizer import Tokenizer


class Call(Protocol):
    def cancel(self) -> None: ...


class Backend(Protocol):
    """`sapwood.runtime.client.Client` is one; `sapwood.lang.mock.MockBackend` is another."""

    @property
    def tokenizer(self) -> Tokenizer: ...

    def new_rid(self) -> str: ...

    def submit(self, request: Generate, on_reply: Callable[[Reply], None]) -> Call: ...

    def ask(self, what: str, **args: Any) -> Any: ...


_lock = threading.Lock()
_default: Backend | None = None


def set_default_backend(backend: Backend | str | None) -> None:
    """What programs run on that name no backend: a client, or a model's name or path to start a backend with."""
    global _default
    if isinstance(backend, str):
        backend = _launch(backend)
    with _lock:
        _default = backend


def default_backend() -> Backend:
    """The default; the first program that needs one starts the default model."""
    global _default
    with _lock:
        if _default is None:
            _default = _launch(None)
        return _default


def _launch(model: str | None) -> Backend:
    from sapwood.runtime.client import Client
    from sapwood.runtime.store import DEFAULT_MODEL

    client = Client.launch(model or DEFAULT_MODEL)
    atexit.register(client.close)
    return client


def flush_cache(backend: Backend | None = None) -> bool:
    """Empty the tree of everything that no request holds."""
    (backend or default_backend()).ask("flush")
    return True


def get_server_info(backend: Backend | None = None) -> Any:
    """The backend's counts: tokens reused and computed, queue, memory."""
    return (backend or default_backend()).ask("stats")
