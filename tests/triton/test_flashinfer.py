"""How batches are handed to FlashInfer: against a stand-in of its wrapper that computes what its documentation says."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from decoders import VOCAB, decoder, int32, run

from sapwood.kernels.cuda_backend import CudaPlan
from sapwood.kernels.decoder import Format
from sapwood.kernels.flashinfer_attention import runs_of
from sapwood.kernels.plan import Batch
from sapwood.kernels.reference import ReferencePlan


class Wrapper:
    """Paged, causal attention of the last rows of each request, written out."""

    def __init__(self, workspace: torch.Tensor, layout: str) -> None:
        assert workspace.dtype == torch.uint8 and layout == "NHD"

    def plan(
        self, qo_indptr: Any, indptr: Any, indices: Any, last: Any, heads: int, kv_heads: int, dim: int, page: int, *,
        causal: bool, sm_scale: float, window_left: int, logits_soft_cap: float, q_data_type: Any, kv_data_type: Any,
    ) -> None:  # fmt: skip
        assert causal and page == 1 and last.tolist() == [1] * (len(qo_indptr) - 1)
        self.rows, self.pages, self.indices = qo_indptr.tolist(), indptr.tolist(), indices.long()
        self.group, self.scale, self.window, self.cap = heads // kv_heads, sm_scale, window_left, logits_soft_cap

    def run(self, q: torch.Tensor, cache: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        out = torch.empty_like(q)
        for i in range(len(self.rows) - 1):
            slots = self.indices[self.pages[i] : self.pages[i + 1]]
            keys, values = (c[slots, 0].float().repeat_interleave(self.group, 1) for c in cache)
            for row in range(self.rows[i], self.rows[i + 1]):
                end = len(slots) - (self.rows[i + 1] - 1 - row)
                begin = max(0, end - 1 - self.window) if self.window >= 0 else 0
                scores = torch.einsum("hd,nhd->hn", q[row].float(), keys[begin:end]) * self.scale
                if self.cap:
                    scores = self.cap * torch.tanh(scores / self.cap)
                out[row] = torch.einsum("hn,nhd->hd", scores.softmax(-1), values[begin:end]).to(q.dtype)
        return out


@pytest.fixture
def flashinfer(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("flashinfer")
    module.BatchPrefillWithPagedKVCacheWrapper = Wrapper  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "flashinfer", module)


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
