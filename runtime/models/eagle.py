"""EAGLE heads from folders in the public layouts: config.json beside model.safetensors or pytorch_model.bin.

What is read, as the official code, SGLang and vLLM do:

    version 1, 2   fc (with bias), layers.0.*; the target's embedding and output matrix are shared
    version 3      fc, midlayer.* or layers.0.*, hidden_norm and input_layernorm, norm, lm_head, d2t
                   d2t[i] is the target's id of draft id i, less i

Weights may be int8 with one scale a row (`X.weight` I8, `X.weight_scale`): so is the head that comes with Sapwood.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sapwood.errors import ModelError
from sapwood.kernels.decoder import Decoder, Format, Weight
from sapwood.kernels.eagle import EagleHead
from sapwood.kernels.formats import dequantize
from sapwood.runtime.models.checkpoint import Checkpoint, number
from sapwood.runtime.models.folder import read_json, rope_keys
from sapwood.runtime.models.rope import rope_from
from sapwood.runtime.models.safetensors import read_raw
from sapwood.runtime.models.sizes import Sizes

HEADS = Path(__file__).parent.parent / "speculative" / "heads"
_VALUE_BYTES = {"F32": 4, "F16": 2, "BF16": 2, "I8": 1, "I32": 4, "I64": 8, "BOOL": 1}
_LAYERS = ("midlayer.", "layers.0.", "model.midlayer.", "model.layers.0.")
_PARTS = {
    "wq": "self_attn.q_proj",
    "wk": "self_attn.k_proj",
    "wv": "self_attn.v_proj",
    "wo": "self_attn.o_proj",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
    "post_norm": "post_attention_layernorm",
}
_GROUP = 32  # inputs of a Q8_0 block


class _Config(dict[str, Any]):
    """Implements `Checkpoint` for the keys of a head's config."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = config = read_json(path / "config.json")
        keys = {
            "block_count": config.get("num_hidden_layers", 1),
            "embedding_length": config.get("hidden_size"),
            "attention.head_count": config.get("num_attention_heads"),
            "attention.head_count_kv": config.get("num_key_value_heads", config.get("num_attention_heads")),
            "attention.key_length": config.get("head_dim"),
            "context_length": config.get("max_position_embeddings"),
            "attention.layer_norm_rms_epsilon": config.get("rms_norm_eps"),
        } | rope_keys(config)
        super().__init__({f"eagle.{key}": value for key, value in keys.items() if value is not None})
        self["general.architecture"] = "eagle"

    @property
    def metadata(self) -> dict[str, Any]:
        return self

    @property
    def tensors(self) -> tuple[str, ...]:
        return ()

    def get(self, key: str, default: Any = None) -> Any:
        value = super().get(key, default)
        if value is None:
            raise ModelError(f"{self.path}/config.json doesn't say what '{key}' needs; it is no complete EAGLE head")
        return value

    def weight(self, name: str) -> Weight:
        raise ModelError(f"{self.path} keeps '{name}' as a tensor, which isn't supported")


class _Tensors:
    """A head's tensors by name."""

    def __init__(self, path: Path) -> None:
        self._path = path
        files = sorted(path.glob("*.safetensors"))
        self._raw: dict[str, tuple[str, tuple[int, ...], NDArray[np.uint8]]] = {}
        for file in files:
            self._raw |= read_raw(file, _VALUE_BYTES)
        if not files and (path / "pytorch_model.bin").exists():
            self._raw = _read_torch(path / "pytorch_model.bin")
        if not self._raw:
            raise ModelError(f"{path} holds no EAGLE head: neither model.safetensors nor pytorch_model.bin is there")
        self.layer = next((p for p in _LAYERS if f"{p}mlp.down_proj.weight" in self._raw), _LAYERS[0])

    def __contains__(self, name: str) -> bool:
        return name in self._raw

    def shape(self, name: str) -> tuple[int, ...]:
        return self._entry(name)[1]

    def integers(self, name: str) -> NDArray[np.int64]:
        dtype, _, data = self._entry(name)
        if dtype not in ("I32", "I64"):
            raise ModelError(f"{self._path}: tensor '{name}' is {dtype}, where integers are needed")
        return data.view(np.int32 if dtype == "I32" else np.int64).astype(np.int64)

    def weight(self, name: str, *shape: int) -> Weight:
        """A tensor that must have this shape."""
        dtype, found, data = self._entry(name)
        if found != shape:
            raise ModelError(
                f"{self._path}: tensor '{name}' has shape {found}, not {shape}; is it a head for this model?"
            )
        rows = int(np.prod(shape[:-1])) if len(shape) > 1 else 1
        if dtype == "I8":
            return Weight(name, Format.Q8_0, shape, self._blocks(name, data.view(np.int8).reshape(rows, -1)))
        if dtype not in ("F32", "F16", "BF16"):
            raise ModelError(f"{self._path}: tensor '{name}' is {dtype}; supported are F32, F16, BF16 and I8")
        return Weight(name, Format[dtype], shape, data.reshape(rows, -1))

    def _blocks(self, name: str, values: NDArray[np.int8]) -> NDArray[np.uint8]:
        """int8 rows and their scales as Q8_0's blocks: a float16 scale and 32 values each."""
        rows, size = values.shape
        scale_name = name + "_scale"
        if size % _GROUP or self.shape(scale_name) not in ((rows,), (rows, 1)):
            raise ModelError(
                f"{self._path}: int8 tensor '{name}' needs one scale a row and a multiple of {_GROUP} inputs"
            )
        dtype, _, data = self._entry(scale_name)
        if dtype not in ("F16", "F32"):
            raise ModelError(f"{self._path}: tensor '{scale_name}' is {dtype}; supported are F16 and F32")
        scales = data.view(np.float16 if dtype == "F16" else np.float32).astype("<f2").reshape(rows, 1, 1)
        blocks = np.empty((rows, size // _GROUP, 2 + _GROUP), np.uint8)
        blocks[:, :, :2] = np.broadcast_to(scales, (rows, size // _GROUP, 1)).copy().view(np.uint8)
        blocks[:, :, 2:] = values.reshape(rows, -1, _GROUP).view(np.uint8)
        return blocks.reshape(rows, -1)

    def _entry(self, name: str) -> tuple[str, tuple[int, ...], NDArray[np.uint8]]:
        if name not in self._raw:
            raise ModelError(f"{self._path} has no tensor '{name}'; it is no EAGLE head in a layout that is known")
        return self._raw[name]


def identity(target: Decoder) -> str:
    """Tells trained models apart by their norms, which are the same however the matrices are quantized."""
    digest = hashlib.sha256()
    for layer in target.layers:
        digest.update(dequantize(layer.attn_norm).tobytes() + dequantize(layer.ffn_norm).tobytes())
    return digest.hexdigest()[:32]


def packaged_head(target: Decoder) -> Path | None:
    """The folder of the head that comes with Sapwood for this model, if there is one."""
    wanted = identity(target)
    for config in sorted(HEADS.glob("*/config.json")):
        if read_json(config).get("target_identity") == wanted:
            return config.parent
    return None


def load_eagle(path: Path, target: Decoder) -> EagleHead:
    """The head in a folder, for this target. ModelError says what is wrong with it, or why it doesn't fit."""
    if not path.is_dir():
        raise ModelError(f"there is no folder {path}; an EAGLE head is a folder with config.json and model.safetensors")
    config = _Config(path)
    sizes, tensors = Sizes.of(config), _Tensors(path)
    if sizes.hidden_size != target.hidden_size:
        raise ModelError(
            f"{path} is a head for models of width {sizes.hidden_size}; this one's is {target.hidden_size}"
        )
    is_first = tensors.shape("fc.weight") == (sizes.hidden_size, 2 * sizes.hidden_size)
    return _first(config, sizes, tensors, target) if is_first else _third(config, sizes, tensors, target)


def _common(config: Checkpoint, sizes: Sizes, tensors: _Tensors, qkv_inputs: int) -> dict[str, Any]:
    """What both versions have. `qkv_inputs`: channels that queries, keys and values are made from."""
    hidden, dim = sizes.hidden_size, sizes.head_dim
    ffn = tensors.shape(f"{tensors.layer}{_PARTS['gate']}.weight")[0]
    shapes: dict[str, tuple[int, ...]] = {
        "wq": (sizes.num_heads * dim, qkv_inputs),
        "wk": (sizes.num_kv_heads * dim, qkv_inputs),
        "wv": (sizes.num_kv_heads * dim, qkv_inputs),
        "wo": (hidden, sizes.num_heads * dim),
        "gate": (ffn, hidden),
        "up": (ffn, hidden),
        "down": (hidden, ffn),
        "post_norm": (hidden,),
    }
    weights = {part: tensors.weight(f"{tensors.layer}{_PARTS[part]}.weight", *shape) for part, shape in shapes.items()}
    return weights | {
        "num_heads": sizes.num_heads,
        "num_kv_heads": sizes.num_kv_heads,
        "head_dim": dim,
        "norm_eps": number(config, "eagle.attention.layer_norm_rms_epsilon"),
        "rope": rope_from(config, sizes, interleaved=False),
    }


def _first(config: _Config, sizes: Sizes, tensors: _Tensors, target: Decoder) -> EagleHead:
    hidden = sizes.hidden_size
    return EagleHead(
        version=1,
        captures=(len(target.layers),),
        fc=tensors.weight("fc.weight", hidden, 2 * hidden),
        fc_bias=tensors.weight("fc.bias", hidden) if "fc.bias" in tensors else None,
        head=target.head,
        vocab=np.arange(target.vocab_size, dtype=np.int32),
        target_norm=target.final_norm,
        **_common(config, sizes, tensors, hidden),
    )


def _third(config: _Config, sizes: Sizes, tensors: _Tensors, target: Decoder) -> EagleHead:
    hidden, num_layers = sizes.hidden_size, len(target.layers)
    settings = config.config.get("eagle_config") or {}
    unsupported = [name for name in ("norm_before_fc", "norm_output") if settings.get(name, config.config.get(name))]
    if unsupported:
        raise ModelError(f"{config.path}: heads with {unsupported[0]} aren't supported yet")
    entered = settings.get("eagle_aux_hidden_state_layer_ids")
    captures = (2, num_layers // 2, num_layers - 3) if entered is None else tuple(int(i) + 1 for i in entered)
    if not captures or any(not 0 <= layer <= num_layers for layer in captures):
        raise ModelError(f"{config.path} takes features of layers {captures}; this model has {num_layers}")
    head, vocab = target.head, np.arange(target.vocab_size, dtype=np.int32)
    if "lm_head.weight" in tensors:
        size = tensors.shape("lm_head.weight")[0]
        head = tensors.weight("lm_head.weight", size, hidden)
        vocab = _vocab(config, tensors, size, target.vocab_size)
    return EagleHead(
        version=3,
        captures=captures,
        fc=tensors.weight("fc.weight", hidden, len(captures) * hidden),
        head=head,
        vocab=vocab,
        input_norm=tensors.weight(f"{tensors.layer}input_layernorm.weight", hidden),
        hidden_norm=tensors.weight(f"{tensors.layer}hidden_norm.weight", hidden),
        final_norm=tensors.weight("norm.weight", hidden),
        norm_before_residual=bool(config.config.get("norm_before_residual", False)),
        **_common(config, sizes, tensors, 2 * hidden),
    )


def _vocab(config: _Config, tensors: _Tensors, size: int, target_size: int) -> NDArray[np.int32]:
    """The target's id of each draft id."""
    if "d2t" not in tensors:
        if size != target_size:
            raise ModelError(f"{config.path}: 'lm_head.weight' has {size} rows and no 'd2t' says what they stand for")
        return np.arange(size, dtype=np.int32)
    ids = np.arange(size) + tensors.integers("d2t") if tensors.shape("d2t") == (size,) else np.array([-1])
    if len(ids) != size or ids.min() < 0 or ids.max() >= target_size:
        raise ModelError(f"{config.path}: 'd2t' doesn't map {size} draft ids to this model's {target_size} ids")
    return ids.astype(np.int32)


def _read_torch(path: Path) -> dict[str, tuple[str, tuple[int, ...], NDArray[np.uint8]]]:
    """A pickled checkpoint; only plain tensors are let in."""
    import torch

    try:
        tensors = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        return {
            name: ("F32", tuple(tensor.shape), tensor.float().contiguous().numpy().view(np.uint8).reshape(-1))
            if tensor.is_floating_point()
            else ("I64", tuple(tensor.shape), tensor.long().contiguous().numpy().view(np.uint8).reshape(-1))
            for name, tensor in tensors.items()
        }
    except Exception as error:
        raise ModelError(f"{path} can't be read as a checkpoint of tensors: {error}") from error
