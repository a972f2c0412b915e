"""What a benchmark prints, keeps and draws."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sapwood.errors import InvalidRequest
from sapwood.runtime.cli.bench.api import Tally

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True)
class Row:
    """One workload on one server, once."""

    workload: str
    server: int  # the first or the second
    url: str
    seconds: float
    tally: Tally
    error: str = ""

    def as_dict(self) -> dict[str, Any]:
        """All figures, for --json."""
        tally = self.tally
        return {
            "workload": self.workload,
            "url": self.url,
            "seconds": self.seconds,
            "prompt_tokens": tally.prompt_tokens,
            "cached_tokens": tally.cached_tokens,
            "completion_tokens": tally.completion_tokens,
            "tokens_per_second": tally.completion_tokens / self.seconds,
            "prompt_tokens_per_second": tally.prompt_tokens / self.seconds,
            "ttft_ms": 1e3 * statistics.median(tally.first) if tally.first else None,
            "itl_ms": 1e3 * statistics.median(tally.between) if tally.between else None,
            "error": self.error or None,
        }


def best(rows: list[Row], workload: str, server: int) -> Row | None:
    """The fastest round of a workload on a server; None if every one failed."""
    good = [row for row in rows if row.workload == workload and row.server == server and not row.error]
    return min(good, key=lambda row: row.seconds, default=None)


def table(rows: list[Row], urls: list[str]) -> Table:
    """The best round of each workload; with two servers, how many times faster the first is."""
    from rich.table import Table

    made = Table(box=None, pad_edge=False)
    made.add_column("workload")
    if len(urls) == 2:
        made.add_column("server")
    for name in ("seconds", "tok/s", "prompt tok/s", "first ms", "token ms"):
        made.add_column(name, justify="right")
    if len(urls) == 2:
        made.add_column("1 faster by", justify="right")
    for workload in dict.fromkeys(row.workload for row in rows):
        chosen = [best(rows, workload, server) for server in range(len(urls))]
        for i, row in enumerate(chosen):
            names = [workload if i == 0 else "", *([str(i + 1)] if len(urls) == 2 else [])]
            ratio = [_ratio(chosen) if i == 0 else ""] if len(urls) == 2 else []
            made.add_row(*names, *_cells(row), *ratio)
    return made


def _ratio(chosen: list[Row | None]) -> str:
    first, second = chosen
    return f"{second.seconds / first.seconds:.2f} x" if first and second else "-"


def _cells(row: Row | None) -> list[str]:
    if row is None:
        return ["failed", "", "", "", ""]
    figures = row.as_dict()
    shown = [f"{row.seconds:.2f}", f"{figures['tokens_per_second']:.1f}", f"{figures['prompt_tokens_per_second']:.0f}"]
    return shown + [f"{figures[name]:.1f}" if figures[name] else "" for name in ("ttft_ms", "itl_ms")]


def plot(rows: list[Row], urls: list[str], file: Path) -> None:
    """Bars of seconds, one group a workload."""
    try:
        import matplotlib
    except ModuleNotFoundError:
        raise InvalidRequest("--plot needs matplotlib; install it with: pip install 'sapwood[plot]'") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    workloads = list(dict.fromkeys(row.workload for row in rows))
    figure, axes = pyplot.subplots(figsize=(1.6 * len(workloads) + 2, 4))
    width = 0.8 / len(urls)
    for i, url in enumerate(urls):
        chosen = [best(rows, workload, i) for workload in workloads]
        heights = [row.seconds if row else 0.0 for row in chosen]
        bars = axes.bar([x + i * width for x in range(len(workloads))], heights, width, label=url)
        axes.bar_label(bars, fmt="%.1f")
    axes.set_xticks([x + width * (len(urls) - 1) / 2 for x in range(len(workloads))], workloads)
    axes.set_ylabel("seconds, less is better")
    axes.legend()
    figure.tight_layout()
    figure.savefig(file)
