"""Damaged files: whatever is wrong with a small complete model, loading it works or is one ModelError."""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from sapwood.errors import ModelError
from sapwood.runtime.models.load import load_model
from sapwood.runtime.tokenizer import load_tokenizer

VISIBLE = [chr(n) for n in (*range(33, 127), *range(161, 173), *range(174, 256))]
VISIBLE += [chr(256 + n) for n in range(256 - len(VISIBLE))]
KEYS: dict[str, Any] = {
    "llama.block_count": 1, "llama.context_length": 64, "llama.embedding_length": 32, "llama.feed_forward_length": 64,
    "llama.attention.head_count": 4, "llama.attention.head_count_kv": 2, "llama.rope.freq_base": 1e4,
    "llama.attention.layer_norm_rms_epsilon": 1e-5, "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2",
    "tokenizer.ggml.tokens": ["<|end|>", *VISIBLE, "ab"], "tokenizer.ggml.token_type": [3] + [1] * 257,
    "tokenizer.ggml.merges": ["a b"], "tokenizer.ggml.eos_token_id": 0,
}  # fmt: skip
SHAPES = {
    "token_embd": (258, 32), "output_norm": (32,), "blk.0.attn_norm": (32,), "blk.0.ffn_norm": (32,),
    "blk.0.attn_q": (32, 32), "blk.0.attn_k": (16, 32), "blk.0.attn_v": (16, 32), "blk.0.attn_output": (32, 32),
    "blk.0.ffn_gate": (64, 32), "blk.0.ffn_up": (64, 32), "blk.0.ffn_down": (32, 64),
}  # fmt: skip


def write(path: Path, keys: dict[str, Any] | None = None, shapes: dict[str, tuple[int, ...]] | None = None) -> Path:
    """A complete model, changed as asked; a key or tensor that is None is left out."""
    writer = gguf.GGUFWriter(path, "llama")
    for key, value in (KEYS | (keys or {})).items():
        adders = {list: writer.add_array, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
        if value is not None:
            adders[type(value)](key, value)
    rng = np.random.default_rng(0)
    for name, shape in (SHAPES | (shapes or {})).items():
        if shape is not None:
            kind = "" if "." in name.removeprefix("blk.0.") else ".weight"
            writer.add_tensor(name + kind, rng.standard_normal(shape, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def load(path: Path) -> None:
    load_model(path)
    load_tokenizer(path).encode("a <|end|>", special=True)


def test_the_whole_model_loads(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf")
    assert load_model(path).decoder.vocab_size == 258
    assert load_tokenizer(path).encode("ab<|end|>", special=True) == [257, 0]


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"llama.block_count": None}, "lacks the key 'llama.block_count'"),
        ({"llama.block_count": 2}, "no tensor 'blk.1."),
        ({"llama.block_count": 0}, "positive"),
        ({"llama.attention.head_count": "four"}, "one number for all layers"),
        ({"llama.attention.head_count": [4, 8]}, "one number for all layers"),
        ({"llama.attention.head_count": 3}, "3 heads and 2 of keys"),
        ({"llama.attention.key_length": 1 << 20}, "heads of 1,048,576 channels"),
        ({"llama.attention.key_length": 16}, "attn_q.weight' has shape"),
        ({"llama.rope.dimension_count": 1 << 30}, "rotates 1073741824 of 8"),
        ({"llama.rope.dimension_count": 3}, "rotates 3 of 8"),
        ({"llama.rope.freq_base": float("nan")}, "positive number"),
        ({"llama.rope.freq_base": 1.0}, "rotary base of 1;"),
        ({"llama.rope.scaling.type": "su"}, "scaled by 'su'.*supported are linear"),
        ({"llama.rope.scaling.type": "yarn"}, "lacks the key 'llama.rope.scaling.factor'"),
        ({"llama.attention.layer_norm_rms_epsilon": 0.0}, "positive number"),
        ({"llama.expert_count": 8}, "mixture of experts"),
        ({"split.count": 3}, "one part of a split model"),
        ({"tokenizer.ggml.model": "bert"}, "kind 'bert'; supported are"),
        ({"tokenizer.ggml.pre": "tekken"}, "pre-tokenizer 'tekken' is not supported"),
        ({"tokenizer.ggml.tokens": ["a", "b"]}, "doesn't say of each token"),
        ({"tokenizer.ggml.token_type": [1]}, "doesn't say of each token"),
        ({"tokenizer.ggml.tokens": ["x"] * 300}, "no sound list of tokens"),
        ({"tokenizer.ggml.merges": ["a zz"]}, "merges don't fit its tokens"),
        ({"tokenizer.ggml.model": "llama"}, "lacks the key 'tokenizer.ggml.scores'"),
        ({"tokenizer.ggml.model": "llama", "tokenizer.ggml.scores": [1.0]}, "1 scores for 258 tokens"),
    ],
)
def test_keys_that_cannot_be(keys: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=said):
        load(write(tmp_path / "m.gguf", keys))


@pytest.mark.parametrize(
    ("shapes", "said"),
    [
        ({"blk.0.ffn_up": None}, "no tensor 'blk.0.ffn_up.weight'"),
        ({"token_embd": (258, 16)}, "embedding has shape"),
        ({"output": (100, 32)}, r"'output.weight' has shape \(100, 32\), not \(258, 32\)"),
        ({"output_norm": (16,)}, "output_norm.weight' has shape"),
        ({"blk.0.attn_norm": (64,)}, "attn_norm.weight' has shape"),
        ({"blk.0.attn_q.bias": (8,)}, "attn_q.bias' has shape"),
        ({"blk.0.ffn_gate": (32, 32)}, "ffn_gate.weight' has shape"),
        ({"blk.0.ffn_down": (32,)}, "ffn_down.weight' has shape"),
        ({"blk.0.attn_sub_norm": (32,)}, "attn_sub_norm.weight' that its architecture doesn't use"),
        ({"blk.0.attn_output.bias": (32,)}, "attn_output.bias' that its architecture doesn't use"),
        ({"rope_freqs": (3,)}, "rope_freqs.weight' has shape"),
    ],
)
def test_tensors_that_cannot_be(shapes: dict[str, tuple[int, ...]], said: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=said):
        load(write(tmp_path / "m.gguf", shapes=shapes))


def test_random_damage_of_the_header_never_does_more_than_raise(tmp_path: Path) -> None:
    whole = write(tmp_path / "m.gguf").read_bytes()
    header = whole.index(b"blk.0.ffn_down.weight") + 60
    rng, refused = random.Random(0), 0
    for _ in range(1500):
        damaged = bytearray(whole)
        for _ in range(rng.randrange(1, 4)):
            at = rng.choice([rng.randrange(header), rng.randrange(800), rng.randrange(header - 900, header)])
            damaged[at] = rng.choice([0, 1, 8, 9, 255, rng.randrange(256)])
        path = tmp_path / "damaged.gguf"
        path.write_bytes(damaged)
        try:
            load(path)
        except ModelError:
            refused += 1
    assert 300 < refused < 1500


def test_a_header_of_many_nested_arrays_is_refused(tmp_path: Path) -> None:
    nested = struct.pack("<IQ", 9, 1) * 100_000
    head = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1) + b"k" + struct.pack("<I", 9)
    (tmp_path / "m.gguf").write_bytes(head + nested)
    with pytest.raises(ModelError, match="an array of type 9"):
        load_model(tmp_path / "m.gguf")


def safetensors(path: Path, header: object, size: int = 64) -> Path:
    (path / "config.json").write_text('{"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 1}')
    text = json.dumps(header).encode()
    (path / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + bytes(size))
    return path


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ([], "damaged"),
        ({"model.norm.weight": {}}, "damaged"),
        ({"model.norm.weight": 5}, "damaged"),
        ({"model.norm.weight": {"dtype": "F32", "shape": [16], "data_offsets": [0, 32]}}, "damaged"),
        ({"model.norm.weight": {"dtype": "F32", "shape": [-16], "data_offsets": [64, 0]}}, "damaged"),
        ({"model.norm.weight": {"dtype": "F32", "shape": [16], "data_offsets": [-64, 0]}}, "damaged"),
        ({"model.norm.weight": {"dtype": "F32", "shape": [16], "data_offsets": [0]}}, "damaged"),
        ({"model.norm.weight": {"dtype": "F32", "shape": [], "data_offsets": [0, 4]}}, "damaged"),
        ({"model.norm.weight": {"dtype": "F32", "shape": [32], "data_offsets": [0, 128]}}, "truncated at tensor"),
        ({"model.norm.weight": {"dtype": "I32", "shape": [16], "data_offsets": [0, 64]}}, "is I32; supported are F32"),
    ],
)
def test_damaged_safetensors(header: object, said: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=said):
        load_model(safetensors(tmp_path, header))


@pytest.mark.parametrize("config", ["", "[]", "{}", '{"architectures": 5}', '{"architectures": ["Mamba"]}'])
def test_configs_that_cannot_be(config: str, tmp_path: Path) -> None:
    safetensors(tmp_path, {})
    (tmp_path / "config.json").write_text(config)
    with pytest.raises(ModelError, match=r"config.json|architecture"):
        load_model(tmp_path)


@pytest.mark.parametrize("text", ["", "[1]", "{}", '{"model": {"type": "BPE"}}'])
def test_tokenizer_files_that_cannot_be(text: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(ModelError, match=r"tokenizer.json"):
        load_tokenizer(tmp_path)
