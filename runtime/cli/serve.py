"""`sapwood serve`: a backend and HTTP in one command."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from sapwood.errors import InvalidRequest
from sapwood.runtime.cli.options import DEFAULT_MODEL, ContextLength, Kernels, Slots, Threads, backend_options
from sapwood.runtime.cli.terminal import note, waiting

HTTP = "HTTP"
KEYS = "Keys"
LIMITS = "Limits"
FORMATS = "Formats"
BACKEND = "Backend"


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
    known = {parameter.name for parameter in context.command.params} - {"config"}
    unknown = sorted(set(values) - known)
    if unknown:
        raise InvalidRequest(f"{path} sets {', '.join(unknown)}; known are {', '.join(sorted(filter(None, known)))}")
    context.default_map = {**(context.default_map or {}), **values}
    return path


def _option(panel: str, name: str, help: str, **extra: Any) -> Any:
    return typer.Option(
        f"--{name}",
        envvar="SAPWOOD_" + name.upper().replace("-", "_"),
        show_envvar=False,
        help=help,
        rich_help_panel=panel,
        **extra,
    )


def serve(
    model: Annotated[
        str,
        typer.Argument(
            envvar="SAPWOOD_MODEL", show_envvar=False, help="A pulled model's name, or a path to a .gguf or a folder."
        ),
    ] = DEFAULT_MODEL,
    config: Annotated[
        Path | None,
        typer.Option(
            is_eager=True, callback=_read_config, envvar="SAPWOOD_CONFIG", help="A TOML file with any of these options."
        ),
    ] = None,
    host: Annotated[
        str, _option(HTTP, "host", "Where to listen. 0.0.0.0: on every interface; then set a key.")
    ] = "127.0.0.1",
    port: Annotated[int, _option(HTTP, "port", "0: any free port.", min=0, max=65535)] = 8000,
    served_model_name: Annotated[
        str | None, _option(HTTP, "served-model-name", "The name clients see. Default: the model's.")
    ] = None,
    tls_cert: Annotated[str | None, _option(HTTP, "tls-cert", "Certificate chain (PEM): serve https.")] = None,
    tls_key: Annotated[str | None, _option(HTTP, "tls-key", "The certificate's private key (PEM).")] = None,
    cors_origin: Annotated[
        list[str] | None,
        _option(HTTP, "cors-origin", "A web origin that may call this server; repeat it, or *. Default: none."),
    ] = None,
    page: Annotated[bool, typer.Option(help="Serve the page at /.", rich_help_panel=HTTP)] = True,
    access_log: Annotated[bool, _option(HTTP, "access-log", "Write one JSON line a request to stderr.")] = False,
    data_dir: Annotated[
        str | None, _option(HTTP, "data-dir", "Where files and batches are kept. Default: the user's data folder.")
    ] = None,
    api_key: Annotated[
        list[str] | None,
        _option(KEYS, "api-key", "A key that clients must send; repeat it. Better: the variable or a file."),
    ] = None,
    api_key_file: Annotated[Path | None, _option(KEYS, "api-key-file", "A file with one key a line.")] = None,
    admin_key: Annotated[
        list[str] | None,
        _option(KEYS, "admin-key", "A key for flush, snapshots and pins, which API keys then no longer open."),
    ] = None,
    max_body: Annotated[int, _option(LIMITS, "max-body", "Largest request body, in bytes.", min=1)] = 16 * 2**20,
    max_concurrency: Annotated[
        int, _option(LIMITS, "max-concurrency", "Requests in the server at once; further ones get 429.", min=1)
    ] = 1024,
    max_queue: Annotated[
        int | None, _option(LIMITS, "max-queue", "Requests that may wait for the backend; further ones get 429.", min=1)
    ] = None,
    request_timeout: Annotated[
        float | None,
        _option(LIMITS, "request-timeout", "Seconds a request may take if it names none. Default: no limit.", min=0.1),
    ] = None,
    keep_alive: Annotated[int, _option(LIMITS, "keep-alive", "Seconds an idle connection stays open.", min=0)] = 30,
    drain_timeout: Annotated[
        float, _option(LIMITS, "drain-timeout", "Seconds that running requests get to finish on SIGTERM.", min=0)
    ] = 30.0,
    logprob_layout: Annotated[
        Literal["current", "legacy"],
        _option(
            FORMATS,
            "logprob-layout",
            "Of /generate's input logprobs. legacy: what SGLang's own frontend (select) needs.",
        ),
    ] = "current",
    tool_format: Annotated[
        Literal["hermes", "llama3", "mistral", "pythonic"] | None,
        _option(FORMATS, "tool-format", "How the model writes tool calls. Default: as its chat template shows."),
    ] = None,
    reasoning_format: Annotated[
        Literal["think"] | None,
        _option(
            FORMATS,
            "reasoning-format",
            "think: text in <think> tags is reasoning. Default: as its chat template shows.",
        ),
    ] = None,
    backend: Kernels = "cpu",
    threads: Threads = None,
    num_slots: Slots = None,
    context_length: ContextLength = None,
    max_rows: Annotated[
        int | None,
        _option(BACKEND, "max-rows", "Tokens computed in one step. Larger: faster prefill, longer pauses.", min=1),
    ] = None,
    address: Annotated[
        str | None,
        _option(BACKEND, "address", "Also let programs connect here, e.g. ipc:///tmp/sapwood.sock. Default: private."),
    ] = None,
) -> None:
    """Serve a model: OpenAI's API at /v1, SGLang's /generate, Anthropic's, Ollama's, and a page at /.

    Every option can also be set in the environment (--api-key as SAPWOOD_API_KEY) or in the TOML file.
    """
    from sapwood.runtime.client import Client
    from sapwood.runtime.server.config import ServerConfig
    from sapwood.runtime.server.serving import exit_on_sigterm, listen, serve, url_of

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
        keep_alive=keep_alive,
        drain_timeout=drain_timeout,
        access_log=access_log,
        page=page,
        logprob_layout=logprob_layout,
        tool_format=tool_format,
        reasoning_format=reasoning_format,
        data_dir=data_dir,
    )
    exit_on_sigterm()
    taken = listen(host, port)
    with waiting(f"Loading {model}"):
        options = backend_options(
            backend=backend,
            threads=threads,
            num_slots=num_slots,
            context_length=context_length,
            max_rows=max_rows,
            max_queue=max_queue,
            address=address,
        )
        client = Client.launch(model, **options)
    url = url_of(taken, settings)

    def ready() -> None:
        note(f"{client.info.name} is served at {url} (page), {url}/v1 (OpenAI). Ctrl-C ends it.")
        if host not in ("127.0.0.1", "localhost", "::1") and not settings.api_keys:
            note(f"Anyone who reaches {host} can use it: set --api-key-file to ask for a key.")

    with client:
        serve(client, settings, taken, ready)


def keys(given: list[str] | None, file: Path | None) -> tuple[str, ...]:
    """All API keys, from options (or SAPWOOD_API_KEY) and the file."""
    found = list(given or ())
    if file is not None:
        try:
            found += [line.strip() for line in file.read_text().splitlines() if line.strip()]
        except OSError as error:
            raise InvalidRequest(f"can't read {file}: {error.strerror}; check --api-key-file") from None
        if not found:
            raise InvalidRequest(f"{file} holds no key; write one a line")
    return tuple(found)
