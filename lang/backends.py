"""What programs run on: the one small interface, and the default."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from sapwood.runtime.messages import Generate, Reply

if TYPE_CHECKING:
    from sapwood.runtime.client import Client


class Call(Protocol):
    def cancel(self) -> None: ...


class TextTokenizer(Protocol):
    """What programs use of a tokenizer. Two are the same if they are one object."""

    def __hash__(self) -> int: ...
    @property
    def token_bytes(self) -> Sequence[bytes]: ...
    @property
    def special(self) -> Mapping[str, int]: ...
    @property
    def bos_id(self) -> int | None: ...
    @property
    def add_bos(self) -> bool: ...
    def encode(self, text: str) -> list[int]: ...
    def render(self, messages: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool = True) -> str: ...


class Backend(Protocol):
    """`sapwood.runtime.client.Client` is one; `sapwood.lang.openai.OpenAI` and `sapwood.lang.mock.Mock` are others.

    One that can't do all that programs may ask for has an attribute `lacks`: a frozenset of names from
    `expressions.GRAMMARS` and "select".
    """

    @property
    def tokenizer(self) -> TextTokenizer: ...

    def new_rid(self) -> str: ...

    def submit(self, request: Generate, on_reply: Callable[[Reply], None]) -> Call: ...

    def ask(self, what: str, **args: Any) -> Any: ...


_lock = threading.Lock()
_default: Backend | None = None
_default_name: str | None = None


def set_default_backend(backend: Backend | str | None) -> None:
    """What programs run on that name no backend: an object, a backend's address (ipc://, tcp://), the address of an
    OpenAI-compatible server (http://host/v1), or a model's name or path to start a backend with at the first use."""
    global _default, _default_name
    with _lock:
        if isinstance(backend, str):
            _default, _default_name = None, backend
        else:
            _default, _default_name = backend, None


def default_backend() -> Backend:
    """The default; the first program that needs one starts the default model, which lives as long as this process."""
    global _default
    with _lock:
        if _default is None:
            _default = open_backend(_default_name)
        return _default


def open_backend(name: str | None) -> Backend:
    """A backend by address, or by the model to start one with."""
    if name is not None and name.startswith(("http://", "https://")):
        from sapwood.lang.openai import OpenAI

        return OpenAI(base_url=name)
    return _kept(name)


def _kept(name: str | None) -> Client:
    from sapwood.runtime.client import Client
    from sapwood.runtime.store import DEFAULT_MODEL

    if name is not None and name.startswith(("ipc://", "tcp://")):
        client = Client.connect(name)
    else:
        client = Client.launch(name or DEFAULT_MODEL)
    atexit.register(client.close)
    return client


def flush_cache(backend: Backend | None = None) -> bool:
    """Empty the tree of everything that no request holds."""
    (backend or default_backend()).ask("flush")
    return True


def get_server_info(backend: Backend | None = None) -> Any:
    """The backend's counts: tokens reused and computed, queue, memory."""
    return (backend or default_backend()).ask("stats")
