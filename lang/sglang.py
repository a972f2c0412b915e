"""Names that only programs written for SGLang use, so that they run as they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sapwood.errors import InvalidRequest
from sapwood.lang.openai import OpenAI
from sapwood.runtime.client import Client


@dataclass
class GlobalConfig:
    """SGLang's switches. All are taken; none is needed here."""

    verbosity: int = 0
    default_backend: Any = None
    skip_special_tokens_in_output: bool = True
    spaces_between_special_tokens_in_out: bool = True
    enable_precache_with_tracing: bool = True
    enable_parallel_encoding: bool = True


global_config = GlobalConfig()


def Runtime(model_path: str = "smollm2-135m", **options: Any) -> Client:  # noqa: N802
    """A backend of one's own: `Client.launch`. Of SGLang's server arguments the backend's own are taken."""
    client = Client.launch(model_path, **options)
    client.shutdown = client.close  # type: ignore[attr-defined]
    return client


def RuntimeEndpoint(base_url: str, api_key: str | None = None, **_: Any) -> Client | OpenAI:  # noqa: N802
    """A backend that runs elsewhere: ipc:// and tcp:// directly, http:// through the server's OpenAI API.

    Over HTTP a Sapwood or SGLang server is assumed: it takes regexes and schemas, and scores choices.
    """
    if base_url.startswith(("ipc://", "tcp://")):
        return Client.connect(base_url)
    url = base_url.rstrip("/").removesuffix("/v1")
    return OpenAI(base_url=f"{url}/v1", api_key=api_key, grammars=("json_schema", "regex", "ebnf"), selects=True)


def image(*_: Any) -> Any:
    """Sapwood runs language models without eyes."""
    raise InvalidRequest("images can't be appended: no model that Sapwood runs reads images")


def video(*_: Any) -> Any:
    """As `image`."""
    raise InvalidRequest("videos can't be appended: no model that Sapwood runs reads videos")
