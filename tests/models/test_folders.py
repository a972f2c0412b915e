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


def saved(kind: str, folder: Path) -> Any:
    """A random model of this family, written as its users would find it, and with norms that aren't all ones."""
    import torch
    import transformers as tf

    torch.manual_seed(0)
    if kind == "llama":
        model = tf.LlamaForCausalLM(tf.LlamaConfig(**SIZES))
    elif kind == "qwen2":
        model = tf.Qwen2ForCausalLM(tf.Qwen2Config(**SIZES, use_sliding_window=False))
    elif kind == "qwen3":
        model = tf.Qwen3ForCausalLM(tf.Qwen3Config(**SIZES, head_dim=32, use_sliding_window=False))
    elif kind == "phi3":
        model = tf.Phi3ForCausalLM(tf.Phi3Config(**SIZES, sliding_window=None))
    else:
        layers = ["sliding_attention"] * 2 + ["full_attention"]
        config = tf.Gemma3TextConfig(
            **SIZES, head_dim=32, query_pre_attn_scalar=32, sliding_window=8, layer_types=layers
        )
        config.sliding_window_pattern = 3
        model = tf.Gemma3ForCausalLM(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" in name or "bias" in name:
                weight.add_(torch.randn_like(weight) * 0.1)
    model.save_pretrained(folder)
    return model.eval()


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3", "phi3", "gemma3"])
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
