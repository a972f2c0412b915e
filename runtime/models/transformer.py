"""The common form of all supported architectures: reading a checkpoint's tensors into a `Decoder`.

Optional parts (biases, norms of q and k, post norms) are taken where the checkpoint has them. What differs between
families beyond that (how positions rotate, windows, activation, scales) comes from the family's own file.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from sapwood.errors import ModelError
from sapwood.kernels.decoder import Decoder, Layer, Rope, Weight
from sapwood.runtime.models.checkpoint import Checkpoint, integer
from sapwood.runtime.models.sizes import Sizes


@dataclass(frozen=True, slots=True)
class Family:
    """What a family's file decides. `rope` and `window` are asked for each layer."""

    rope: Callable[[int], Rope]
    window: Callable[[int], int | None] = lambda layer: None
    activation: Literal["silu", "gelu_tanh"] = "silu"
    embed_scale: float = 1.0
    attn_scale: float | None = None  # None: 1 / sqrt(head_dim)


def same_window(checkpoint: Checkpoint, sizes: Sizes) -> Callable[[int], int | None]:
    """The window that all layers share, where the checkpoint names one."""
    key = f"{sizes.architecture}.attention.sliding_window"
    window = integer(checkpoint, key) if checkpoint.get(key, 0) else None
    return lambda layer: window


def build(checkpoint: Checkpoint, sizes: Sizes, family: Family) -> Decoder:
    """The decoder of a checkpoint. ModelError where a tensor is missing, has the wrong shape, or would be left unused."""
    parts = _Parts(checkpoint)
    embed = checkpoint.weight("token_embd.weight")
    if len(embed.shape) != 2 or embed.shape[1] != sizes.hidden_size:
        raise ModelError(f"the embedding has shape {embed.shape}, not [vocabulary, {sizes.hidden_size}]")
    tied = "output.weight" not in checkpoint.tensors
    layers = tuple(_layer(parts, sizes, family, index) for index in range(sizes.num_layers))
    parts.check_all_used()
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
        layers=layers,
        final_norm=parts.take("output_norm.weight", sizes.hidden_size),
        head=embed if tied else parts.take("output.weight", *embed.shape),
    )


class _Parts:
    """Takes tensors of a checkpoint by name and shape, and remembers which."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self._taken: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._checkpoint.tensors

    def any_shape(self, name: str) -> Weight:
        self._taken.add(name)
        return self._checkpoint.weight(name)

    def take(self, name: str, *shape: int) -> Weight:
        weight = self.any_shape(name)
        if weight.shape != shape:
            raise ModelError(f"tensor '{name}' has shape {weight.shape}, not {shape}")
        return weight

    def optional(self, name: str, *shape: int) -> Weight | None:
        return self.take(name, *shape) if name in self else None

    def check_all_used(self) -> None:
        """A layer's tensor that nothing reads means a form of the architecture that would give wrong results."""
        for name in self._checkpoint.tensors:
            if name.startswith("blk.") and name not in self._taken and "rot" not in name:
                raise ModelError(
                    f"the model has a tensor '{name}' that its architecture doesn't use; it isn't supported"
                )


def _layer(parts: _Parts, sizes: Sizes, family: Family, index: int) -> Layer:
    prefix = f"blk.{index}."
    hidden, dim = sizes.hidden_size, sizes.head_dim
    q_size, kv_size = sizes.num_heads * dim, sizes.num_kv_heads * dim
    down = parts.any_shape(prefix + "ffn_down.weight")
    if len(down.shape) != 2 or down.shape[0] != hidden:
        raise ModelError(f"tensor '{down.name}' has shape {down.shape}, not ({hidden}, ...)")
    q, k, v = _together(parts, prefix, ["attn_q", "attn_k", "attn_v"], "attn_qkv", [q_size, kv_size, kv_size], hidden)
    gate, up = _together(parts, prefix, ["ffn_gate", "ffn_up"], "ffn_up", [down.shape[1]] * 2, hidden)
    return Layer(
        attn_norm=parts.take(prefix + "attn_norm.weight", hidden),
        wq=q,
        wk=k,
        wv=v,
        wo=parts.take(prefix + "attn_output.weight", hidden, q_size),
        ffn_norm=parts.take(prefix + "ffn_norm.weight", hidden),
        gate=gate,
        up=up,
        down=down,
        rope=family.rope(index),
        window=family.window(index),
        bq=parts.optional(prefix + "attn_q.bias", q_size),
        bk=parts.optional(prefix + "attn_k.bias", kv_size),
        bv=parts.optional(prefix + "attn_v.bias", kv_size),
        q_norm=parts.optional(prefix + "attn_q_norm.weight", dim),
        k_norm=parts.optional(prefix + "attn_k_norm.weight", dim),
        post_attn_norm=parts.optional(prefix + "post_attention_norm.weight", hidden),
        post_ffn_norm=parts.optional(prefix + "post_ffw_norm.weight", hidden),
    )


def _together(parts: _Parts, prefix: str, names: list[str], fused: str, sizes: list[int], width: int) -> list[Weight]:
    """Matrices that read the same input: each by its own name, or all in one, one after the other."""
    if f"{prefix}{names[0]}.weight" in parts or f"{prefix}{fused}.weight" not in parts:
        return [parts.take(f"{prefix}{name}.weight", size, width) for name, size in zip(names, sizes, strict=True)]
    return split_rows(parts.take(f"{prefix}{fused}.weight", sum(sizes), width), sizes)


def split_rows(weight: Weight, sizes: list[int]) -> list[Weight]:
    """Cut a matrix that holds several into its parts; blocks lie along rows, so the bytes stay as they are."""
    parts, start = [], 0
    for size in sizes:
        data = weight.data[start : start + size]
        parts.append(Weight(f"{weight.name}[{start}:{start + size}]", weight.format, (size, weight.shape[1]), data))
        start += size
    return parts
