"""The options of `sapwood serve`: what each means, when to touch it, and its environment variable. At most 40."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

HTTP = "HTTP"
KEYS = "Keys"
LIMITS = "Limits"
FORMATS = "Formats"
BACKEND = "Backend"


def _option(panel: str, name: str, help: str, **extra: Any) -> Any:
    envvar = "SAPWOOD_" + name.upper().replace("-", "_")
    return typer.Option(f"--{name}", envvar=envvar, show_envvar=False, help=help, rich_help_panel=panel, **extra)


ModelArgument = Annotated[
    str,
    typer.Argument(
        envvar="SAPWOOD_MODEL", show_envvar=False, help="A pulled model's name, or a path to a .gguf or a folder."
    ),
]
Host = Annotated[str, _option(HTTP, "host", "Where to listen. 0.0.0.0: on every interface; then set a key.")]
Port = Annotated[int, _option(HTTP, "port", "0: any free port.", min=0, max=65535)]
ServedName = Annotated[str | None, _option(HTTP, "served-model-name", "The name clients see. Default: the model's.")]
TlsCert = Annotated[str | None, _option(HTTP, "tls-cert", "Certificate chain (PEM): serve https.")]
TlsKey = Annotated[str | None, _option(HTTP, "tls-key", "The certificate's private key (PEM).")]
CorsOrigin = Annotated[
    list[str] | None,
    _option(HTTP, "cors-origin", "A web origin that may call this server; repeat it, or *. Default: none."),
]
Page = Annotated[
    bool,
    typer.Option(envvar="SAPWOOD_PAGE", show_envvar=False, help="Serve the page at /.", rich_help_panel=HTTP),
]
AccessLog = Annotated[bool, _option(HTTP, "access-log", "Write one JSON line a request to stderr.")]
OtlpEndpoint = Annotated[
    str | None,
    _option(HTTP, "otlp-endpoint", "Send a span for each request to this OpenTelemetry collector. Default: none."),
]
DataDir = Annotated[
    str | None, _option(HTTP, "data-dir", "Where files and batches are kept. Default: the user's data folder.")
]
ApiKey = Annotated[
    list[str] | None,
    _option(KEYS, "api-key", "A key that clients must send; repeat it. Better: the variable or a file."),
]
ApiKeyFile = Annotated[Path | None, _option(KEYS, "api-key-file", "A file with one key a line.")]
AdminKey = Annotated[
    list[str] | None,
    _option(KEYS, "admin-key", "A key for flush, snapshots and pins, which API keys then no longer open."),
]
MaxBody = Annotated[int, _option(LIMITS, "max-body", "Largest request body, in bytes.", min=1)]
MaxConcurrency = Annotated[
    int, _option(LIMITS, "max-concurrency", "Requests in the server at once; further ones get 429.", min=1)
]
MaxQueue = Annotated[
    int | None,
    _option(LIMITS, "max-queue", "Requests that may wait for the backend; further ones get 429. Default: 4096.", min=1),
]
RequestTimeout = Annotated[
    float | None,
    _option(LIMITS, "request-timeout", "Seconds a request may take if it names none. Default: no limit.", min=0.1),
]
HeaderTimeout = Annotated[
    float,
    _option(LIMITS, "header-timeout", "Seconds a client may take to send its headers; then it is cut off.", min=0.1),
]
KeepAlive = Annotated[int, _option(LIMITS, "keep-alive", "Seconds an idle connection stays open.", min=0)]
DrainTimeout = Annotated[
    float, _option(LIMITS, "drain-timeout", "Seconds that running requests get to finish on SIGTERM.", min=0)
]
LogprobLayout = Annotated[
    Literal["current", "legacy"],
    _option(
        FORMATS, "logprob-layout", "Of /generate's input logprobs. legacy: what SGLang's own frontend (select) needs."
    ),
]
ToolFormat = Annotated[
    Literal["hermes", "llama3", "mistral", "pythonic"] | None,
    _option(FORMATS, "tool-format", "How the model writes tool calls. Default: as its chat template shows."),
]
ReasoningFormat = Annotated[
    Literal["think"] | None,
    _option(
        FORMATS, "reasoning-format", "think: text in <think> tags is reasoning. Default: as its chat template shows."
    ),
]
MaxRows = Annotated[
    int | None,
    _option(BACKEND, "max-rows", "Tokens computed in one step. Larger: faster prefill, longer pauses.", min=1),
]
MaxRunning = Annotated[
    int | None,
    _option(
        BACKEND,
        "max-running",
        "Requests that share a batch. Default: as many as fit, at most 256. Lower: steadier pace.",
        min=1,
    ),
]
Policy = Annotated[
    str | None,
    _option(
        BACKEND,
        "policy",
        "Who of those that wait goes first: lpm (longest cached prefix, default), dfs-weight, fcfs, priority.",
    ),
]
Eviction = Annotated[
    Literal["lru", "lfu", "priority"] | None,
    _option(BACKEND, "eviction", "What of the cache goes first when room is needed. Default: lru."),
]
Ttl = Annotated[
    float | None,
    _option(
        BACKEND, "ttl", "Seconds after which cache that nobody uses is forgotten. Default: kept while there is room."
    ),
]
Speculative = Annotated[
    str | None,
    _option(
        BACKEND,
        "speculative",
        "Drafting of several tokens a step, which never changes the text: auto (default), off, ngram, lookahead, eagle[:FOLDER] or draft:MODEL.",
    ),
]
HostCache = Annotated[
    int | None, _option(BACKEND, "host-cache", "Bytes of memory that catch what is evicted. Default: none.", min=0)
]
DiskCache = Annotated[
    str | None,
    _option(
        BACKEND, "disk-cache", "A folder that catches what falls out of there, also for the next start. Default: none."
    ),
]
Address = Annotated[
    str | None,
    _option(BACKEND, "address", "Also let programs connect here, e.g. ipc:///tmp/sapwood.sock. Default: private."),
]
