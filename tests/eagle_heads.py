"""Random EAGLE heads as folders in the public layouts, and what a head computes, written out in float64."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from sapwood.kernels.decoder import Decoder, Weight
from sapwood.kernels.eagle import EagleHead
from sapwood.kernels.formats import dequantize

Floats = NDArray[np.float64]


def write_head(
    folder: Path, target: Decoder, version: int, *, layer: str = "midlayer.", seed: int = 0, **config: Any
) -> Path:
    """A random head for this target. `layer`: how its one layer is called; `config`: what to say besides."""
    rng = np.random.default_rng(seed)
    hidden, heads, kv_heads, dim, ffn = target.hidden_size, target.num_heads, target.num_kv_heads, target.head_dim, 96
    qkv = hidden if version == 1 else 2 * hidden

    def matrix(out: int, width: int) -> NDArray[np.float32]:
        return (rng.standard_normal((out, width)) / np.sqrt(width)).astype(np.float32)

    def norm() -> NDArray[np.float32]:
        return (1 + 0.1 * rng.standard_normal(hidden)).astype(np.float32)

    tensors: dict[str, NDArray[Any]] = {
        "fc.weight": matrix(hidden, (2 if version == 1 else 3) * hidden),
        f"{layer}self_attn.q_proj.weight": matrix(heads * dim, qkv),
        f"{layer}self_attn.k_proj.weight": matrix(kv_heads * dim, qkv),
        f"{layer}self_attn.v_proj.weight": matrix(kv_heads * dim, qkv),
        f"{layer}self_attn.o_proj.weight": matrix(hidden, heads * dim),
        f"{layer}mlp.gate_proj.weight": matrix(ffn, hidden),
        f"{layer}mlp.up_proj.weight": matrix(ffn, hidden),
        f"{layer}mlp.down_proj.weight": matrix(hidden, ffn),
        f"{layer}post_attention_layernorm.weight": norm(),
    }
    described: dict[str, Any] = {
        "architectures": ["LlamaForCausalLM" if version == 1 else "LlamaForCausalLMEagle3"],
        "hidden_size": hidden,
        "num_hidden_layers": 1,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": dim,
        "intermediate_size": ffn,
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "vocab_size": target.vocab_size,
    }
    if version == 1:
        tensors["fc.bias"] = (0.1 * rng.standard_normal(hidden)).astype(np.float32)
    else:
        ids = np.sort(rng.choice(target.vocab_size, target.vocab_size // 2, replace=False))
        known = np.zeros(target.vocab_size, bool)
        known[ids] = True
        tensors |= {
            f"{layer}hidden_norm.weight": norm(),
            f"{layer}input_layernorm.weight": norm(),
            "norm.weight": norm(),
            "lm_head.weight": matrix(len(ids), hidden),
            "d2t": ids - np.arange(len(ids)),
            "t2d": known,
        }
        described["draft_vocab_size"] = len(ids)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(described | config))
    return folder


class PlainEagle:
    """A head over one text, entry by entry, as `kernels/eagle.py` says it."""

    def __init__(self, target: Decoder, head: EagleHead) -> None:
        self._target, self._head = target, head
        self._keys: list[Floats] = []
        self._values: list[Floats] = []

    def g(self, features: NDArray[np.float32]) -> Floats:
        """From what the target's layers were given at one position."""
        if self._head.version == 1:
            assert self._head.target_norm is not None
            return self._norm(features.astype(np.float64), self._head.target_norm)
        return features.astype(np.float64) @ full(self._head.fc).T

    def enter(self, token: int, position: int, g: Floats) -> Floats:
        """Add an entry; returns its h."""
        head = self._head
        e = full(self._target.embed)[token] * self._target.embed_scale
        if head.version == 1:
            residual = inputs = np.concatenate([e, g]) @ full(head.fc).T
            if head.fc_bias is not None:
                residual = inputs = residual + full(head.fc_bias)
        else:
            assert head.input_norm is not None and head.hidden_norm is not None
            normed = self._norm(g, head.hidden_norm)
            inputs = np.concatenate([self._norm(e, head.input_norm), normed])
            residual = normed if head.norm_before_residual else g
        q, k, v = ((inputs @ full(weight).T).reshape(-1, head.head_dim) for weight in (head.wq, head.wk, head.wv))
        q, k = self._rotate(q, position), self._rotate(k, position)
        self._keys.append(k)
        self._values.append(v)
        group = head.num_heads // head.num_kv_heads
        keys, values = np.stack(self._keys), np.stack(self._values)  # [entries, kv_heads, dim]
        mixed = []
        for number in range(head.num_heads):
            scores = keys[:, number // group] @ q[number] / np.sqrt(head.head_dim)
            weights = np.exp(scores - scores.max())
            mixed.append(weights / weights.sum() @ values[:, number // group])
        u = residual + np.concatenate(mixed) @ full(head.wo).T
        n = self._norm(u, head.post_norm)
        gate = n @ full(head.gate).T
        return u + (gate / (1 + np.exp(-gate)) * (n @ full(head.up).T)) @ full(head.down).T

    def chances(self, h: Floats) -> Floats:
        """Of each draft id."""
        final = self._head.final_norm
        logits = (h if final is None else self._norm(h, final)) @ full(self._head.head).T
        weights = np.exp(logits - logits.max())
        return weights / weights.sum()

    def _norm(self, x: Floats, weight: Weight) -> Floats:
        return x / np.sqrt((x * x).mean() + self._head.norm_eps) * full(weight)

    def _rotate(self, x: Floats, position: int) -> Floats:
        half = self._head.head_dim // 2
        angles = position * self._head.rope.inv_freq.astype(np.float64)
        a, b = x[:, :half], x[:, half:]
        return np.concatenate(
            [a * np.cos(angles) - b * np.sin(angles), b * np.cos(angles) + a * np.sin(angles)], axis=1
        )


def full(weight: Weight) -> Floats:
    return dequantize(weight).astype(np.float64)
