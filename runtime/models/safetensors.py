"""Hugging Face folders (config.json and *.safetensors), seen through GGUF's keys and names so that architectures read both.

Tensors are views of the memory-mapped files. Formats: F32, F16, BF16. Layout of the file: 8 bytes of header length, a JSON
header with dtype, shape and offsets, then the bytes (github.com/huggingface/safetensors).
"""

from __future__ import annotations

import json
import mmap
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sapwood.errors import ModelError
from sapwood.kernels.decoder import Format, Weight
from sapwood.kernels.formats import dequantize

_FORMATS = {"F32": Format.F32, "F16": Format.F16, "BF16": Format.BF16}
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
        self._config = _read_json(path / "config.json")
        names = self._config.get("architectures") or ["(none)"]
        self.architecture = _ARCHITECTURES.get(names[0], names[0])
        self.metadata = self._keys()
        self.tensors: dict[str, tuple[Format, tuple[int, ...], NDArray[np.uint8]]] = {}
        files = sorted(path.glob("*.safetensors"))
        if not files:
            raise ModelError(f"{path} holds no .safetensors file")
        for file in files:
            self._map(file)
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
        fmt, shape, data = self.tensors[name]
        weight = Weight(name, fmt, shape, data)
        if self.architecture == "gemma3" and "norm" in name:  # Gemma multiplies by 1 + weight
            shifted = (dequantize(weight) + 1).reshape(1, -1)
            weight = Weight(name, Format.F32, shape, shifted.view(np.uint8))
        return weight

    def _keys(self) -> dict[str, Any]:
        config, arch = self._config, self.architecture
        rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
        rope = rope.get("full_attention", rope)  # Gemma 3 says it for each kind of layer
        kinds = config.get("layer_types") or []
        pattern = (
            kinds.index("full_attention") + 1 if "full_attention" in kinds else config.get("sliding_window_pattern")
        )
        heads = config.get("num_attention_heads")
        keys = {
            "general.architecture": arch,
            f"{arch}.block_count": config.get("num_hidden_layers"),
            f"{arch}.embedding_length": config.get("hidden_size"),
            f"{arch}.attention.head_count": heads,
            f"{arch}.attention.head_count_kv": config.get("num_key_value_heads", heads),
            f"{arch}.attention.key_length": config.get("head_dim"),
            f"{arch}.context_length": config.get("max_position_embeddings"),
            f"{arch}.attention.layer_norm_rms_epsilon": config.get("rms_norm_eps"),
            f"{arch}.attention.sliding_window": config.get("sliding_window")
            if config.get("use_sliding_window", True)
            else None,
            f"{arch}.attention.sliding_window_pattern": pattern,
            f"{arch}.rope.freq_base": rope.get("rope_theta", config.get("rope_theta")),
            f"{arch}.rope.scaling.type": {"default": "none", None: "none"}.get(kind := rope.get("rope_type"), kind),
            f"{arch}.rope.scaling.factor": rope.get("factor"),
            f"{arch}.rope.scaling.original_context_length": rope.get("original_max_position_embeddings"),
            "sapwood.interleaved_rope": False,
        }
        if arch == "llama":
            del keys[f"{arch}.attention.sliding_window"]
        return {key: value for key, value in keys.items() if value is not None}

    def _map(self, file: Path) -> None:
        with open(file, "rb") as stream:
            data = np.frombuffer(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
        try:
            length = int(data[:8].view("<u8")[0])
            header = json.loads(bytes(data[8 : 8 + length]))
        except (ValueError, IndexError) as error:
            raise ModelError(f"{file} is damaged: its header can't be read. Download it again.") from error
        header.pop("__metadata__", None)
        for name, entry in header.items():
            mapped = self._gguf_name(name)
            if mapped is None:
                continue
            if entry["dtype"] not in _FORMATS:
                raise ModelError(f"{file}: tensor '{name}' is {entry['dtype']}; supported are {', '.join(_FORMATS)}")
            begin, end = (8 + length + offset for offset in entry["data_offsets"])
            if end > len(data):
                raise ModelError(f"{file} is truncated at tensor '{name}'. Download it again.")
            shape = tuple(entry["shape"])
            rows = shape[0] if len(shape) > 1 else 1
            self.tensors[mapped] = (_FORMATS[entry["dtype"]], shape, data[begin:end].reshape(rows, -1))

    def _gguf_name(self, name: str) -> str | None:
        if name in _ENDS:
            return _ENDS[name]
        if not name.startswith("model.layers."):
            return None
        index, _, rest = name.removeprefix("model.layers.").partition(".")
        part, _, kind = rest.rpartition(".")
        mapped = (_GEMMA_PARTS if self.architecture == "gemma3" else _PARTS).get(part)
        return f"blk.{index}.{mapped}.{kind}" if mapped else None


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value: dict[str, Any] = json.loads(path.read_text())
        return value
    except (OSError, ValueError) as error:
        raise ModelError(f"can't read {path}: {error}; a model folder needs config.json and *.safetensors") from error
