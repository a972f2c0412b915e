"""The common form of all supported architectures: reading a checkpoint's tensors into a `Decoder`.

Optional parts (biases, norms of q and k, post norms) are taken where the checkpoint has them. What differs between
families beyond that (how positions rotate, windows, activation, scales) comes from the family's own file.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from sapwood.errors import ModelError
from sapwood.kernels.decoder import Decoder, Layer, Rope, Weight
from sapwood.kernels.formats import dequantize
from sapwood.runtime.models.checkpoint import Checkpoint


@dataclass(frozen=True, slots=True)
class Family:
    """What a family's file decides. `rope` and `window` are asked for each layer."""

    rope: Callable[[int], Rope]
    window: Callable[[int], int | None] = lambda layer: None
    activation: Literal["silu", "gelu_tanh"] = "silu"
    embed_scale: float = 1.0
    attn_scale: float | None = None  # None: 1 / sqrt(head_dim)


@dataclass(frozen=True, slots=True)
class Sizes:
    """The numbers that every architecture has, from the keys `{architecture}.*`."""

    architecture: str
    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    context_length: int
    norm_eps: float

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> Sizes:
        arch = str(checkpoint.get("general.architecture"))
        hidden, heads = (
            int(checkpoint.get(f"{arch}.embedding_length")),
            int(checkpoint.get(f"{arch}.attention.head_count")),
        )
        if hidden <= 0 or heads <= 0:
            raise ModelError(f"the checkpoint announces {heads} heads for a width of {hidden}; it is damaged")
        return cls(
            architecture=arch,
            num_layers=int(checkpoint.get(f"{arch}.block_count")),
            hidden_size=hidden,
            num_heads=heads,
            num_kv_heads=int(checkpoint.get(f"{arch}.attention.head_count_kv", heads)),
            head_dim=int(checkpoint.get(f"{arch}.attention.key_length", hidden // heads)),
            context_length=int(checkpoint.get(f"{arch}.context_length")),
            norm_eps=float(checkpoint.get(f"{arch}.attention.layer_norm_rms_epsilon")),
        )


def rope_from(checkpoint: Checkpoint, sizes: Sizes, *, interleaved: bool, base: float | None = None) -> Rope:
    """The rotary embedding that the keys `{architecture}.rope.*` describe, with its scaling. `base` overrides theirs."""
    arch = sizes.architecture
    dim = int(checkpoint.get(f"{arch}.rope.dimension_count", sizes.head_dim))
    theta = float(checkpoint.get(f"{arch}.rope.freq_base", 10000.0)) if base is None else base
    inv_freq = theta ** (-np.arange(0, dim, 2, dtype=np.float64) / dim)
    magnitude = 1.0
    kind = checkpoint.get(f"{arch}.rope.scaling.type", "none") if base is None else "none"
    factor = float(checkpoint.get(f"{arch}.rope.scaling.factor", 1.0))
    if kind == "linear":
        inv_freq = inv_freq / factor
    elif kind == "yarn":
        original = float(checkpoint.get(f"{arch}.rope.scaling.original_context_length"))
        inv_freq = _yarn(inv_freq, theta, dim, factor, original)
        magnitude = float(checkpoint.get(f"{arch}.rope.scaling.attn_factor", 1.0)) * (0.1 * math.log(factor) + 1.0)
    elif kind != "none":
        raise ModelError(
            f"rotary embeddings scaled by '{kind}' are not supported; supported are linear, yarn and llama3"
        )
    if "rope_freqs.weight" in checkpoint.tensors and base is None:
        inv_freq = inv_freq / dequantize(checkpoint.weight("rope_freqs.weight")).astype(np.float64)
    return Rope(inv_freq.astype(np.float32), interleaved, magnitude)


def _yarn(inv_freq: NDArray[np.float64], theta: float, dim: int, factor: float, original: float) -> NDArray[np.float64]:
    """YaRN (arXiv 2309.00071): fast channels as they are, slow ones interpolated, a ramp between (beta 32 and 1)."""

    def channel(rotations: float) -> float:
        return dim * math.log(original / (rotations * 2 * math.pi)) / (2 * math.log(theta))

    low, high = max(math.floor(channel(32)), 0), min(math.ceil(channel(1)), dim - 1)
    ramp = np.clip((np.arange(len(inv_freq)) - low) / max(high - low, 0.001), 0, 1)
    return inv_freq / factor * ramp + inv_freq * (1 - ramp)


def build(checkpoint: Checkpoint, sizes: Sizes, family: Family) -> Decoder:
    """The decoder of a checkpoint. Raises ModelError where a tensor is missing or has the wrong shape."""
    embed = checkpoint.weight("token_embd.weight")
    head = checkpoint.weight("output.weight") if "output.weight" in checkpoint.tensors else embed
    if len(embed.shape) != 2 or embed.shape[1] != sizes.hidden_size:
        raise ModelError(f"the embedding has shape {embed.shape}, not [vocabulary, {sizes.hidden_size}]")
    return Decoder(
        num_heads=sizes.num_heads,
        num_kv_heads=sizes.num_kv_heads,
        head_dim=sizes.head_dim,
        hidden_size=sizes.hidden_size,
        vocab_size=embed.shape[0],
        norm_eps=sizes.norm_eps,
        activation=family.activation,
        attn_scale=sizes.head_dim**-0.5 if family.attn_scale is None else family.attn_scale,
        embed=embed,
        embed_scale=family.embed_scale,
        layers=tuple(_layer(checkpoint, sizes, family, index) for index in range(sizes.num_layers)),
        final_norm=checkpoint.weight("output_norm.weight"),
        head=head,
    )


def _layer(checkpoint: Checkpoint, sizes: Sizes, family: Family, index: int) -> Layer:
    prefix = f"blk.{index}."
    q_size, kv_size = sizes.num_heads * sizes.head_dim, sizes.num_kv_heads * sizes.head_dim

    def optional(name: str) -> Weight | None:
        return checkpoint.weight(prefix + name) if prefix + name in checkpoint.tensors else None

    def matrix(weight: Weight, out: int, width: int) -> Weight:
        if weight.shape != (out, width):
            raise ModelError(f"tensor '{weight.name}' has shape {weight.shape}, not {(out, width)}")
        return weight

    fused = optional("attn_qkv.weight")
    if fused is None:
        q, k, v = (checkpoint.weight(f"{prefix}attn_{name}.weight") for name in "qkv")
    else:
        q, k, v = split_rows(fused, [q_size, kv_size, kv_size])
    gate, up = optional("ffn_gate.weight"), checkpoint.weight(prefix + "ffn_up.weight")
    if gate is None:
        gate, up = split_rows(up, [up.shape[0] // 2] * 2)
    down = checkpoint.weight(prefix + "ffn_down.weight")
    return Layer(
        attn_norm=checkpoint.weight(prefix + "attn_norm.weight"),
        wq=matrix(q, q_size, sizes.hidden_size),
        wk=matrix(k, kv_size, sizes.hidden_size),
        wv=matrix(v, kv_size, sizes.hidden_size),
        wo=matrix(checkpoint.weight(prefix + "attn_output.weight"), sizes.hidden_size, q_size),
        ffn_norm=checkpoint.weight(prefix + "ffn_norm.weight"),
        gate=matrix(gate, down.shape[-1], sizes.hidden_size),
        up=matrix(up, down.shape[-1], sizes.hidden_size),
        down=matrix(down, sizes.hidden_size, down.shape[-1]),
        rope=family.rope(index),
        window=family.window(index),
        bq=optional("attn_q.bias"),
        bk=optional("attn_k.bias"),
        bv=optional("attn_v.bias"),
        q_norm=optional("attn_q_norm.weight"),
        k_norm=optional("attn_k_norm.weight"),
        post_attn_norm=optional("post_attention_norm.weight"),
        post_ffn_norm=optional("post_ffw_norm.weight"),
    )


def split_rows(weight: Weight, sizes: list[int]) -> list[Weight]:
    """Cut a matrix that holds several into its parts; blocks lie along rows, so the bytes stay as they are."""
    if sum(sizes) != weight.shape[0]:
        raise ModelError(f"tensor '{weight.name}' has {weight.shape[0]} rows, not {' + '.join(map(str, sizes))}")
    parts, start = [], 0
    for size in sizes:
        data = weight.data[start : start + size]
        parts.append(Weight(f"{weight.name}[{start}:{start + size}]", weight.format, (size, weight.shape[1]), data))
        start += size
    return parts
