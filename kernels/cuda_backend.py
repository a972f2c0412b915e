"""The GPU backend: a decoder as a sequence of Triton kernels over buffers on the card.

Steps of few rows (decode, verification) are CUDA graphs by bucket of rows (`cuda_graphs.py`); larger ones are launched
one by one. The residual stream is float32, activations between kernels are `dtype`. Without a card the same code runs on
CPU tensors in Triton's interpreter, which is how it is tested.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from sapwood.errors import InvalidRequest
from sapwood.kernels.cuda_graphs import GraphBuckets, Recorder, cuda_recorder
from sapwood.kernels.cuda_inputs import Inputs, Room, fields_of, inputs_in, largest_shapes, send
from sapwood.kernels.cuda_weights import load_matrix, load_vector, rows_of, stack
from sapwood.kernels.decoder import Decoder, Layer, Weight
from sapwood.kernels.flashinfer_attention import FlashInferAttention, is_available
from sapwood.kernels.plan import Batch, Output
from sapwood.kernels.sampling import Sampled, SampleRow
from sapwood.kernels.triton.attention import attention
from sapwood.kernels.triton.attention_plan import SPLIT
from sapwood.kernels.triton.cache import Cache, CacheKind, make_cache
from sapwood.kernels.triton.linear import linear
from sapwood.kernels.triton.rows import add_rms_norm, gated, rope_store
from sapwood.kernels.triton.sampling import sample
from sapwood.kernels.triton.weights import GpuMatrix

Tensor = torch.Tensor

AttentionName = Literal["auto", "triton", "flashinfer"]
FLOAT8_SINCE = (8, 9)  # compute capability
GRAPH_POSITIONS = 16 * SPLIT  # the longest context that a recorded step can see; longer ones are launched one by one


class CudaLayer:
    """A layer's weights on the device, and its keys and values."""

    def __init__(self, layer: Layer, decoder: Decoder, cache: Cache, device: str) -> None:
        def vector(weight: Weight | None) -> Tensor | None:
            return None if weight is None else load_vector(weight, device)

        def matrices(*weights: Weight) -> list[GpuMatrix]:
            return stack([load_matrix(weight, device) for weight in weights])

        self.spec = layer
        self.qkv, self.wo = matrices(layer.wq, layer.wk, layer.wv), matrices(layer.wo)
        self.gate_up, self.down = matrices(layer.gate, layer.up), matrices(layer.down)
        biases = [vector(b) for b in (layer.bq, layer.bk, layer.bv)]
        self.bias = torch.cat([b for b in biases if b is not None]) if layer.bq is not None else None
        self.attn_norm, self.ffn_norm = load_vector(layer.attn_norm, device), load_vector(layer.ffn_norm, device)
        self.q_norm, self.k_norm = vector(layer.q_norm), vector(layer.k_norm)
        self.post_attn_norm, self.post_ffn_norm = vector(layer.post_attn_norm), vector(layer.post_ffn_norm)
        self.inv_freq = torch.from_numpy(layer.rope.inv_freq).to(device)
        self.cache = cache


class CudaKV:
    """Implements `KVMemory`."""

    def __init__(self, caches: list[Cache]) -> None:
        self.num_slots, kv_heads, dim = caches[0].keys.shape
        self._bytes = [part.view(self.num_slots, -1).view(torch.uint8) for cache in caches for part in cache.parts]
        self._sizes = [part.shape[1] for part in self._bytes]  # bytes of a slot
        self.bytes_per_slot = sum(self._sizes)
        name = str(caches[0].keys.dtype).removeprefix("torch.")
        self.layout = f"cuda-{name}-{len(caches)}x2x{kv_heads}x{dim}"

    def read(self, slots: NDArray[np.int32]) -> NDArray[np.uint8]:
        at = torch.from_numpy(slots).long().to(self._bytes[0].device)
        return torch.cat([part[at] for part in self._bytes], dim=1).cpu().numpy()

    def write(self, slots: NDArray[np.int32], records: NDArray[np.uint8]) -> None:
        device = self._bytes[0].device
        at = torch.from_numpy(slots).long().to(device)
        received = torch.split(torch.from_numpy(np.ascontiguousarray(records)).to(device), self._sizes, dim=1)
        for part, columns in zip(self._bytes, received, strict=True):
            part[at] = columns


class CudaOutput(Output):
    """Logits that stay on the card, and are sampled there, until someone looks at them."""

    def __init__(self, logits: Tensor, hidden: Tensor | None = None, features: Tensor | None = None) -> None:
        self._on_device = logits
        self.hidden = None if hidden is None else hidden.float().cpu().numpy()
        self.features = None if features is None else features.cpu().numpy()

    @property
    def logits(self) -> NDArray[np.float32]:  # type: ignore[override]  # nobody writes them
        """Brought over when asked for; valid until the next run."""
        logits: NDArray[np.float32] = self._on_device.cpu().numpy()
        return logits

    @torch.inference_mode()
    def choose(self, outs: Sequence[int], rows: Sequence[SampleRow]) -> list[Sampled]:
        logits = self._on_device
        if list(outs) != list(range(len(logits))):
            logits = logits[torch.tensor(outs, device=logits.device)]
        return sample(logits, rows)


class GraphStep:
    """One bucket: inputs and logits that stay where they are, so that what was recorded can be replayed."""

    def __init__(self, plan: CudaPlan, rows: int) -> None:
        self._plan = plan
        self._room = Room(largest_shapes(rows, GRAPH_POSITIONS, plan.windows), plan.device)
        self._num_splits = GRAPH_POSITIONS // SPLIT
        self._inputs = inputs_in(self._room, plan.windows, self._num_splits)
        self.logits = torch.empty(rows, plan.vocab_size, dtype=torch.float32, device=plan.device)

    def fill(self, batch: Batch) -> bool:
        """Take over a batch's inputs. False: its contexts are too long for what was recorded."""
        fields, num_splits = fields_of(batch, self._plan.windows)
        return num_splits <= self._num_splits and self._room.fill(fields)

    def launch(self) -> None:
        """What is recorded."""
        hidden, _ = self._plan.forward(self._inputs)
        self.logits.copy_(self._plan.to_logits(hidden))


def _with_flashinfer(attention: AttentionName, device: str, *, ours_only: bool) -> bool:
    """`ours_only`: the plan is invariant or its keys and values are quantized, which only our own kernels know."""
    if attention == "flashinfer" and ours_only:
        raise InvalidRequest("FlashInfer attends neither invariantly nor to quantized keys; use attention 'triton'")
    return attention == "flashinfer" or (attention == "auto" and device == "cuda" and is_available() and not ours_only)


class CudaPlan:
    """Implements `Plan`. `invariant`: a row's bits don't depend on the batch (fixed tiles everywhere, slower). `recorder`:
    what records graphs; by default CUDA's on a card, and none elsewhere. `attention` of batches that aren't recorded:
    "auto" takes FlashInfer where it is installed and can. `kv`: how keys and values are kept; "same" is in `dtype`."""

    def __init__(
        self,
        decoder: Decoder,
        *,
        num_slots: int,
        max_rows: int = 512,
        captures: tuple[int, ...] = (),
        device: str = "cuda",
        dtype: torch.dtype = torch.bfloat16,
        invariant: bool = False,
        recorder: Recorder | None = None,
        attention: AttentionName = "auto",
        kv: CacheKind = "same",
    ) -> None:
        if device == "cuda" and not torch.cuda.is_available():
            raise InvalidRequest("no CUDA device is available; use --backend cpu")
        if device == "cuda" and kv == "fp8" and torch.cuda.get_device_capability() < FLOAT8_SINCE:
            raise InvalidRequest("this card has no float8 arithmetic; keep keys and values as int8")
        self.max_rows = max_rows
        self.device, self.vocab_size = device, decoder.vocab_size
        self.windows = list(dict.fromkeys(layer.window for layer in decoder.layers))
        self._decoder, self._dtype = decoder, dtype
        self._captures, self._invariant = captures, invariant
        self._embed = load_matrix(decoder.embed, device)
        self._head = self._embed if decoder.head is decoder.embed else load_matrix(decoder.head, device)
        self._final_norm = load_vector(decoder.final_norm, device)
        caches = [
            make_cache(num_slots, decoder.num_kv_heads, decoder.head_dim, dtype, device, kv) for _ in decoder.layers
        ]
        self._layers = [CudaLayer(layer, decoder, c, device) for layer, c in zip(decoder.layers, caches, strict=True)]
        self.kv = CudaKV(caches)
        matrices = [m for layer in self._layers for m in (*layer.qkv, *layer.wo, *layer.gate_up, *layer.down)]
        matrices.append(self._head)
        self.weight_bytes = sum(m.nbytes for m in matrices)  # that one step reads
        largest = max(m.out_features * m.in_features for m in matrices)
        self._scratch = None if invariant else torch.empty(largest, dtype=dtype, device=device)
        if recorder is None and device == "cuda":
            recorder = cuda_recorder
        with_flashinfer = _with_flashinfer(attention, device, ours_only=invariant or kv != "same")
        self._flashinfer = FlashInferAttention(decoder, device, dtype) if with_flashinfer else None
        self._steps: dict[int, GraphStep] = {}
        self._graphs = None if recorder is None or captures else GraphBuckets(self._step_launch, recorder)

    @torch.inference_mode()
    def run(self, batch: Batch) -> Output:
        size = None if self._graphs is None or batch.want_hidden else self._graphs.bucket(len(batch.ids))
        if size is not None and self._graphs is not None and self._step(size).fill(batch):
            self._graphs.replay(size)
            return CudaOutput(self._steps[size].logits[: len(batch.logit_rows)])
        with_flashinfer = self._flashinfer is not None and not batch.drafts
        if self._flashinfer is not None and with_flashinfer:
            self._flashinfer.plan(batch)
        inputs = send(batch, [] if with_flashinfer else self.windows, self.device)
        hidden, features = self.forward(inputs)
        return CudaOutput(self.to_logits(hidden), hidden if batch.want_hidden else None, features)

    def close(self) -> None:
        """Device memory goes with the last reference."""

    def _step(self, rows: int) -> GraphStep:
        if rows not in self._steps:
            self._steps[rows] = GraphStep(self, rows)
        return self._steps[rows]

    def _step_launch(self, rows: int) -> Callable[[], None]:
        return self._step(rows).launch

    def forward(self, inputs: Inputs) -> tuple[Tensor, Tensor | None]:
        """The normed hidden state of the rows that want logits, and what is captured."""
        decoder = self._decoder
        x = rows_of(self._embed, inputs.ids.long()) * decoder.embed_scale
        delta: Tensor | None = None
        delta_norm: Tensor | None = None
        captured = []
        for index, layer in enumerate(self._layers):
            h = self._norm(x, layer.attn_norm, delta, delta_norm)
            if index in self._captures:
                captured.append(x.clone())
            delta, delta_norm = self._attention(layer, h, inputs), layer.post_attn_norm
            h = self._norm(x, layer.ffn_norm, delta, delta_norm)
            act = gated(self._linear(h, layer.gate_up), decoder.activation, self._dtype)
            delta, delta_norm = self._linear(act, layer.down), layer.post_ffn_norm
        hidden = self._norm(x, self._final_norm, delta, delta_norm)
        return hidden[inputs.out_rows.long()], torch.cat(captured, dim=1) if captured else None

    def _norm(self, x: Tensor, weight: Tensor, delta: Tensor | None, delta_norm: Tensor | None) -> Tensor:
        """Add what the last sublayer gave to the residual stream x, and norm it for the next."""
        return add_rms_norm(x, weight, self._decoder.norm_eps, delta=delta, delta_norm=delta_norm, dtype=self._dtype)

    def _attention(self, layer: CudaLayer, h: Tensor, inputs: Inputs) -> Tensor:
        decoder, rope = self._decoder, layer.spec.rope
        qkv = self._linear(h, layer.qkv)
        if layer.bias is not None:
            qkv = qkv + layer.bias
        q = rope_store(
            qkv, layer.inv_freq, inputs.positions, inputs.slots, layer.cache, num_heads=decoder.num_heads,
            interleaved=rope.interleaved, magnitude=rope.magnitude, q_norm=layer.q_norm, k_norm=layer.k_norm,
            eps=decoder.norm_eps,
        )  # fmt: skip
        window = layer.spec.window
        if self._flashinfer is not None and not inputs.work:
            mixed = self._flashinfer.run(q, layer.cache.keys, layer.cache.values, window)
        else:
            mixed = attention(
                q,
                layer.cache,
                inputs.work[window],
                scale=decoder.attn_scale,
                softcap=decoder.attn_softcap,
                invariant=self._invariant,
            )
        return self._linear(mixed.flatten(1), layer.wo)

    def _linear(self, x: Tensor, matrices: list[GpuMatrix]) -> Tensor:
        parts = [linear(x.contiguous(), m, scratch=self._scratch, invariant=self._invariant) for m in matrices]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)

    def to_logits(self, hidden: Tensor) -> Tensor:
        """float32 [rows, vocab] from normed hidden states."""
        logits = self._linear(hidden, [self._head])
        cap = self._decoder.logit_softcap
        return logits if cap is None else cap * torch.tanh(logits / cap)
