"""A stand-in for FlashInfer's wrapper that computes what its documentation says, in plain torch."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch


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


def fake_flashinfer() -> ModuleType:
    module = ModuleType("flashinfer")
    module.BatchPrefillWithPagedKVCacheWrapper = Wrapper  # type: ignore[attr-defined]
    return module
