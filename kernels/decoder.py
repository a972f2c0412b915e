"""What a model is, to the kernels: a decoder-only transformer described as data.

A model file (`runtime/models/`) fills in these records from a checkpoint; a backend compiles them to a plan.
This file knows nothing of files, tokenizers or requests, and computes nothing.

One layer, for row vectors x (every optional part is None where a model lacks it):

    h = rms_norm(x, attn_norm)
    q, k, v = h @ wq.T (+ bq), h @ wk.T (+ bk), h @ wv.T (+ bv)        heads of head_dim
    q, k = rms_norm(q, q_norm), rms_norm(k, k_norm)                     per head, where present
    q, k = rope(q), rope(k);  store k, v in the row's slot
    a = attention(q, keys and values of the row's path, scale, window, softcap)
    x = x + [rms_norm](a @ wo.T, post_attn_norm)
    h = rms_norm(x, ffn_norm)
    x = x + [rms_norm]((act(h @ gate.T) * (h @ up.T)) @ down.T, post_ffn_norm)

The ends: x = embed[id] * embed_scale; logits = softcap(rms_norm(x, final_norm) @ head.T).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Literal

import numpy as np
from numpy.typing import NDArray


class Format(Enum):
    """How a weight's bytes are encoded. Names and layouts are GGML's (ggml-common.h of llama.cpp)."""

    F32 = "F32"
    F16 = "F16"
    BF16 = "BF16"
    Q4_0 = "Q4_0"
    Q4_1 = "Q4_1"
    Q5_0 = "Q5_0"
    Q5_1 = "Q5_1"
    Q8_0 = "Q8_0"
    Q2_K = "Q2_K"
    Q3_K = "Q3_K"
    Q4_K = "Q4_K"
    Q5_K = "Q5_K"
    Q6_K = "Q6_K"


@dataclass(frozen=True, slots=True, eq=False)
class Weight:
    """One tensor of a checkpoint, still encoded; usually a view of the memory-mapped file."""

    name: str
    format: Format
    shape: tuple[int, ...]  # (out, in) for matrices, (n,) for vectors
    data: NDArray[np.uint8]  # [out, bytes_per_row]; for vectors [1, bytes]


@dataclass(frozen=True, slots=True, eq=False)
class Rope:
    """Rotary position embedding of the first 2 * len(inv_freq) channels of each head.

    Pairs are (2i, 2i + 1) when `interleaved`, else (i, i + len(inv_freq)). Any frequency scaling (llama3, linear, YaRN)
    is already in `inv_freq`; `magnitude` multiplies cos and sin (YaRN's attention factor).
    """

    inv_freq: NDArray[np.float32]  # [rotated_dim / 2]
    interleaved: bool
    magnitude: float = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    attn_norm: Weight
    wq: Weight
    wk: Weight
    wv: Weight
    wo: Weight
    ffn_norm: Weight
    gate: Weight
    up: Weight
    down: Weight
    rope: Rope
    window: int | None = None  # attends to this many last positions, its own included; None: to all
    bq: Weight | None = None
    bk: Weight | None = None
    bv: Weight | None = None
    q_norm: Weight | None = None  # [head_dim]
    k_norm: Weight | None = None
    post_attn_norm: Weight | None = None
    post_ffn_norm: Weight | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Decoder:
    """A whole model. Norm weights are final: what a family adds (Gemma's + 1) is already in them."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    hidden_size: int
    vocab_size: int  # rows of `embed` and `head`
    norm_eps: float
    activation: Literal["silu", "gelu_tanh"]
    attn_scale: float  # multiplies q.k; 1 / sqrt(head_dim) as a rule
    embed: Weight  # [vocab, hidden]
    layers: tuple[Layer, ...]
    final_norm: Weight
    head: Weight  # [vocab, hidden]; the same object as `embed` when tied
    embed_scale: float = 1.0
    attn_softcap: float | None = None  # s -> cap * tanh(s / cap)
    logit_softcap: float | None = None

    @property
    def kv_size(self) -> int:
        """Channels of one token's keys (or values) in one layer."""
        return self.num_kv_heads * self.head_dim
