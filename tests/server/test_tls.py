"""https with a certificate of one's own."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import openai
import pytest

from sapwood.errors import InvalidRequest
from sapwood.runtime.client import Client
from sapwood.runtime.server.config import ServerConfig
from sapwood.runtime.server.serving import server_of

Serve = Callable[..., str]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A self-signed certificate for 127.0.0.1, and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate")
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2"]
    subprocess.run([*command, "-keyout", key, "-out", cert], check=True, capture_output=True)
    return cert, key


def test_answers_and_streams_come_over_https(serve: Serve, certificate: tuple[Path, Path]) -> None:
    cert, key = certificate
    url = serve(tls_cert=str(cert), tls_key=str(key))
    assert url.startswith("https://")
    with (
        httpx.Client(verify=ssl.create_default_context(cafile=cert)) as http,
        openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, http_client=http) as ai,
    ):
        answer = ai.completions.create(model="m", prompt="a", max_tokens=3)
        assert answer.usage and answer.usage.completion_tokens <= 3
        pieces = list(ai.completions.create(model="m", prompt="a", max_tokens=3, stream=True, seed=1))
        assert pieces[-1].choices[0].finish_reason in ("length", "stop")


def test_who_speaks_plainly_or_not_at_all_is_refused(serve: Serve, certificate: tuple[Path, Path]) -> None:
    cert, key = certificate
    parts = urlsplit(serve(tls_cert=str(cert), tls_key=str(key), header_timeout=0.3))
    with pytest.raises(httpx.TransportError):
        httpx.get(f"http://{parts.netloc}/health")
    with pytest.raises(httpx.ConnectError, match="(?i)certificate"):
        httpx.get(f"https://{parts.netloc}/health")
    with httpx.Client(verify=ssl.create_default_context(cafile=cert)) as http:
        assert http.get(f"https://{parts.netloc}/health").status_code == 200


@pytest.mark.parametrize("content", ["", "-----BEGIN CERTIFICATE-----\nnonsense\n-----END CERTIFICATE-----\n"])
def test_a_file_that_is_no_certificate_is_one_sentence(backend: Client, tmp_path: Path, content: str) -> None:
    file = tmp_path / "cert.pem"
    file.write_text(content)
    with pytest.raises(InvalidRequest, match="--tls-cert and --tls-key"):
        server_of(backend, ServerConfig(tls_cert=str(file), tls_key=str(file)))
