"""The server's settings: one record, filled from flags, environment and one TOML file by the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec
from platformdirs import user_data_path


class ServerConfig(msgspec.Struct, kw_only=True, frozen=True):
    """How HTTP is served. What the backend does is `BackendOptions`'s matter."""

    host: str = "127.0.0.1"
    port: int = 8000
    served_model_name: str | None = None  # None: the model's own
    api_keys: tuple[str, ...] = ()  # empty: no key needed
    admin_keys: tuple[str, ...] = ()  # empty: the api keys open the admin routes too
    tls_cert: str | None = None
    tls_key: str | None = None
    cors_origins: tuple[str, ...] = ()
    max_body: int = 16 * 2**20  # bytes
    max_concurrency: int = 1024  # requests in the server at once; more get 429
    request_timeout: float | None = None  # seconds, for requests that name none
    header_timeout: float = 10.0  # seconds a client may take to send the headers of a request
    keep_alive: int = 30  # seconds an idle connection stays open
    drain_timeout: float = 30.0  # seconds running requests get on SIGTERM
    access_log: bool = False
    otlp_endpoint: str | None = None  # of an OpenTelemetry collector: one span a request
    page: bool = True
    logprob_layout: Literal["current", "legacy"] = "current"  # of /generate, see docs/server.md
    tool_format: str | None = None  # None: found from the chat template
    reasoning_format: str | None = None
    data_dir: str | None = None  # files, batches, snapshots; None: the user's data folder

    @property
    def data_folder(self) -> Path:
        """Where files, batches and snapshots are kept."""
        return Path(self.data_dir) if self.data_dir else user_data_path("sapwood")
