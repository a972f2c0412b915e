"""The reference backend: every operation in plain float32 torch, one obvious function each. The specification of the others.

Slow and simple on purpose. Weights are dequantized once; attention gathers each row's keys and values and writes the
softmax out. Same interface and meaning as every plan (`kernels/plan.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from sapwood.kernels.decoder import Decoder, Layer, Rope, Weight
from sapwood.kernels.formats import dequantize
from sapwood.kernels.plan import Batch, Output

Tensor = torch.Tensor


def load(weight: Weight) -> Tensor:
    """A weight as float32, in its own shape."""
    return torch.tensor(dequantize(weight))


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x / sqrt(mean(x^2) + eps) * weight over the last axis (arXiv 1910.07467)."""
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def rotate(x: Tensor, positions: Tensor, rope: Rope) -> Tensor:
    """Rotary embedding of x [rows, heads, dim] (arXiv 2104.09864)."""
    angles = positions[:, None, None].float() * torch.from_numpy(rope.inv_freq)  # [rows, 1, half]
    cos, sin = angles.cos() * rope.magnitude, angles.sin() * rope.magnitude
    half = len(rope.inv_freq)
    out = x.clone()
    if rope.interleaved:
        first, second = x[..., 0 : 2 * half : 2], x[..., 1 : 2 * half : 2]
        out[..., 0 : 2 * half : 2], out[..., 1 : 2 * half : 2] = first * cos - second * sin, second * cos + first * sin
    else:
        first, second = x[..., :half], x[..., half : 2 * half]
        out[..., :half], out[..., half : 2 * half] = first * cos - second * sin, second * cos + first * sin
    return out


def attend(q: Tensor, keys: Tensor, values: Tensor, scale: float, softcap: float | None) -> Tensor:
    """One row's attention: q [heads, dim] over keys and values [positions, kv_heads, dim]."""
    grouped = q.view(keys.shape[1], -1, q.shape[1])  # [kv_heads, heads that share its keys, dim]
    scores = torch.einsum("kgd,nkd->kgn", grouped, keys) * scale
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    return torch.einsum("kgn,nkd->kgd", scores.softmax(-1), values).reshape(q.shape)


def visible_slots(batch: Batch) -> list[NDArray[np.int32]]:
    """For each row, the slots it may see, in the order of their positions, its own last."""
    seen, rows_before = [], [0] * len(batch.tables)
    for row, sequence in enumerate(batch.sequences.tolist()):
        table, tail = batch.tables[sequence], batch.drafts.get(sequence)
        if tail is None:
            seen.append(table[: int(batch.positions[row]) + 1])
        else:
            mask = int(tail.ancestors[rows_before[sequence]])
            drafted = [tail.start + j for j in range(64) if mask >> j & 1]
            seen.append(np.concatenate([table[: tail.start], table[drafted]]))
        rows_before[sequence] += 1
    return seen


class ReferenceLayer:
    """A layer's weights as float32, and its keys and values."""

    def __init__(self, layer: Layer, decoder: Decoder, num_slots: int) -> None:
        self.spec = layer
        self.qkv = torch.cat([load(w) for w in (layer.wq, layer.wk, layer.wv)])
        biases = [b for b in (layer.bq, layer.bk, layer.bv) if b is not None]
        self.qkv_bias = torch.cat([load(b) for b in biases]) if biases else None
        self.wo, self.gate, self.up, self.down = (load(w) for w in (layer.wo, layer.gate, layer.up, layer.down))
        self.attn_norm, self.ffn_norm = load(layer.attn_norm), load(layer.ffn_norm)
        self.q_norm, self.k_norm, self.post_attn_norm, self.post_ffn_norm = (
            None if w is None else load(w)
            for w in (layer.q_norm, layer.k_norm, layer.post_attn_norm, layer.post_ffn_norm)
        )
        self.keys = torch.zeros(num_slots, decoder.num_kv_heads, decoder.head_dim)
        self.values = torch.zeros_like(self.keys)


class ReferenceKV:
    """Implements `KVMemory` over the layers' keys and values."""

    def __init__(self, layers: Sequence[ReferenceLayer], decoder: Decoder, num_slots: int) -> None:
        self._layers = layers
        self.num_slots = num_slots
        self.bytes_per_slot = len(layers) * 2 * decoder.kv_size * 4
        self.layout = f"reference-f32-{len(layers)}x2x{decoder.num_kv_heads}x{decoder.head_dim}"

    def read(self, slots: NDArray[np.int32]) -> NDArray[np.uint8]:
        at = torch.from_numpy(slots).long()
        parts = [t[at].flatten(1) for layer in self._layers for t in (layer.keys, layer.values)]
        return torch.cat(parts, dim=1).numpy().view(np.uint8)

    def write(self, slots: NDArray[np.int32], records: NDArray[np.uint8]) -> None:
        at = torch.from_numpy(slots).long()
        parts = torch.from_numpy(np.ascontiguousarray(records).view(np.float32)).chunk(2 * len(self._layers), dim=1)
        for i, layer in enumerate(self._layers):
            layer.keys[at] = parts[2 * i].view_as(layer.keys[at])
            layer.values[at] = parts[2 * i + 1].view_as(layer.values[at])


class ReferencePlan:
    """Implements `Plan`."""

    def __init__(
        self, decoder: Decoder, *, num_slots: int, max_rows: int = 512, captures: tuple[int, ...] = ()
    ) -> None:
        self._decoder = decoder
        self.max_rows = max_rows
        self._captures = captures
        self._embed = load(decoder.embed)
        self._head = self._embed if decoder.head is decoder.embed else load(decoder.head)
        self._final_norm = load(decoder.final_norm)
        self._layers = [ReferenceLayer(layer, decoder, num_slots) for layer in decoder.layers]
        self.kv = ReferenceKV(self._layers, decoder, num_slots)

    @torch.inference_mode()
    def run(self, batch: Batch) -> Output:
        decoder = self._decoder
        positions = torch.from_numpy(batch.positions)
        seen = [torch.from_numpy(slots).long() for slots in visible_slots(batch)]
        x = self._embed[torch.from_numpy(batch.ids).long()] * decoder.embed_scale
        captured = []
        for index, layer in enumerate(self._layers):
            if index in self._captures:
                captured.append(x)
            x = x + self._attention(layer, x, positions, batch, seen)
            x = x + self._feed_forward(layer, x)
        chosen = rms_norm(x[torch.from_numpy(batch.logit_rows).long()], self._final_norm, decoder.norm_eps)
        logits = chosen @ self._head.T
        if decoder.logit_softcap is not None:
            logits = decoder.logit_softcap * torch.tanh(logits / decoder.logit_softcap)
        return Output(
            logits.numpy(),
            hidden=chosen.numpy() if batch.want_hidden else None,
            features=torch.cat(captured, dim=1).numpy() if captured else None,
        )

    def _attention(
        self, layer: ReferenceLayer, x: Tensor, positions: Tensor, batch: Batch, seen: Sequence[Tensor]
    ) -> Tensor:
        decoder = self._decoder
        heads, kv_heads, dim = decoder.num_heads, decoder.num_kv_heads, decoder.head_dim
        qkv = rms_norm(x, layer.attn_norm, decoder.norm_eps) @ layer.qkv.T
        if layer.qkv_bias is not None:
            qkv = qkv + layer.qkv_bias
        q, k, v = torch.split(qkv.view(len(x), -1, dim), [heads, kv_heads, kv_heads], dim=1)
        if layer.q_norm is not None and layer.k_norm is not None:
            q, k = rms_norm(q, layer.q_norm, decoder.norm_eps), rms_norm(k, layer.k_norm, decoder.norm_eps)
        q, k = rotate(q, positions, layer.spec.rope), rotate(k, positions, layer.spec.rope)
        slots = torch.from_numpy(batch.slots).long()
        stored = slots >= 0
        layer.keys[slots[stored]], layer.values[slots[stored]] = k[stored], v[stored]
        window = layer.spec.window or 0
        rows = [
            attend(q[row], layer.keys[s[-window:]], layer.values[s[-window:]], decoder.attn_scale, decoder.attn_softcap)
            for row, s in enumerate(seen)
        ]
        out = torch.stack(rows).flatten(1) @ layer.wo.T
        return out if layer.post_attn_norm is None else rms_norm(out, layer.post_attn_norm, decoder.norm_eps)

    def _feed_forward(self, layer: ReferenceLayer, x: Tensor) -> Tensor:
        h = rms_norm(x, layer.ffn_norm, self._decoder.norm_eps)
        gate = h @ layer.gate.T
        if self._decoder.activation == "silu":
            gate = torch.nn.functional.silu(gate)
        else:
            gate = torch.nn.functional.gelu(gate, approximate="tanh")
        out = (gate * (h @ layer.up.T)) @ layer.down.T
        return out if layer.post_ffn_norm is None else rms_norm(out, layer.post_ffn_norm, self._decoder.norm_eps)

    def close(self) -> None:
        """Nothing to give back."""
