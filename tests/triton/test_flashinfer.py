"""How batches are handed to FlashInfer: against a stand-in of its wrapper that computes what its documentation says."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from decoders import VOCAB, decoder, int32, run
from fake_flashinfer import fake_flashinfer

from sapwood.kernels.cuda_backend import CudaPlan
from sapwood.kernels.decoder import Format
from sapwood.kernels.flashinfer_attention import runs_of
from sapwood.kernels.plan import Batch
from sapwood.kernels.reference import ReferencePlan


@pytest.fixture
def flashinfer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flashinfer", fake_flashinfer())


@pytest.mark.parametrize("kind", ["llama", "gemma"])
def test_large_batches_attend_through_the_wrapper(kind: str, flashinfer: None, device: str) -> None:
    model = decoder(kind, Format.Q8_0, num_layers=2)
    plan = CudaPlan(model, num_slots=80, device=device, dtype=torch.float16, attention="flashinfer")
    reference = ReferencePlan(model, num_slots=80)
    ids = np.random.default_rng(1).integers(0, VOCAB, 60).tolist()
    table = int32(np.random.default_rng(2).permutation(80)[:60])
    for begin, end in ((0, 45), (45, 60)):
        expected, got = run(reference, ids, table, begin, end), run(plan, ids, table, begin, end)
        assert np.abs(got - expected).max() / np.abs(expected).max() < 0.02


def test_rows_of_a_sequence_that_follow_each_other_are_one_request() -> None:
    batch = Batch(int32([0] * 6), int32([4, 5, 9, 0, 1, 2]), int32([0] * 6), int32([0, 0, 0, 1, 1, 1]), [], int32([]))
    assert runs_of(batch) == [(0, 2), (2, 3), (3, 6)]
