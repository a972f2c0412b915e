"""Clients that take their time to send a request."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest

Serve = Callable[..., str]
PATIENCE = 0.4  # seconds, the limit in these tests
LATE = 5.0  # when a test gives up


@contextmanager
def connection(url: str) -> Iterator[socket.socket]:
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port), timeout=LATE) as taken:
        yield taken


def drip(taken: socket.socket, data: bytes, pause: float) -> float:
    """Send byte by byte until the other side has closed; returns the seconds until then."""
    started = time.monotonic()
    ended = threading.Event()

    def send() -> None:
        for byte in data:
            if ended.wait(pause):
                return
            try:
                taken.send(bytes([byte]))
            except OSError:
                return

    sender = threading.Thread(target=send)
    sender.start()
    try:
        while taken.recv(4096):
            pass
    except ConnectionResetError:
        pass
    finally:
        ended.set()
        sender.join()
    return time.monotonic() - started


def answer(taken: socket.socket) -> bytes:
    """Everything up to the end of a short JSON answer."""
    text = b""
    while b"}" not in text:
        piece = taken.recv(4096)
        assert piece, text
        text += piece
    return text


@pytest.fixture
def hurried(serve: Serve) -> str:
    return serve(header_timeout=PATIENCE, keep_alive=1)


def test_who_sends_headers_byte_by_byte_is_cut_off(hurried: str) -> None:
    with connection(hurried) as taken:
        assert PATIENCE / 2 < drip(taken, b"GET /health HTTP/1.1\r\nHost: slow\r\n" + b"x: y\r\n" * 200, 0.02) < LATE


def test_and_is_told_why(hurried: str) -> None:
    with connection(hurried) as taken:
        taken.sendall(b"GET /health HTTP/1.1\r\nHost:")
        head, _, body = answer(taken).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 408 ") and b"connection: close" in head.lower()
        error = json.loads(body)["error"]
        assert error["code"] == "slow_headers" and "0.4 s" in error["message"]
        assert taken.recv(1) == b""


def test_who_sends_nothing_is_cut_off_without_a_word(hurried: str) -> None:
    with connection(hurried) as taken:
        assert taken.recv(1) == b""


def test_the_second_request_of_a_connection_is_held_to_it_too(hurried: str) -> None:
    with connection(hurried) as taken:
        taken.sendall(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
        assert answer(taken).startswith(b"HTTP/1.1 200 ")
        assert drip(taken, b"GET /health HTTP/1.1\r\n" + b"x: y\r\n" * 200, 0.02) < LATE


def test_an_idle_connection_is_closed_after_keep_alive(hurried: str) -> None:
    with connection(hurried) as taken:
        taken.sendall(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
        answer(taken)
        started = time.monotonic()
        assert taken.recv(1) == b""
        assert time.monotonic() - started > PATIENCE  # keep_alive counts here, not the headers' limit


@pytest.mark.parametrize(
    "request_",
    [b"\x16\x03\x01 hello\r\n\r\n", b"GET / HTTP/1.1\r\nHost: a\r\nx: " + b"y" * 100_000],
    ids=["tls", "long"],
)
def test_what_is_no_http_is_refused_in_our_own_form(hurried: str, request_: bytes) -> None:
    with connection(hurried) as taken:
        taken.sendall(request_)
        head, _, body = answer(taken).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400 ")
        error = json.loads(body)["error"]
        assert error["type"] == "invalid_request_error" and "65536 bytes" in error["message"]


def test_a_body_that_turns_into_nonsense_ends_its_connection_and_no_other(hurried: str) -> None:
    head = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    with connection(hurried) as taken:
        taken.sendall(head + b'5\r\n{"pro\r\nnonsense\r\n')
        assert answer(taken).startswith(b"HTTP/1.1 400 ")
    with connection(hurried) as taken:
        taken.sendall(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
        assert answer(taken).startswith(b"HTTP/1.1 200 ")


def test_a_body_that_trickles_is_cut_off_and_one_that_flows_is_not(hurried: str) -> None:
    head = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n"
    with connection(hurried) as taken:
        taken.sendall(head % 1000)
        assert drip(taken, b" " * 1000, 0.02) < LATE
    body = b'{"prompt": "a", "max_tokens": 1}' + b" " * 3000
    with connection(hurried) as taken:
        taken.sendall(head % len(body))
        for start in range(0, len(body), 500):  # 1.5 times the limit in all, well above the least rate
            taken.sendall(body[start : start + 500])
            time.sleep(1.5 * PATIENCE * 500 / len(body))
        assert answer(taken).startswith(b"HTTP/1.1 200 ")


def test_a_long_answer_is_no_slow_request(hurried: str) -> None:
    with connection(hurried) as taken:
        taken.sendall(b"GET /watch HTTP/1.1\r\nHost: a\r\n\r\n")
        started = time.monotonic()
        while time.monotonic() - started < 3 * PATIENCE:
            assert taken.recv(65536)
