"""Counters and histograms for /metrics, under SGLang's names, and the tree's own. Cheap enough for every token."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from sapwood.runtime.messages import Usage
from sapwood.runtime.server.tracing import current

SECONDS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)
TOKEN_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)
GAPS_AT_ONCE = 32

# Names of the backend's statistics that SGLang has too; the others get ours.
STAT_NAMES = {
    "num_waiting": "sglang:num_queue_reqs",
    "num_slots": "sglang:max_total_num_tokens",
    "num_used": "sglang:num_used_tokens",
    "token_usage": "sglang:token_usage",
    "hit_rate": "sglang:cache_hit_rate",
    "throughput": "sglang:gen_throughput",
    "num_evicted": "sglang:evicted_tokens_total",
    "num_preempted": "sglang:num_retracted_reqs",
}


class Metrics:
    """One server's counters, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.running = Gauge("sglang:num_running_reqs", "Requests being served.", registry=registry)
        self.requests = Counter("sglang:num_requests", "Requests finished.", registry=registry)
        self.aborted = Counter(
            "sglang:num_aborted_requests", "Requests that failed or were given up.", registry=registry
        )
        self.prompt = Counter("sglang:prompt_tokens", "Prompt tokens read.", registry=registry)
        self.cached = Counter("sglang:cached_tokens", "Prompt tokens taken from the tree.", registry=registry)
        self.generated = Counter("sglang:generation_tokens", "Tokens generated.", registry=registry)
        self.jumped = Counter(
            "sapwood:jumped_tokens", "Tokens appended because a grammar forced them.", registry=registry
        )
        self.first = Histogram(
            "sglang:time_to_first_token_seconds", "From arrival to the first token.", buckets=SECONDS, registry=registry
        )
        self.between = Histogram(
            "sglang:inter_token_latency_seconds", "Between tokens.", buckets=TOKEN_SECONDS, registry=registry
        )
        self.whole = Histogram(
            "sglang:e2e_request_latency_seconds", "From arrival to the end.", buckets=SECONDS, registry=registry
        )
        self._gauges: dict[str, Gauge] = {}
        self._num_running = 0

    @contextmanager
    def request(self) -> Iterator[Watch]:
        """Time one request."""
        self._num_running += 1
        self.running.inc()
        watch = Watch(self)
        try:
            yield watch
        except BaseException as error:
            if watch.record is not None:
                watch.record.error = type(error).__name__
            raise
        finally:
            watch.flush()
            self._num_running -= 1
            self.running.dec()
            if watch.finished:
                self.requests.inc()
                self.whole.observe(time.perf_counter() - watch.started)
            else:
                self.aborted.inc()

    @property
    def num_running(self) -> int:
        """Requests being served now."""
        return self._num_running

    def set_stats(self, stats: dict[str, object]) -> None:
        """Take over the backend's statistics as gauges."""
        for name, value in stats.items():
            if isinstance(value, (int, float)):
                self.set(STAT_NAMES.get(name, f"sapwood:{name}"), value, f"The backend's {name}.")

    def set(self, name: str, value: float, text: str) -> None:
        """Set a gauge that is read when asked for, such as the tree's."""
        gauge = self._gauges.get(name)
        if gauge is None:
            gauge = self._gauges[name] = Gauge(name, text, registry=self.registry)
        gauge.set(value)

    def add(self, usage: Usage) -> None:
        """Count a finished request's tokens."""
        self.prompt.inc(usage.prompt_tokens)
        self.cached.inc(usage.cached_tokens)
        self.generated.inc(usage.completion_tokens)
        self.jumped.inc(usage.jumped_tokens)

    def text(self) -> bytes:
        """Prometheus' text format."""
        return generate_latest(self.registry)


class Watch:
    """The stop watch of one request."""

    def __init__(self, metrics: Metrics) -> None:
        self.started = time.perf_counter()
        self.finished = False
        self.record = current()
        self._metrics = metrics
        self._last: float | None = None
        self._gaps: list[float] = []  # not yet in the histogram: entering several at once costs a fraction

    def chunk(self, num_tokens: int) -> None:
        """Tokens came."""
        if not num_tokens:
            return
        now = time.perf_counter()
        if self._last is None:
            self._metrics.first.observe(now - self.started)
            if self.record is not None and self.record.first is None:
                self.record.first = now - self.record.started
        else:
            self._gaps.append((now - self._last) / num_tokens)
            if len(self._gaps) == GAPS_AT_ONCE:
                self.flush()
        self._last = now

    def flush(self) -> None:
        """Enter what was measured since the last time."""
        for gap in self._gaps:
            self._metrics.between.observe(gap)
        self._gaps.clear()

    def finish(self, prompt: list[int], usage: Usage) -> None:
        """The request ended as it should."""
        self.finished = True
        self._metrics.add(usage)
        if self.record is not None:
            self.record.usages.append((prompt, usage))
