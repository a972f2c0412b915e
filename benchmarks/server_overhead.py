"""What HTTP, ZMQ and detokenizing add to one stream: the same generation in this process, through ZMQ, and through HTTP.

    python benchmarks/server_overhead.py [MODEL] [--rounds 20] [--tokens 128] [--json out.json]

The ways alternate, so that what else the machine does hits them alike. Compared are the times of eight tokens
at a time: the least and the tenth percentile, which leave out what others' work added, and the median. CPU is that of all threads of the processes involved (Linux), without the backend's. Drafting is off, so that each
token is a step of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from sapwood.runtime.assembly import System, assemble
from sapwood.runtime.client import Client
from sapwood.runtime.messages import Generate, Sampling, Tokens
from sapwood.runtime.options import BackendOptions

WINDOW = 8  # tokens: pieces arrive a little early or late, which evens out
PROMPT = "The history of the city begins with a small harbor"
Way = Callable[[], list[float]]  # generates, and returns when each piece of text came


def sampling(tokens: int) -> Sampling:
    return Sampling(max_tokens=tokens, temperature=0.0, ignore_eos=True)


def directly(system: System, ids: list[int], tokens: int) -> list[float]:
    """The scheduler's own steps, without sockets and text."""
    scheduler, times = system.scheduler, []
    scheduler.submit(b"here", Generate("1", ids, sampling(tokens)))
    while scheduler.num_live:
        scheduler.step()
        for replies in scheduler.outbox.take().values():
            times += [time.perf_counter() for reply in replies if isinstance(reply, Tokens) and reply.ids]
    return times


def by_zmq(client: Client, ids: list[int], tokens: int) -> list[float]:
    return [time.perf_counter() for chunk in client.stream(ids, sampling(tokens)) if chunk.ids]


def by_http(port: int, ids: list[int], tokens: int, path: str) -> list[float]:
    """One stream over a connection of its own; a plain socket, so that the client costs next to nothing."""
    fields: dict[str, Any] = {"max_tokens": tokens, "ignore_eos": True, "temperature": 0, "stream": True}
    fields |= {"prompt": ids} if path == "/v1/completions" else {"messages": [{"role": "user", "content": PROMPT}]}
    body = json.dumps(fields).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: bench\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    times = []
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(head.encode() + body)
        tail = b""
        while data := connection.recv(65536):
            now = time.perf_counter()
            events = (tail + data).split(b"\n\n")
            tail = events.pop()
            times += [now for one in events if b"data: {" in one]
    return times


def cpu_seconds(pid: int) -> float:
    """CPU time of all threads of a process, to the nanosecond."""
    return sum(int(path.read_text().split()[0]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


def per_token(times: list[float]) -> list[float]:
    """Milliseconds a token, of WINDOW tokens at a time."""
    ends = times[::WINDOW]
    return [1e3 * (later - earlier) / WINDOW for earlier, later in zip(ends, ends[1:], strict=False)]


def described(values: list[float]) -> dict[str, float]:
    """The figures that are compared."""
    values = sorted(values)
    return {"min": values[0], "p10": values[len(values) // 10], "median": values[len(values) // 2]}


def measure(url: str, address: str, pid: int, options: argparse.Namespace) -> dict[str, Any]:
    """All figures."""
    port = urlsplit(url).port
    assert port
    system = assemble(BackendOptions(model=options.model, speculative="off", num_slots=4096, threads=options.threads))
    with Client.connect(address) as client:
        ids = client.tokenizer.encode(PROMPT)
        ways: dict[str, Way] = {
            "direct": lambda: directly(system, ids, options.tokens),
            "zmq": lambda: by_zmq(client, ids, options.tokens),
            "completions": lambda: by_http(port, ids, options.tokens, "/v1/completions"),
            "chat": lambda: by_http(port, ids, options.tokens, "/v1/chat/completions"),
        }
        for way in ways.values():
            way()
        walls: dict[str, list[float]] = {name: [] for name in ways}
        cpus: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(options.rounds):
            for name, way in ways.items():
                involved = os.getpid() if name == "zmq" else pid  # who talks to the backend
                before = cpu_seconds(involved)
                walls[name] += per_token(way())
                cpus[name].append(1e3 * (cpu_seconds(involved) - before) / options.tokens)
    figures: dict[str, Any] = {"rounds": options.rounds, "tokens": options.tokens}
    base = described(walls["direct"])
    for name, values in walls.items():
        figures[f"{name}_ms"] = wall = described(values)
        if name != "direct":
            figures[f"{name}_added_share"] = {kind: wall[kind] / base[kind] - 1 for kind in base}
            figures[f"{name}_cpu_ms"] = cpu = described(cpus[name])
            figures[f"{name}_cpu_share"] = {kind: cpu[kind] / base[kind] for kind in base}
    return figures


def main() -> None:
    """Start a server, measure, end it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="smollm2-135m")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument(
        "--threads", type=int, help="of the engine; with taskset, a core of one's own makes figures steady"
    )
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        address = f"ipc://{folder}/backend"
        command = [sys.executable, "-m", "sapwood.runtime.cli", "serve", options.model, "--port", "0"]
        command += ["--speculative", "off", "--address", address]
        command += ["--threads", str(options.threads)] if options.threads else []
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            try:
                assert process.stderr
                url = next(line.split("served at ")[1].split()[0] for line in process.stderr if "http://" in line)
                figures = measure(url, address, process.pid, options)
            finally:
                process.terminate()
    for name, value in figures.items():
        shown = {key: round(part, 4) for key, part in value.items()} if isinstance(value, dict) else value
        print(f"{name:<24} {shown}")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
