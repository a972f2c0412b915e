"""Whether a server keeps its pace and its memory under many streams for minutes on end.

    python benchmarks/server_endurance.py [URL --pid PID] [--streams 200] [--minutes 10] [--json out.json] [--plot out.png]

Without a URL it starts `sapwood serve MODEL` itself. Each of the streams asks, reads to the end and asks again, always with a
new prompt, so that the cache fills and evicts. Once a second the resident memory of the server and of its backend (the
processes that PID started) is noted (Linux). What it keeps in memory itself is a few numbers a second and a request.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from server import WORDS, memory_mb

FLAT = 0.02  # memory whose last third is this much larger than its middle third, at most, is flat
MAX_SAID = 5  # errors that are quoted


@dataclass
class Record:
    """What is seen in a run."""

    stall_s: float  # a wait between two events that counts as a stall
    rates: list[float] = field(default_factory=list)  # tokens a second after the first, of each answer
    firsts: list[float] = field(default_factory=list)  # seconds to the first token
    longest_gap: float = 0.0
    stalls: int = 0
    errors: int = 0
    said: list[str] = field(default_factory=list)
    num_tokens: int = 0
    per_stream: dict[int, int] = field(default_factory=dict)  # tokens that each of the streams got
    seconds: list[float] = field(default_factory=list)
    server_mb: list[float] = field(default_factory=list)
    backend_mb: list[float] = field(default_factory=list)
    tokens_by_second: list[int] = field(default_factory=list)


async def ask(host: str, port: int, max_tokens: int, rng: random.Random, number: int, record: Record) -> None:
    """One streamed answer. Raises on any error."""
    prompt = " ".join(rng.choice(WORDS) for _ in range(32))
    fields = {"prompt": prompt, "max_tokens": max_tokens, "ignore_eos": True, "temperature": 0, "stream": True}
    body = json.dumps(fields).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: bench\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    started = time.perf_counter()
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(head.encode() + body)
        first = last = 0.0
        count = 0
        while True:
            line = await asyncio.wait_for(reader.readline(), record.stall_s)
            if not line:
                raise RuntimeError("the connection was closed in the middle of an answer")
            if line.startswith(b"HTTP/1.1 ") and b" 200 " not in line or line.startswith(b'data: {"error"'):
                raise RuntimeError(line.decode().strip())
            if line.startswith(b"data: [DONE]"):
                break
            if line.startswith(b"data: {"):
                now = time.perf_counter()
                first = first or now
                record.longest_gap = max(record.longest_gap, now - (last or now))
                last = now
                count += 1
                record.num_tokens += 1
                record.per_stream[number] = record.per_stream.get(number, 0) + 1
    finally:
        writer.close()
    record.firsts.append(first - started)
    if last > first:
        record.rates.append((count - 1) / (last - first))


async def keep_asking(host: str, port: int, options: argparse.Namespace, number: int, record: Record) -> None:
    """One of the streams, until the time is up."""
    rng = random.Random(number)
    end = time.monotonic() + 60 * options.minutes
    while time.monotonic() < end:
        try:
            await ask(host, port, options.tokens, rng, number, record)
        except asyncio.TimeoutError:
            record.stalls += 1
        except (OSError, RuntimeError) as error:
            record.errors += 1
            record.said = [*record.said, repr(error)][:MAX_SAID]
            await asyncio.sleep(1)  # a server that is down isn't hammered


async def note_memory(pid: int | None, record: Record) -> None:
    """Once a second, for ever: memory and progress."""
    started = time.monotonic()
    before = 0
    while True:
        await asyncio.sleep(1)
        record.seconds.append(round(time.monotonic() - started, 1))
        record.tokens_by_second.append(record.num_tokens - before)
        before = record.num_tokens
        if pid is not None:
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            record.server_mb.append(memory_mb(pid))
            record.backend_mb.append(sum(memory_mb(int(child)) for child in children))


async def endure(url: str, pid: int | None, options: argparse.Namespace) -> Record:
    """The whole run."""
    parts = urlsplit(url)
    assert parts.hostname, "the URL needs a host"
    record = Record(options.stall)
    noting = asyncio.ensure_future(note_memory(pid, record))
    port = parts.port or 80
    await asyncio.gather(*[keep_asking(parts.hostname, port, options, i, record) for i in range(options.streams)])
    noting.cancel()
    return record


def growth(values: list[float]) -> float:
    """How much larger the last third is than the middle one, in the mean."""
    third = len(values) // 3
    return statistics.mean(values[2 * third :]) / statistics.mean(values[third : 2 * third]) - 1


def summary(record: Record, options: argparse.Namespace) -> dict[str, Any]:
    """The figures of a run."""
    shares = [record.per_stream.get(i, 0) for i in range(options.streams)]
    figures: dict[str, Any] = {
        "streams": options.streams,
        "minutes": options.minutes,
        "answers": len(record.firsts),
        "errors": record.errors,
        "stalls": record.stalls,
        "said": record.said,
        "longest_gap_s": record.longest_gap,
        "tokens_per_second": record.num_tokens / record.seconds[-1],
        "slowest_to_median_rate": min(record.rates) / statistics.median(record.rates),
        "least_to_median_share": min(shares) / statistics.median(shares),
        "first_token_median_s": statistics.median(record.firsts),
    }
    for name, values in (("server", record.server_mb), ("backend", record.backend_mb)):
        if len(values) >= 6:
            figures[f"{name}_mb"] = f"{values[0]:.0f} at first, {max(values):.0f} at most, {values[-1]:.0f} at last"
            figures[f"{name}_growth"] = growth(values)
            figures[f"{name}_flat"] = growth(values) < FLAT
    return figures


def plot(record: Record, path: Path) -> None:
    """Memory and tokens over time."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (above, below) = pyplot.subplots(2, 1, sharex=True, figsize=(8, 6))
    for name, values in (("server", record.server_mb), ("backend", record.backend_mb)):
        above.plot(record.seconds[: len(values)], values, label=name)
    above.set_ylabel("resident memory, MB")
    above.set_ylim(bottom=0)
    above.legend()
    below.plot(record.seconds, record.tokens_by_second)
    below.set_ylabel("tokens a second")
    below.set_xlabel("seconds")
    figure.savefig(path)


def main() -> int:
    """Run, print, and exit with 1 if anything went wrong or memory isn't flat."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", nargs="?", help="a running server; none: start one")
    parser.add_argument("--pid", type=int, help="the running server's process, for its memory")
    parser.add_argument("--model", default="smollm2-135m", help="of the server that is started")
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--tokens", type=int, default=64, help="of each answer")
    parser.add_argument("--stall", type=float, default=30, help="seconds without an event that count as a stall")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args()
    if options.url:
        record = asyncio.run(endure(options.url, options.pid, options))
    else:
        command = [sys.executable, "-m", "sapwood.runtime.cli", "serve", options.model, "--port", "0"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            try:
                assert process.stderr
                url = next(line.split("served at ")[1].split()[0] for line in process.stderr if "http://" in line)
                record = asyncio.run(endure(url, process.pid, options))
            finally:
                process.terminate()
    figures = summary(record, options)
    for name, value in figures.items():
        print(f"{name:<24} {value:.3f}" if isinstance(value, float) else f"{name:<24} {value}")
    if options.json:
        series = {name: getattr(record, name) for name in ("seconds", "server_mb", "backend_mb", "tokens_by_second")}
        options.json.write_text(json.dumps(figures | {"series": series}))
    if options.plot:
        plot(record, options.plot)
    flat = figures.get("server_flat", True) and figures.get("backend_flat", True)
    return int(bool(record.errors or record.stalls or not flat))


if __name__ == "__main__":
    sys.exit(main())
