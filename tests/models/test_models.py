"""Real models: our forward pass against transformers on the same dequantized weights, and files that are damaged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sapwood.errors import ModelError
from sapwood.kernels.formats import dequantize
from sapwood.kernels.plan import Batch
from sapwood.kernels.reference import ReferencePlan
from sapwood.runtime.models.gguf import GgufFile
from sapwood.runtime.models.load import load_model
from sapwood.runtime.tokenizer import load_tokenizer


def english(path: Path, count: int) -> list[int]:
    from pydoc_data.topics import topics

    tokenizer = load_tokenizer(path)
    ids = tokenizer.encode("\n".join(topics[name] for name in sorted(topics)), bos=True)
    return ids[:count]


CHUNK = 128  # rows at once: the logits of 4,096 rows of a large vocabulary take gigabytes


def ours(path: Path, ids: list[int]) -> Iterator[np.ndarray]:
    """Logits, a chunk of rows at a time."""
    plan = ReferencePlan(load_model(path).decoder, num_slots=len(ids))
    table = np.arange(len(ids), dtype=np.int32)
    for at in range(0, len(ids), CHUNK):
        rows = np.arange(at, min(at + CHUNK, len(ids)), dtype=np.int32)
        batch = Batch(
            np.asarray(ids, np.int32)[rows], rows, rows, np.zeros_like(rows), [table], np.arange(len(rows), dtype=np.int32)
        )  # fmt: skip
        yield plan.run(batch).logits


def theirs(path: Path, ids: list[int]) -> Iterator[np.ndarray]:
    """transformers' own forward pass, float32, with the weights that the GGUF file means; in the same chunks."""
    import torch

    file = GgufFile(path)
    arch = file.metadata["general.architecture"]
    with pytest.MonkeyPatch.context() as patch:  # random weights, only to be replaced, would take most of the time
        for name in ("normal_", "uniform_", "kaiming_uniform_", "trunc_normal_"):
            patch.setattr(torch.nn.init, name, lambda tensor, *args, **named: tensor)
        model = (_llama if arch == "llama" else _gemma)(file)
    with torch.no_grad():
        hidden = model.model(torch.tensor([ids])).last_hidden_state[0]
    for rows in hidden.split(CHUNK):
        yield (rows @ model.lm_head.weight.detach().T).numpy()


def _state(file: GgufFile, names: dict[str, str], layers: int, heads: dict[str, int], plus_one: bool) -> dict[str, Any]:
    import torch

    def tensor(name: str) -> Any:
        values = dequantize(file.weight(name))
        kind = name.split(".")[-2]
        if kind in heads:  # undo the interleaving of rotated pairs
            out, width = values.shape
            values = values.reshape(heads[kind], out // heads[kind] // 2, 2, width).swapaxes(1, 2).reshape(out, width)
        if plus_one and "norm" in name:
            values = values - 1
        return torch.tensor(np.ascontiguousarray(values))

    state = {
        "model.embed_tokens.weight": tensor("token_embd.weight"),
        "model.norm.weight": tensor("output_norm.weight"),
    }
    for i in range(layers):
        for theirs_, ours_ in names.items():
            state[f"model.layers.{i}.{theirs_}.weight"] = tensor(f"blk.{i}.{ours_}.weight")
    state["lm_head.weight"] = state["model.embed_tokens.weight"]
    return state


_NAMES = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
}  # fmt: skip


def _llama(file: GgufFile) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    get = lambda key: file.metadata[f"llama.{key}"]  # noqa: E731
    config = LlamaConfig(
        vocab_size=49152, hidden_size=get("embedding_length"), intermediate_size=get("feed_forward_length"),
        num_hidden_layers=get("block_count"), num_attention_heads=get("attention.head_count"),
        num_key_value_heads=get("attention.head_count_kv"), max_position_embeddings=8192,
        rms_norm_eps=get("attention.layer_norm_rms_epsilon"), rope_theta=get("rope.freq_base"), tie_word_embeddings=True,
    )  # fmt: skip
    config.rope_parameters = {"rope_type": "default", "rope_theta": get("rope.freq_base")}
    model = LlamaForCausalLM(config)
    names = _NAMES | {"post_attention_layernorm": "ffn_norm"}
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    model.load_state_dict(_state(file, names, config.num_hidden_layers, heads, False))
    return model.eval()


def _gemma(file: GgufFile) -> Any:
    from transformers import Gemma3ForCausalLM, Gemma3TextConfig

    get = lambda key: file.metadata[f"gemma3.{key}"]  # noqa: E731
    layers = get("block_count")
    config = Gemma3TextConfig(
        vocab_size=262144, hidden_size=get("embedding_length"), intermediate_size=get("feed_forward_length"),
        num_hidden_layers=layers, num_attention_heads=get("attention.head_count"),
        num_key_value_heads=get("attention.head_count_kv"), head_dim=get("attention.key_length"),
        query_pre_attn_scalar=get("attention.key_length"), max_position_embeddings=32768,
        rms_norm_eps=get("attention.layer_norm_rms_epsilon"), sliding_window=get("attention.sliding_window"),
        layer_types=["full_attention" if (i + 1) % 6 == 0 else "sliding_attention" for i in range(layers)],
        tie_word_embeddings=True,
    )  # fmt: skip
    model = Gemma3ForCausalLM(config)
    names = _NAMES | {
        "post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
        "post_feedforward_layernorm": "post_ffw_norm", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    }  # fmt: skip
    model.load_state_dict(_state(file, names, layers, {}, True))
    return model.eval()


def losses(logits: np.ndarray, following: list[int]) -> float:
    """The negative log likelihoods of the tokens that follow the rows, added up."""
    rows = logits[: len(following)].astype(np.float64)
    top = rows.max(1)
    chosen = rows[np.arange(len(following)), following]
    return float((np.log(np.exp(rows - top[:, None]).sum(1)) + top - chosen).sum())


def compare(path: Path, count: int) -> None:
    ids = english(path, count)
    agreed, difference = 0, 0.0
    for number, (mine, other) in enumerate(zip(ours(path, ids), theirs(path, ids), strict=True)):
        following = ids[number * CHUNK + 1 :][:CHUNK]
        agreed += int((mine.argmax(1) == other.argmax(1)).sum())
        difference += losses(mine, following) - losses(other, following)
    assert len(ids) == count and agreed >= 0.99 * count
    assert abs(np.exp(difference / (count - 1)) - 1) < 0.002


@pytest.mark.parametrize("which", ["smollm2_path", "gemma3_path"])
def test_logits_are_those_of_an_independent_implementation(which: str, request: pytest.FixtureRequest) -> None:
    compare(request.getfixturevalue(which), 200)


@pytest.mark.slow
@pytest.mark.parametrize("which", ["smollm2_path", "gemma3_path"])
def test_perplexity_over_4096_tokens(which: str, request: pytest.FixtureRequest) -> None:
    compare(request.getfixturevalue(which), 4096)


def test_a_truncated_file_is_refused(tmp_path: Path, smollm2_path: Path) -> None:
    file = tmp_path / "half.gguf"
    file.write_bytes(smollm2_path.read_bytes()[: 50 << 20])
    with pytest.raises(ModelError, match="truncated.*Download it again"):
        load_model(file)


def test_unknown_architectures_and_missing_models_say_what_to_do(tmp_path: Path) -> None:
    import struct

    key, value = b"general.architecture", b"mamba"
    header = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", len(key)) + key
    (tmp_path / "m.gguf").write_bytes(header + struct.pack("<IQ", 8, len(value)) + value + b"\0" * 64)
    with pytest.raises(ModelError, match="architecture 'mamba'; supported are llama"):
        load_model(tmp_path / "m.gguf")
    with pytest.raises(ModelError, match="sapwood pull"):
        load_model("no-such-model")
