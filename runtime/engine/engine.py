"""Runs a batch on the plan and turns logits into tokens and logprobs. Knows nothing of requests or of the tree."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sapwood.kernels.plan import Batch, Output, Plan
from sapwood.kernels.sampling import Chooses, Sampled, SampleRow, sample, score


class Engine:
    """Owns a plan. `run` a batch, then `choose` and `score` from its logits, before the next run."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.run_seconds = 0.0
        self.sample_seconds = 0.0
        self._output: Output | None = None

    def run(self, batch: Batch) -> Output:
        """Compute a batch; its logits are kept for `choose` and `score`."""
        began = time.perf_counter()
        self._output = output = self.plan.run(batch)
        self.run_seconds += time.perf_counter() - began
        return output

    def choose(self, outs: Sequence[int], rows: Sequence[SampleRow]) -> list[Sampled]:
        """One token for each of `rows`, from the logits number `outs`."""
        began = time.perf_counter()
        if isinstance(self._output, Chooses):
            chosen = self._output.choose(outs, rows)
        else:
            chosen = sample(self._logits(outs), rows)
        self.sample_seconds += time.perf_counter() - began
        return chosen

    def score(self, outs: Sequence[int], ids: Sequence[int], num_top: int) -> list[Sampled]:
        """The logprobs of given tokens, with alternatives."""
        began = time.perf_counter()
        scored = score(self._logits(outs), np.array(ids, np.int32), num_top)
        self.sample_seconds += time.perf_counter() - began
        return scored

    def _logits(self, outs: Sequence[int]) -> NDArray[np.float32]:
        assert self._output is not None, "run a batch first"
        logits = self._output.logits  # [num_out, vocab]
        first, count = outs[0], len(outs)
        if all(out == first + i for i, out in enumerate(outs)):
            return logits[first : first + count]
        return np.take(logits, outs, axis=0)
