"""Tiny random decoders of every form, and batches over them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sapwood.kernels.decoder import Decoder, Format, Layer, Rope, Weight
from sapwood.kernels.formats import row_bytes
from sapwood.kernels.plan import Batch, Plan

VOCAB, HIDDEN, FFN = 100, 64, 96


def int32(values: object) -> np.ndarray:
    return np.asarray(values, np.int32)


class Maker:
    def __init__(self, seed: int, fmt: Format) -> None:
        self.rng = np.random.default_rng(seed)
        self.fmt = fmt

    def matrix(self, out: int, width: int, scale: float = 1.0) -> Weight:
        """Random weights of about unit gain."""
        values = (self.rng.standard_normal((out, width)) * scale / np.sqrt(width)).astype(np.float32)
        if self.fmt is Format.F32:
            return Weight("w", Format.F32, (out, width), values.view(np.uint8))
        assert self.fmt is Format.Q8_0
        blocks = values.reshape(out, -1, 32)
        step = np.abs(blocks).max(2, keepdims=True) / 127 + 1e-9
        codes = np.round(blocks / step).astype(np.int8)
        packed = np.concatenate([step.astype(np.float16).view(np.uint8), codes.view(np.uint8)], axis=2)
        data = packed.reshape(out, row_bytes(Format.Q8_0, width))
        return Weight("w", Format.Q8_0, (out, width), data)

    def vector(self, size: int, around: float = 1.0) -> Weight:
        values = (around + 0.1 * self.rng.standard_normal(size)).astype(np.float32)
        return Weight("v", Format.F32, (size,), values.view(np.uint8).reshape(1, -1))


def decoder(kind: str, fmt: Format = Format.Q8_0, num_layers: int = 3) -> Decoder:
    """ "llama": interleaved rotation, grouped heads; "gemma": windows, norms everywhere, caps; "qwen": biases."""
    make = Maker(len(kind), fmt)
    heads, kv_heads, dim = (3, 1, 32) if kind == "gemma" else (6, 2, 16)
    inv_freq = (10000 ** (-np.arange(0, dim, 2) / dim)).astype(np.float32)
    ropes = [Rope(inv_freq, kind == "llama"), Rope(inv_freq * np.float32(0.5), kind == "llama")]

    def layer(index: int) -> Layer:
        gemma = kind == "gemma"
        return Layer(
            attn_norm=make.vector(HIDDEN),
            wq=make.matrix(heads * dim, HIDDEN),
            wk=make.matrix(kv_heads * dim, HIDDEN),
            wv=make.matrix(kv_heads * dim, HIDDEN),
            wo=make.matrix(HIDDEN, heads * dim),
            ffn_norm=make.vector(HIDDEN),
            gate=make.matrix(FFN, HIDDEN),
            up=make.matrix(FFN, HIDDEN),
            down=make.matrix(HIDDEN, FFN),
            rope=ropes[index % 2],
            window=37 if gemma and index % 2 == 0 else None,
            bq=make.vector(heads * dim, 0) if kind == "qwen" else None,
            bk=make.vector(kv_heads * dim, 0) if kind == "qwen" else None,
            bv=make.vector(kv_heads * dim, 0) if kind == "qwen" else None,
            q_norm=make.vector(dim) if gemma else None,
            k_norm=make.vector(dim) if gemma else None,
            post_attn_norm=make.vector(HIDDEN) if gemma else None,
            post_ffn_norm=make.vector(HIDDEN) if gemma else None,
        )

    embed = make.matrix(VOCAB, HIDDEN, scale=8.0)
    return Decoder(
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=dim,
        hidden_size=HIDDEN,
        vocab_size=VOCAB,
        norm_eps=1e-6,
        activation="gelu_tanh" if kind == "gemma" else "silu",
        attn_scale=dim**-0.5,
        embed=embed,
        layers=tuple(layer(index) for index in range(num_layers)),
        final_norm=make.vector(HIDDEN),
        head=embed if kind == "llama" else make.matrix(VOCAB, HIDDEN, scale=8.0),
        embed_scale=8.0 if kind == "gemma" else 1.0,
        attn_softcap=5.0 if kind == "gemma" else None,
        logit_softcap=20.0 if kind == "gemma" else None,
    )


def run(plan: Plan, ids: Sequence[int], table: np.ndarray, begin: int, end: int) -> np.ndarray:
    """Positions begin .. end - 1 of one sequence; the logits of all of them, a copy."""
    n = end - begin
    batch = Batch(
        int32(ids[begin:end]), int32(range(begin, end)), int32(table[begin:end]), int32([0] * n), [table], int32(range(n))
    )  # fmt: skip
    return plan.run(batch).logits.copy()
