"""Writes a trained head as a folder in the public EAGLE-3 layout, its matrices in int8 with one scale a row, and its card."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from head import Head, Target
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file
from torch import Tensor

from sapwood.runtime.models.eagle import identity
from sapwood.runtime.models.load import Model


def quantized(name: str, weight: Tensor) -> dict[str, NDArray[Any]]:
    """int8 rows and a float16 scale for each."""
    values = weight.detach().float().numpy()
    scales = np.maximum(np.abs(values).max(axis=1, keepdims=True) / 127, 1e-7).astype(np.float16)
    whole = np.clip(np.rint(values / scales.astype(np.float32)), -127, 127).astype(np.int8)
    return {f"{name}.weight": whole, f"{name}.weight_scale": scales}


def halves_apart(weight: Tensor, dim: int) -> Tensor:
    """Rows of heads whose rotated pairs are neighbours, put so that pairs are half a head apart, as the layout wants them."""
    heads = weight.unflatten(0, (-1, dim // 2, 2))
    return heads.transpose(1, 2).reshape(weight.shape)


def neighbours(weight: Tensor, dim: int) -> Tensor:
    """The other way round."""
    return weight.unflatten(0, (-1, 2, dim // 2)).transpose(1, 2).reshape(weight.shape)


def read_head(folder: Path, head: Head) -> None:
    """Go on from a head that was written before, with the same vocabulary and sizes."""
    tensors = load_file(folder / "model.safetensors")
    vocab = tensors["d2t"] + np.arange(len(tensors["d2t"]))
    if vocab.tolist() != head.vocab.tolist():
        raise SystemExit(f"the head in {folder} guesses other tokens; train a new one")

    def matrix(name: str) -> Tensor:
        scales = tensors[f"{name}.weight_scale"].astype(np.float32)
        return torch.from_numpy(tensors[f"{name}.weight"].astype(np.float32) * scales)

    layer = "midlayer."
    with torch.no_grad():
        for name, linear in (
            ("fc", head.fc), ("lm_head", head.lm_head), (f"{layer}self_attn.q_proj", head.q), (f"{layer}self_attn.k_proj", head.k),
            (f"{layer}self_attn.v_proj", head.v), (f"{layer}self_attn.o_proj", head.o), (f"{layer}mlp.gate_proj", head.gate),
            (f"{layer}mlp.up_proj", head.up), (f"{layer}mlp.down_proj", head.down),
        ):  # fmt: skip
            is_rotated = head.rope.interleaved and linear in (head.q, head.k)
            linear.weight.copy_(neighbours(matrix(name), head.dim) if is_rotated else matrix(name))
        for name, norm in (
            (f"{layer}input_layernorm", head.input_norm), (f"{layer}hidden_norm", head.hidden_norm),
            (f"{layer}post_attention_layernorm", head.post_norm), ("norm", head.norm),
        ):  # fmt: skip
            norm.weight.copy_(torch.from_numpy(tensors[f"{name}.weight"]))


def tensors_of(head: Head) -> dict[str, NDArray[Any]]:
    """The head's tensors by their public names."""
    q, k = head.q.weight, head.k.weight
    if head.rope.interleaved:
        q, k = halves_apart(q, head.dim), halves_apart(k, head.dim)
    matrices = {
        "fc": head.fc.weight,
        "midlayer.self_attn.q_proj": q,
        "midlayer.self_attn.k_proj": k,
        "midlayer.self_attn.v_proj": head.v.weight,
        "midlayer.self_attn.o_proj": head.o.weight,
        "midlayer.mlp.gate_proj": head.gate.weight,
        "midlayer.mlp.up_proj": head.up.weight,
        "midlayer.mlp.down_proj": head.down.weight,
        "lm_head": head.lm_head.weight,
    }
    vectors = {
        "midlayer.input_layernorm": head.input_norm,
        "midlayer.hidden_norm": head.hidden_norm,
        "midlayer.post_attention_layernorm": head.post_norm,
        "norm": head.norm,
    }
    tensors: dict[str, NDArray[Any]] = {}
    for name, weight in matrices.items():
        tensors |= quantized(name, weight)
    for name, norm in vectors.items():
        tensors[f"{name}.weight"] = norm.weight.detach().float().numpy()
    vocab = head.vocab.numpy().astype(np.int32)
    return tensors | {"d2t": vocab - np.arange(len(vocab), dtype=np.int32)}


def config_of(target: Target, head: Head, model: Model) -> dict[str, Any]:
    """The layout's config.json."""
    decoder, rope = target.decoder, head.rope
    theta = float((1 / rope.inv_freq[1]) ** (head.dim / 2)) if len(rope.inv_freq) > 1 else 10000.0
    return {
        "architectures": ["LlamaForCausalLMEagle3"],
        "hidden_size": decoder.hidden_size,
        "target_hidden_size": decoder.hidden_size,
        "num_hidden_layers": 1,
        "num_attention_heads": decoder.num_heads,
        "num_key_value_heads": decoder.num_kv_heads,
        "head_dim": decoder.head_dim,
        "intermediate_size": head.gate.out_features,
        "rms_norm_eps": decoder.norm_eps,
        "rope_theta": round(theta, 3),
        "max_position_embeddings": model.context_length,
        "vocab_size": decoder.vocab_size,
        "draft_vocab_size": len(head.vocab),
        "tie_word_embeddings": False,
        "eagle_config": {
            "use_aux_hidden_state": True,
            "eagle_aux_hidden_state_layer_ids": [layer - 1 for layer in target.captures],
        },
        "target_identity": identity(decoder),
    }


def write_head(folder: Path, model: Model, target: Target, head: Head, facts: dict[str, Any]) -> None:
    """config.json, model.safetensors and card.json with what is known of the training."""
    with torch.no_grad():
        save_file(tensors_of(head), folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config_of(target, head, model), indent=2) + "\n")
    (folder / "card.json").write_text(json.dumps({"target": model.name, **facts}, indent=2) + "\n")
    size = (folder / "model.safetensors").stat().st_size
    print(f"wrote {folder}: {size / 1e6:.2f} MB")
