"""The CPU backend: a decoder handed over to the native plan (`kernels/cpu/plan.h`) once, then one call a batch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sapwood.errors import ModelError
from sapwood.kernels import _cpu
from sapwood.kernels.cpu_packed import MATRICES, matrices_of, packed_size
from sapwood.kernels.decoder import Decoder, Layer, Rope, Weight
from sapwood.kernels.formats import dequantize
from sapwood.kernels.plan import Batch, Output

_VECTORS = ("attn_norm", "ffn_norm", "post_attn_norm", "post_ffn_norm", "q_norm", "k_norm", "bq", "bk", "bv")


class CpuKV:
    """Implements `KVMemory`: float16 keys and values of all layers, one record a slot."""

    def __init__(self, plan: _cpu.Plan, num_slots: int, layout: str) -> None:
        self._plan = plan
        self.num_slots = num_slots
        self.bytes_per_slot: int = plan.record_bytes
        self.layout = layout

    def read(self, slots: NDArray[np.int32]) -> NDArray[np.uint8]:
        records = np.empty((len(slots), self.bytes_per_slot), np.uint8)
        self._plan.read(np.ascontiguousarray(slots), records)
        return records

    def write(self, slots: NDArray[np.int32], records: NDArray[np.uint8]) -> None:
        self._plan.write(np.ascontiguousarray(slots), np.ascontiguousarray(records))


class CpuPlan:
    """Implements `Plan`. `threads`: None for one on each core that this process may use. `packed`: the decoder's matrices
    packed ahead of time (`cpu_packed.py`), which the plan reads where they are."""

    def __init__(
        self,
        decoder: Decoder,
        *,
        num_slots: int,
        max_rows: int = 512,
        threads: int | None = None,
        captures: tuple[int, ...] = (),
        packed: NDArray[np.uint8] | None = None,
    ) -> None:
        self.max_rows = max_rows
        self._hidden_size = decoder.hidden_size
        self._vocab_size = decoder.vocab_size
        self._captures = captures
        source = _source(decoder if packed is None else _without_rows(decoder))
        self.native = self._plan = _cpu.Plan(source, num_slots, max_rows, threads or 0, list(captures))
        if packed is not None:
            if len(packed) != packed_size(decoder):
                raise ModelError("the packed weights are not this model's; build them again with `sapwood build`")
            _cpu.adopt(self._plan, packed, [(w.format.value, w.shape[0], w.shape[1]) for w in matrices_of(decoder)])
        self._mapped_bytes = 0 if packed is None else len(packed)
        shape = f"{len(decoder.layers)}x2x{decoder.num_kv_heads}x{decoder.head_dim}"
        self.kv = CpuKV(self._plan, num_slots, f"cpu-f16-{shape}")
        self._logits = np.empty((1, self._vocab_size), np.float32)

    @property
    def threads(self) -> int:
        threads: int = self._plan.threads
        return threads

    @property
    def weight_bytes(self) -> int:
        """Memory that the packed weights take."""
        return self._plan.weight_bytes + self._mapped_bytes

    def run(self, batch: Batch) -> Output:
        num_out = len(batch.logit_rows)
        if num_out > len(self._logits):
            self._logits = np.empty((num_out, self._vocab_size), np.float32)
        hidden = np.empty((num_out, self._hidden_size), np.float32) if batch.want_hidden else None
        width = len(self._captures) * self._hidden_size
        features = np.empty((len(batch.ids), width), np.float32) if self._captures else None
        drafts = [(sequence, tail.start, tail.ancestors) for sequence, tail in batch.drafts.items()]
        self._plan.run(
            batch.ids, batch.positions, batch.slots, batch.sequences, list(batch.tables), batch.logit_rows, drafts,
            self._logits, hidden, features,
        )  # fmt: skip
        return Output(self._logits[:num_out], hidden, features)

    def close(self) -> None:
        """The native plan goes with the last reference."""


def matrix_source(weight: Weight) -> _cpu.EncodedMatrix:
    return _cpu.EncodedMatrix(weight.format.value, np.ascontiguousarray(weight.data), weight.shape[1])


def vector_source(weight: Weight | None) -> list[float]:
    return [] if weight is None else dequantize(weight).reshape(-1).tolist()


def _without_rows(decoder: Decoder) -> Decoder:
    """The same form with no weights in its matrices: nothing of them is read, and nothing packed."""
    bare: dict[int, Weight] = {id(w): replace(w, data=w.data[:0]) for w in matrices_of(decoder)}

    def bare_layer(layer: Layer) -> Layer:
        changes: dict[str, Any] = {name: bare[id(getattr(layer, name))] for name in MATRICES}
        return replace(layer, **changes)

    layers = tuple(bare_layer(layer) for layer in decoder.layers)
    return replace(decoder, embed=bare[id(decoder.embed)], head=bare[id(decoder.head)], layers=layers)


def _layer(layer: Layer, rope: int) -> _cpu.LayerSource:
    source = _cpu.LayerSource()
    for name in MATRICES:
        setattr(source, name, matrix_source(getattr(layer, name)))
    for name in _VECTORS:
        setattr(source, name, vector_source(getattr(layer, name)))
    source.window = layer.window or 0
    source.rope = rope
    return source


def rope_source(rope: Rope) -> _cpu.RopeSource:
    source = _cpu.RopeSource()
    source.inv_freq, source.interleaved, source.magnitude = rope.inv_freq.tolist(), rope.interleaved, rope.magnitude
    return source


def _source(decoder: Decoder) -> _cpu.DecoderSource:
    ropes = {id(layer.rope): layer.rope for layer in decoder.layers}
    order = {key: index for index, key in enumerate(ropes)}
    source = _cpu.DecoderSource()
    for name in (
        "num_heads",
        "num_kv_heads",
        "head_dim",
        "hidden_size",
        "vocab_size",
        "norm_eps",
        "attn_scale",
        "embed_scale",
    ):
        setattr(source, name, getattr(decoder, name))
    source.attn_softcap = decoder.attn_softcap or 0.0
    source.logit_softcap = decoder.logit_softcap or 0.0
    source.gelu = decoder.activation == "gelu_tanh"
    source.embed = matrix_source(decoder.embed)
    source.head = None if decoder.head is decoder.embed else matrix_source(decoder.head)
    source.final_norm = vector_source(decoder.final_norm)
    source.ropes = [rope_source(rope) for rope in ropes.values()]
    source.layers = [_layer(layer, order[id(layer.rope)]) for layer in decoder.layers]
    return source
