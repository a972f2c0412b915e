"""The whole system on the GPU plan: scheduler, tree, grammars and choosing, with the card's part in the interpreter."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from in_process import Driver

from sapwood.kernels import cuda_backend
from sapwood.kernels.cuda_backend import CudaPlan
from sapwood.kernels.decoder import Decoder
from sapwood.kernels.plan import Plan
from sapwood.kernels.triton import sampling
from sapwood.runtime import assembly
from sapwood.runtime.messages import GrammarSpec

SHARED = "ab ab ab "
REQUESTS: dict[str, dict[str, Any]] = {
    "greedy": {"max_tokens": 4},
    "drawn": {"max_tokens": 3, "temperature": 1.0, "top_p": 0.9, "seed": 3},
    "penalised": {"max_tokens": 3, "temperature": 0.8, "min_p": 0.02, "presence_penalty": 0.5, "seed": 4},
    "digits": {"max_tokens": 3, "temperature": 1.0, "seed": 5, "grammar": GrammarSpec("regex", "[0-9]{2}x")},
}


@pytest.fixture
def on_card(monkeypatch: pytest.MonkeyPatch, device: str) -> list[int]:
    """Plans are the GPU's, with graph buckets. What is given back counts the tokens that were chosen on the device."""
    counts: list[int] = []

    def open_plan(decoder: Decoder, *, num_slots: int, max_rows: int, captures: Any, **rest: Any) -> Plan:
        recorder = None if device == "cuda" else lambda launch: launch
        return CudaPlan(
            decoder, num_slots=num_slots, max_rows=max_rows, captures=captures, device=device, dtype=torch.float16,
            invariant=True, recorder=recorder,
        )  # fmt: skip

    def counted(logits: torch.Tensor, rows: Any) -> Any:
        counts.append(len(rows))
        return sampling.sample(logits, rows)

    monkeypatch.setattr(assembly, "open_plan", open_plan)
    monkeypatch.setattr(cuda_backend, "sample", counted)
    monkeypatch.setattr(cuda_backend, "GRAPH_POSITIONS", cuda_backend.SPLIT)
    return counts


def texts(names: list[str]) -> dict[str, str]:
    driver = Driver(backend="cuda", num_slots=256)
    for name in names:
        driver.submit(name, SHARED + name, **REQUESTS[name])
    while driver.scheduler.num_live:  # the interpreter may need longer than `finish` waits
        driver.step()
    return {name: outcome.text for name, outcome in driver.outcomes.items()}


def test_requests_together_get_what_they_get_alone(on_card: list[int]) -> None:
    together = texts(list(REQUESTS))
    assert together["digits"][:2].isdigit() and together["digits"][2] == "x"
    assert max(on_card) == len(REQUESTS)  # one launch chose for all of them
    for name in REQUESTS:
        assert texts([name]) == {name: together[name]}
