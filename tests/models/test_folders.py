"""Hugging Face folders: tiny random models saved by transformers give transformers' logits when we read them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from decoders import int32, run

from sapwood.errors import ModelError
from sapwood.kernels.reference import ReferencePlan
from sapwood.runtime.models.load import load_model
from sapwood.runtime.tokenizer import load_tokenizer

SIZES = {
    "vocab_size": 120, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 256, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip


LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
LONGROPE = {"short_factor": [1.0, 1.2, 1.5, 2.0, 2.0, 3.0, 3.5, 4.0], "long_factor": [9.0] * 8}

# family -> name in transformers, what its config says beyond the sizes
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {}),
    "llama stretched linearly": ("Llama", {"rope_parameters": {"rope_type": "linear", "factor": 4.0}}),
    "llama 3": ("Llama", {"rope_parameters": {"rope_type": "llama3", "factor": 8.0, **LLAMA3}}),
    "llama by yarn": ("Llama", {"rope_parameters": {"rope_type": "yarn", "factor": 4.0}}),
    "llama by yarn, told its factor": (
        "Llama",
        {"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "attention_factor": 1.3, "beta_fast": 8.0}},
    ),
    "mistral": ("Mistral", {"sliding_window": 8}),
    "qwen2": ("Qwen2", {"use_sliding_window": False}),
    "qwen3": ("Qwen3", {"head_dim": 32, "use_sliding_window": False}),
    "phi3": ("Phi3", {"sliding_window": None}),
    "phi3 with a window": ("Phi3", {"sliding_window": 8}),
    "phi3 stretched": (
        "Phi3",
        {"rope_parameters": {"rope_type": "longrope", **LONGROPE}, "original_max_position_embeddings": 64},
    ),
    "phi3 that rotates half": ("Phi3", {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}}),
    "gemma3": (
        "Gemma3",
        {
            "head_dim": 32, "query_pre_attn_scalar": 32, "sliding_window": 8,
            "layer_types": ["sliding_attention"] * 2 + ["full_attention"],
        },
    ),
}  # fmt: skip


def saved(kind: str, folder: Path) -> Any:
    """A random model of this family, written as its users would find it, and with norms that aren't all ones."""
    import torch
    import transformers

    torch.manual_seed(0)
    name, more = FAMILIES[kind]
    more = dict(more)
    rope = more.get("rope_parameters")
    if rope is not None:
        more["rope_parameters"] = {"rope_theta": 10000.0, "original_max_position_embeddings": 64, **rope}
    config_name = f"{name}TextConfig" if name == "Gemma3" else f"{name}Config"
    config = getattr(transformers, config_name)(**SIZES, **more)
    if name == "Gemma3":
        config.sliding_window_pattern = 3
    model = getattr(transformers, f"{name}ForCausalLM")(config)
    with torch.no_grad():
        for tensor_name, weight in model.named_parameters():
            if "norm" in tensor_name or "bias" in tensor_name:
                weight.add_(torch.randn_like(weight) * 0.1)
            elif "q_proj" in tensor_name or "k_proj" in tensor_name or "qkv_proj" in tensor_name:
                weight.mul_(20)  # sharp attention: positions must matter for the test to see them
    model.save_pretrained(folder)
    return model.eval()


@pytest.mark.parametrize("kind", FAMILIES)
def test_logits_are_transformers_own(kind: str, tmp_path: Path) -> None:
    import torch

    model = saved(kind, tmp_path)
    ids = np.random.default_rng(0).integers(3, 120, 40).tolist()
    with torch.inference_mode():
        expected = model(torch.tensor([ids])).logits[0].float().numpy()
    got = run(ReferencePlan(load_model(tmp_path).decoder, num_slots=64), ids, int32(range(40)), 0, 40)
    np.testing.assert_allclose(got, expected, atol=2e-3 * float(np.abs(expected).max()))


def test_the_folder_s_own_tokenizer_is_used(tmp_path: Path) -> None:
    import tokenizers
    from transformers import PreTrainedTokenizerFast

    saved("llama", tmp_path)
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()[:100]
    made = tokenizers.Tokenizer(tokenizers.models.BPE({c: i + 10 for i, c in enumerate(sorted(alphabet))}, []))
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    made.add_special_tokens([tokenizers.AddedToken("<s>"), tokenizers.AddedToken("</s>")])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=made, bos_token="<s>", eos_token="</s>", chat_template="{{ messages[0].content }}"
    )
    fast.save_pretrained(tmp_path)
    ours = load_tokenizer(tmp_path)
    text = "".join(c for c in "Hello, world" if c in alphabet)
    assert ours.encode(text) == fast.encode(text, add_special_tokens=False)
    assert ours.decode(ours.encode(text)) == text
    assert ours.render([{"role": "user", "content": "hi"}]) == "hi"
    assert 2 in ours.eos_ids or ours.eos_ids  # config.json's end


def test_damaged_folders_are_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="config.json"):
        load_model(tmp_path)
    (tmp_path / "config.json").write_text('{"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 1}')
    with pytest.raises(ModelError, match="no .safetensors"):
        load_model(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"\xff" * 20)
    with pytest.raises(ModelError, match="damaged"):
        load_model(tmp_path)
