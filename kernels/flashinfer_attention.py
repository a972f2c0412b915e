"""Attention of large batches by FlashInfer, where it is installed (docs.flashinfer.ai: BatchPrefillWithPagedKVCacheWrapper).

A slot is a page of one token. Rows of a sequence that follow each other are one request to FlashInfer: the last positions
of their table, causal. Draft trees and recorded steps stay with our own kernels.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
import torch

from sapwood.kernels.decoder import Decoder
from sapwood.kernels.plan import Batch

WORKSPACE_BYTES = 128 << 20  # what FlashInfer's documentation advises


def is_available() -> bool:
    return find_spec("flashinfer") is not None


def runs_of(batch: Batch) -> list[tuple[int, int]]:
    """Rows [begin, end) of one sequence whose positions follow each other."""
    borders = np.flatnonzero((np.diff(batch.sequences) != 0) | (np.diff(batch.positions) != 1)) + 1
    edges = [0, *borders.tolist(), len(batch.ids)]
    return [(begin, end) for begin, end in zip(edges, edges[1:], strict=False) if end > begin]


class FlashInferAttention:
    """`plan` once a batch, `run` once a layer. One wrapper for each window that the model has."""

    def __init__(self, decoder: Decoder, device: str, dtype: torch.dtype) -> None:
        import flashinfer

        self._decoder, self._device, self._dtype = decoder, device, dtype
        workspace = torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device=device)
        windows = {layer.window for layer in decoder.layers}
        self._wrappers: dict[int | None, Any] = {
            window: flashinfer.BatchPrefillWithPagedKVCacheWrapper(workspace, "NHD") for window in windows
        }

    def plan(self, batch: Batch) -> None:
        """Lay out the batch for every window. It must have no drafts."""
        decoder, runs = self._decoder, runs_of(batch)
        lengths = [int(batch.positions[end - 1]) + 1 for _, end in runs]
        tables = [batch.tables[int(batch.sequences[begin])][:n] for (begin, _), n in zip(runs, lengths, strict=True)]

        def send(values: object) -> torch.Tensor:
            return torch.from_numpy(np.asarray(values, np.int32)).to(self._device)

        rows = send([0, *(end for _, end in runs)])
        pages, indices = send(np.concatenate([[0], np.cumsum(lengths)])), send(np.concatenate(tables))
        last = send([1] * len(runs))
        for window, wrapper in self._wrappers.items():
            wrapper.plan(
                rows, pages, indices, last, decoder.num_heads, decoder.num_kv_heads, decoder.head_dim, 1, causal=True,
                sm_scale=decoder.attn_scale, window_left=-1 if window is None else window - 1,
                logits_soft_cap=decoder.attn_softcap or 0.0, q_data_type=self._dtype, kv_data_type=self._dtype,
            )  # fmt: skip

    def run(self, q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, window: int | None) -> torch.Tensor:
        """q [rows, heads, dim] over caches [slots, kv_heads, dim]; like q in shape."""
        out: torch.Tensor = self._wrappers[window].run(q, (keys[:, None], values[:, None]))
        return out
