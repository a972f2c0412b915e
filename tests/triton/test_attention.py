"""Attention over slots equals softmax attention written out, whatever shares the batch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sapwood.kernels.plan import DraftTail
from sapwood.kernels.triton import attention_plan as module
from sapwood.kernels.triton.attention import attention, plan_attention
from sapwood.kernels.triton.cache import Cache, CacheKind, dequantized, make_cache

HEADS, KV_HEADS, DIM, SLOTS = 6, 2, 48, 900


def filled(kind: CacheKind, device: str) -> Cache:
    """A cache of random keys and values, in codes with random scales where it is quantized."""
    gen = torch.Generator().manual_seed(1)
    cache = make_cache(SLOTS, KV_HEADS, DIM, torch.float32, device, kind)
    for part in (cache.keys, cache.values):
        values = torch.randn(SLOTS, KV_HEADS, DIM, generator=gen) * (30 if kind == "int8" else 1)
        part.copy_(values.to(part.dtype))
    if kind != "same":
        for scale in (cache.key_scale, cache.value_scale):
            scale.copy_((0.5 + torch.rand(SLOTS, KV_HEADS, generator=gen)) * (1 / 30 if kind == "int8" else 1))
    return cache


def plainly(q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, softcap: float | None = None) -> torch.Tensor:
    """One row q [heads, dim] over keys and values [n, kv_heads, dim]."""
    keys, values = (t.repeat_interleave(HEADS // KV_HEADS, dim=1) for t in (keys, values))
    scores = torch.einsum("hd,nhd->hn", q, keys) * 0.125
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    return torch.einsum("hn,nhd->hd", scores.softmax(-1), values)


def int32(values: object) -> np.ndarray:
    return np.asarray(values, np.int32)


@pytest.mark.parametrize(
    ("window", "softcap", "kind"),
    [(None, None, "same"), (5, 2.0, "same"), (600, None, "same"), (None, 2.0, "int8"), (600, None, "fp8")],
)
def test_rows_of_several_sequences(window: int | None, softcap: float | None, kind: CacheKind, device: str) -> None:
    cache = filled(kind, device)
    k, v = dequantized(cache)
    rng = np.random.default_rng(0)
    shared = rng.permutation(SLOTS)[:600]
    tables = [int32(np.concatenate([shared, rng.permutation(SLOTS)[:n]])) for n in (1, 40, 130)] + [int32([7, 3])]
    rows = [(0, 600), (1, 0), (1, 511), (1, 512), (1, 639), (2, 729), (3, 0), (3, 1)] + [
        (2, 700 + i) for i in range(20)
    ]
    sequences, positions = int32([s for s, _ in rows]), int32([p for _, p in rows])
    q = torch.randn(len(rows), HEADS, DIM, device=device)
    work = plan_attention(positions, sequences, tables, {}, window, device)
    got = attention(q, cache, work, scale=0.125, softcap=softcap)
    for row, (sequence, position) in enumerate(rows):
        first = max(0, position + 1 - window) if window else 0
        slots = tables[sequence][first : position + 1].tolist()
        torch.testing.assert_close(got[row], plainly(q[row], k[slots], v[slots], softcap), rtol=1e-4, atol=1e-4)


def test_a_shared_prefix_is_read_once_for_all_its_sequences(device: str) -> None:
    shared = np.arange(module.SPLIT)
    tables = [int32([*shared, 600 + s]) for s in range(8)]
    work = plan_attention(int32([module.SPLIT] * 8), int32(range(8)), tables, {}, None, device)
    begins = work.tile_begin.tolist()
    assert begins.count(0) == 1 and begins.count(module.SPLIT) == 8


def test_a_draft_tree_sees_its_ancestors_only(device: str) -> None:
    cache = filled("same", device)
    k, v = dequantized(cache)
    table = int32(range(100, 100 + 515))
    start = 510
    ancestors = [0b00001, 0b00011, 0b00101, 0b01011, 0b10101]  # a root with two children, each with one child
    depth = int32([start + bin(mask).count("1") - 1 for mask in ancestors])
    tail = DraftTail(start, np.asarray(ancestors, np.uint64))
    q = torch.randn(5, HEADS, DIM, device=device)
    work = plan_attention(depth, int32([0] * 5), [table], {0: tail}, None, device)
    got = attention(q, cache, work, scale=0.125)
    for row, mask in enumerate(ancestors):
        slots = [*table[:start].tolist(), *(int(table[start + j]) for j in range(5) if mask >> j & 1)]
        torch.testing.assert_close(got[row], plainly(q[row], k[slots], v[slots]), rtol=1e-4, atol=1e-4)
