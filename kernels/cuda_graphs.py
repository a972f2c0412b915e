"""Graph buckets: a step of few rows is recorded once for each size and replayed, so that no kernel is launched one by one.

Recording is behind a small interface, so that the bucket logic runs without a card too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

BUCKETS = (1, 2, 4, 8, 16, 24, 32, 48, 64)  # rows; larger batches run without a graph


class Recorder(Protocol):
    """Records what a function launches, and gives back what replays it."""

    def __call__(self, launch: Callable[[], None]) -> Callable[[], None]: ...


def cuda_recorder(launch: Callable[[], None]) -> Callable[[], None]:
    """Record on a side stream after a warm-up, as torch asks for (docs: CUDA semantics, CUDA graphs)."""
    import torch

    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            launch()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launch()
    return graph.replay


class GraphBuckets:
    """Replayable steps by bucket. `make(rows)` gives the function that launches a step of so many rows."""

    def __init__(
        self, make: Callable[[int], Callable[[], None]], recorder: Recorder, buckets: Sequence[int] = BUCKETS
    ) -> None:
        self._make = make
        self._recorder = recorder
        self._buckets = sorted(buckets)
        self._recorded: dict[int, Callable[[], None]] = {}

    def bucket(self, rows: int) -> int | None:
        """The smallest bucket that holds so many rows; None: there is none."""
        return next((size for size in self._buckets if size >= rows), None)

    def capture(self) -> None:
        """Record all buckets, largest first, so that smaller ones reuse its memory."""
        for size in reversed(self._buckets):
            self._recorded[size] = self._recorder(self._make(size))

    def replay(self, size: int) -> None:
        """Run the step of a bucket, recording it first if that wasn't done."""
        if size not in self._recorded:
            self._recorded[size] = self._recorder(self._make(size))
        self._recorded[size]()
