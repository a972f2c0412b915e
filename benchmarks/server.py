"""What the HTTP server costs and how fair it is: start-up, CPU a token at 16 streams, 200 streams at once.

    python benchmarks/server.py [MODEL] [--streams 200] [--tokens 64] [--json out.json]

Starts `sapwood serve` itself and reads the server process's CPU time from /proc (Linux). Standard library only.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WORDS = ("apple", "bridge", "castle", "engine", "forest", "garden", "harbor", "island", "kitchen", "machine", "orange")
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Stream:
    """One streamed answer, in seconds since its start."""

    first: float  # to the first token
    rate: float  # tokens a second after it
    gap: float  # longest wait between two events


async def stream(port: int, prompt: str, max_tokens: int) -> Stream:
    """Ask for one answer and time its events. Raises on any error."""
    fields = {"prompt": prompt, "max_tokens": max_tokens, "ignore_eos": True, "temperature": 0, "stream": True}
    body = json.dumps(fields).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST /v1/completions HTTP/1.1\r\nHost: bench\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    started = time.perf_counter()
    times = []
    async for line in reader:
        if line.startswith(b"HTTP/1.1 ") and b" 200 " not in line or b'"error"' in line:
            raise RuntimeError(line.decode())
        if line.startswith(b"data: {"):
            times.append(time.perf_counter())
    writer.close()
    waits = [later - earlier for earlier, later in zip(times, times[1:], strict=False)]
    return Stream(times[0] - started, (max_tokens - 1) / sum(waits), max(waits))


async def streams(port: int, num_streams: int, max_tokens: int, seed: int) -> list[Stream]:
    """That many at once, each with a prompt of its own."""
    rng = random.Random(seed)
    prompts = [" ".join(rng.choice(WORDS) for _ in range(32)) for _ in range(num_streams)]
    return await asyncio.gather(*[stream(port, prompt, max_tokens) for prompt in prompts])


def cpu_seconds(pid: int) -> float:
    """CPU time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def memory_mb(pid: int) -> float:
    """Resident memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def measure(process: subprocess.Popen[str], started: float, options: argparse.Namespace) -> dict[str, Any]:
    """All figures of one server."""
    assert process.stderr
    port = next(int(line.split("http://127.0.0.1:")[1].split()[0]) for line in process.stderr if "http://" in line)
    asyncio.run(streams(port, 1, 2, seed=0))
    figures: dict[str, Any] = {"start_to_first_answer_s": time.perf_counter() - started}
    before = cpu_seconds(process.pid)
    asyncio.run(streams(port, 16, 256, seed=1))
    figures["server_cpu_ms_per_token"] = 1e3 * (cpu_seconds(process.pid) - before) / (16 * 256)
    begun = time.perf_counter()
    many = asyncio.run(streams(port, options.streams, options.tokens, seed=2))
    rates = [one.rate for one in many]
    figures |= {
        "streams": options.streams,
        "tokens_per_second": options.streams * options.tokens / (time.perf_counter() - begun),
        "slowest_to_median_rate": min(rates) / statistics.median(rates),
        "longest_gap_s": max(one.gap for one in many),
        "first_token_median_s": statistics.median(one.first for one in many),
        "server_memory_mb": memory_mb(process.pid),
    }
    return figures


def main() -> None:
    """Start, measure, end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", default="smollm2-135m")
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    command = [sys.executable, "-m", "sapwood.runtime.cli", "serve", options.model, "--port", "0"]
    started = time.perf_counter()
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            figures = measure(process, started, options)
        finally:
            process.terminate()
    for name, value in figures.items():
        print(f"{name:<26} {value:.3f}" if isinstance(value, float) else f"{name:<26} {value}")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
