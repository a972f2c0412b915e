"""`sapwood serve`: a backend and HTTP in one command."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sapwood.errors import InvalidRequest
from sapwood.runtime.cli import serve_options as given
from sapwood.runtime.cli.opening import open_client
from sapwood.runtime.cli.options import DEFAULT_MODEL, ContextLength, Kernels, Slots, Threads
from sapwood.runtime.cli.terminal import exit_on_sigterm, note

if TYPE_CHECKING:
    from sapwood.runtime.server.config import ServerConfig

LOCAL = ("127.0.0.1", "localhost", "::1")


def _read_config(context: typer.Context, path: Path | None) -> Path | None:
    """Take defaults from a TOML file: its keys are the options' names with underscores."""
    if path is None:
        return None
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        values = tomllib.loads(path.read_text())
    except OSError as error:
        raise InvalidRequest(f"can't read {path}: {error.strerror}; check --config") from None
    except tomllib.TOMLDecodeError as error:
        raise InvalidRequest(f"{path} is not valid TOML: {error}") from None
    known = {parameter.name for parameter in context.command.params if parameter.name} - {"config"}
    unknown = sorted(set(values) - known)
    if unknown:
        raise InvalidRequest(f"{path} sets {', '.join(unknown)}; known are {', '.join(sorted(known))}")
    context.default_map = {**(context.default_map or {}), **values}
    return path


def serve(
    model: given.ModelArgument = DEFAULT_MODEL,
    config: Annotated[
        Path | None,
        typer.Option(
            envvar="SAPWOOD_CONFIG",
            show_envvar=False,
            is_eager=True,
            callback=_read_config,
            help="A TOML file with any of these options.",
        ),
    ] = None,
    host: given.Host = "127.0.0.1",
    port: given.Port = 8000,
    served_model_name: given.ServedName = None,
    tls_cert: given.TlsCert = None,
    tls_key: given.TlsKey = None,
    cors_origin: given.CorsOrigin = None,
    page: given.Page = True,
    access_log: given.AccessLog = False,
    otlp_endpoint: given.OtlpEndpoint = None,
    data_dir: given.DataDir = None,
    api_key: given.ApiKey = None,
    api_key_file: given.ApiKeyFile = None,
    admin_key: given.AdminKey = None,
    max_body: given.MaxBody = 16 * 2**20,
    max_concurrency: given.MaxConcurrency = 1024,
    max_queue: given.MaxQueue = None,
    request_timeout: given.RequestTimeout = None,
    header_timeout: given.HeaderTimeout = 10.0,
    keep_alive: given.KeepAlive = 30,
    drain_timeout: given.DrainTimeout = 30.0,
    logprob_layout: given.LogprobLayout = "current",
    tool_format: given.ToolFormat = None,
    reasoning_format: given.ReasoningFormat = None,
    backend: Kernels = "cpu",
    threads: Threads = None,
    num_slots: Slots = None,
    context_length: ContextLength = None,
    max_rows: given.MaxRows = None,
    max_running: given.MaxRunning = None,
    policy: given.Policy = None,
    eviction: given.Eviction = None,
    ttl: given.Ttl = None,
    speculative: given.Speculative = None,
    host_cache: given.HostCache = None,
    disk_cache: given.DiskCache = None,
    address: given.Address = None,
) -> None:
    """Serve a model: OpenAI's API at /v1, SGLang's /generate, Anthropic's, Ollama's, and a page at /.

    Every option can also be set in the environment (--api-key as SAPWOOD_API_KEY) or in the TOML file.
    """
    from sapwood.runtime.server.config import ServerConfig

    settings = ServerConfig(
        host=host,
        port=port,
        served_model_name=served_model_name,
        api_keys=keys(api_key, api_key_file),
        admin_keys=tuple(admin_key or ()),
        tls_cert=tls_cert,
        tls_key=tls_key,
        cors_origins=tuple(cors_origin or ()),
        max_body=max_body,
        max_concurrency=max_concurrency,
        request_timeout=request_timeout,
        header_timeout=header_timeout,
        keep_alive=keep_alive,
        drain_timeout=drain_timeout,
        access_log=access_log,
        otlp_endpoint=otlp_endpoint,
        page=page,
        logprob_layout=logprob_layout,
        tool_format=tool_format,
        reasoning_format=reasoning_format,
        data_dir=data_dir,
    )
    options: dict[str, object] = {
        "backend": backend,
        "threads": threads,
        "num_slots": num_slots,
        "context_length": context_length,
        "max_rows": max_rows,
        "max_queue": max_queue,
        "max_running": max_running,
        "policy": policy,
        "eviction": eviction,
        "ttl": ttl,
        "speculative": speculative,
        "host_cache": host_cache,
        "disk_cache": disk_cache,
        "address": address,
    }
    start(model, settings, options)


def start(model: str, settings: ServerConfig, options: dict[str, object]) -> None:
    """Take the port, start the backend, serve until a signal."""
    from sapwood.runtime.server.serving import listen, server_of, url_of

    exit_on_sigterm(0)  # what a drained server should answer
    taken = listen(settings.host, settings.port)
    client = open_client(model, None, **options)
    url = url_of(taken, settings)

    def ready() -> None:
        note(f"{client.info.name} is served at {url} (page), {url}/v1 (OpenAI). Ctrl-C ends it.")
        if settings.host not in LOCAL and not settings.api_keys:
            note(f"Anyone who reaches {settings.host} can use it: set --api-key-file to ask for a key.")

    with client:
        server_of(client, settings, ready).run(sockets=[taken])


def keys(listed: list[str] | None, file: Path | None) -> tuple[str, ...]:
    """All API keys, from options (or SAPWOOD_API_KEY) and the file."""
    found = list(listed or ())
    if file is not None:
        try:
            found += [line.strip() for line in file.read_text().splitlines() if line.strip()]
        except OSError as error:
            raise InvalidRequest(f"can't read {file}: {error.strerror}; check --api-key-file") from None
        if not found:
            raise InvalidRequest(f"{file} holds no key; write one a line")
    return tuple(found)
