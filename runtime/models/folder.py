"""Hugging Face folders (config.json and *.safetensors), seen through GGUF's keys and names so that architectures read both.

Gemma's norms get the 1 that its layers add to them; everything else is taken as it lies in the files.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from sapwood.errors import ModelError
from sapwood.kernels.decoder import Format, Weight
from sapwood.kernels.formats import dequantize
from sapwood.runtime.models.safetensors import Tensor, read

_ARCHITECTURES = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "llama",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
    "Phi3ForCausalLM": "phi3",
    "Gemma3ForCausalLM": "gemma3",
}
_ENDS = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
_PARTS = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.qkv_proj": "attn_qkv",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.gate_up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
# Gemma norms the sublayers' outputs too; there `post_attention_layernorm` is such a norm.
_GEMMA_PARTS = _PARTS | {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}


class HuggingFaceFolder:
    """Implements `Checkpoint` for a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._config = read_json(path / "config.json")
        names = self._config.get("architectures")
        name = str(names[0]) if isinstance(names, list) and names else "(none named)"
        self.architecture = _ARCHITECTURES.get(name, name)
        self.tensors: dict[str, Tensor] = {}
        try:
            self.metadata = self._keys()
        except (TypeError, ValueError, AttributeError, ArithmeticError) as error:
            raise ModelError(f"{path}/config.json says what can't be ({error}); download it again") from error
        files = sorted(path.glob("*.safetensors"))
        if not files:
            raise ModelError(f"{path} holds no .safetensors file")
        for file in files:
            for name, tensor in read(file).items():
                mapped = self._gguf_name(name)
                if mapped is not None:
                    self.tensors[mapped] = tensor
        if self._config.get("tie_word_embeddings"):
            self.tensors.pop("output.weight", None)

    def get(self, key: str, default: Any = None) -> Any:
        value = self.metadata.get(key, default)
        if value is None:
            raise ModelError(f"{self.path}/config.json doesn't say what '{key}' needs; it is no complete model folder")
        return value

    def weight(self, name: str) -> Weight:
        if name not in self.tensors:
            raise ModelError(f"{self.path} has no tensor for '{name}'; are all of its .safetensors files there?")
        weight = Weight(name, *self.tensors[name])
        if self.architecture == "gemma3" and "norm" in name:  # Gemma multiplies by 1 + weight
            shifted = (dequantize(weight) + 1).reshape(1, -1)
            weight = Weight(name, Format.F32, weight.shape, shifted.view(np.uint8))
        return weight

    def _keys(self) -> dict[str, Any]:
        config, arch = self._config, self.architecture
        heads = config.get("num_attention_heads")
        kinds = config.get("layer_types") or []
        period = (
            kinds.index("full_attention") + 1 if "full_attention" in kinds else config.get("sliding_window_pattern")
        )
        if arch != "gemma3" and len(set(kinds)) > 1:
            raise ModelError(f"{self.path}: the layers of this model differ in what they see, which isn't supported")
        windows = config.get("use_sliding_window", True) and set(kinds) != {"full_attention"}
        keys = {
            "block_count": config.get("num_hidden_layers"),
            "embedding_length": config.get("hidden_size"),
            "attention.head_count": heads,
            "attention.head_count_kv": config.get("num_key_value_heads", heads),
            "attention.key_length": config.get("head_dim"),
            "context_length": config.get("max_position_embeddings"),
            "attention.layer_norm_rms_epsilon": config.get("rms_norm_eps"),
            "attention.sliding_window": config.get("sliding_window") if windows else None,
            "attention.sliding_window_pattern": period if arch == "gemma3" else None,
            "expert_count": config.get("num_local_experts"),
        } | rope_keys(config)
        rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
        if "longrope" in (rope.get("rope_type"), rope.get("type")):
            self._add_divisors(rope.get("short_factor"))
        present = {f"{arch}.{key}": value for key, value in keys.items() if value is not None}
        return present | {"general.architecture": arch, "sapwood.interleaved_rope": False}

    def _add_divisors(self, values: Any) -> None:
        """Phi-3 folders keep in the config what GGUF keeps as a tensor."""
        divisors = np.asarray(values, np.float32).reshape(1, -1)
        self.tensors["rope_factors_short.weight"] = Tensor(Format.F32, (divisors.size,), divisors.view(np.uint8))

    def _gguf_name(self, name: str) -> str | None:
        if name in _ENDS:
            return _ENDS[name]
        if not name.startswith("model.layers."):
            return None
        index, _, rest = name.removeprefix("model.layers.").partition(".")
        part, _, kind = rest.rpartition(".")
        mapped = (_GEMMA_PARTS if self.architecture == "gemma3" else _PARTS).get(part, part)
        return f"blk.{index}.{mapped}.{kind}"


def rope_keys(config: dict[str, Any]) -> dict[str, Any]:
    """Positions: said in `rope_parameters` by newer configs, in `rope_theta` and `rope_scaling` by older ones."""
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    nearby = rope.get("sliding_attention", {})
    rope = rope.get("full_attention", rope)  # Gemma 3 says it for each kind of layer
    kind = rope.get("rope_type", rope.get("type", "default"))
    factor, whole = rope.get("factor"), config.get("max_position_embeddings", 0)
    original = rope.get("original_max_position_embeddings", config.get("original_max_position_embeddings", whole))
    magnitude = rope.get("attention_factor")
    if kind == "longrope":
        stretch = factor or whole / original
        magnitude = magnitude or (math.sqrt(1 + math.log(stretch) / math.log(original)) if stretch > 1 else 1.0)
    elif kind == "yarn" and magnitude is not None:
        magnitude = magnitude / (0.1 * math.log(factor) + 1.0)  # GGUF's comes on top of this
    size = config.get("head_dim") or config.get("hidden_size", 0) // config.get("num_attention_heads", 1)
    rotated = rope.get("partial_rotary_factor", config.get("partial_rotary_factor", 1.0))
    return {
        "rope.dimension_count": int(size * rotated) if rotated != 1.0 else None,
        "rope.freq_base": rope.get("rope_theta", config.get("rope_theta")),
        "rope.freq_base_swa": nearby.get("rope_theta", config.get("rope_local_base_freq")),
        "rope.scaling.type": "none" if kind == "default" else kind,
        "rope.scaling.factor": factor,
        "rope.scaling.attn_factor": magnitude,
        "rope.scaling.original_context_length": original or None,
        "rope.scaling.low_freq_factor": rope.get("low_freq_factor"),
        "rope.scaling.high_freq_factor": rope.get("high_freq_factor"),
        "rope.scaling.yarn_beta_fast": rope.get("beta_fast"),
        "rope.scaling.yarn_beta_slow": rope.get("beta_slow"),
    }


def read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"can't read {path}: {error}; a model folder needs config.json and *.safetensors") from error
    if not isinstance(value, dict):
        raise ModelError(f"{path} is no JSON object; a model folder needs config.json and *.safetensors")
    return value
