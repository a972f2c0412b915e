"""A model of a real one's shape with random weights: what a step costs doesn't depend on what the weights say."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sapwood.kernels.decoder import Decoder, Format, Layer, Rope, Weight
from sapwood.kernels.formats import row_bytes


@dataclass(frozen=True, slots=True)
class Shape:
    hidden: int
    ffn: int
    layers: int
    heads: int
    kv_heads: int
    dim: int
    vocab: int


LLAMA_3_8B = Shape(4096, 14336, 32, 32, 8, 128, 128256)


def _encoded(fmt: Format, out: int, width: int, rng: np.random.Generator) -> Weight:
    """Random codes under a scale that keeps activations near 1; many rows are alike, which no kernel notices."""
    rows = min(out, 512)
    if fmt is Format.BF16:
        values = (rng.standard_normal((rows, width)) / np.sqrt(width)).astype(np.float32)
        data = (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    else:
        data = rng.integers(0, 256, (rows, row_bytes(fmt, width)), dtype=np.uint8)
        largest = {Format.Q4_0: 8, Format.Q8_0: 128}[fmt]
        scale = np.array([1.7 / largest / np.sqrt(width)], np.float16).view(np.uint8)
        data.reshape(rows, width // 32, -1)[:, :, :2] = scale  # both formats' blocks begin with it
    return Weight("random", fmt, (out, width), np.tile(data, (-(-out // rows), 1))[:out])


def _ones(size: int) -> Weight:
    return Weight("ones", Format.F32, (size,), np.ones(size, np.float32).view(np.uint8).reshape(1, -1))


def random_decoder(shape: Shape, fmt: Format) -> Decoder:
    """A Llama of this shape with its matrices in `fmt`: Q4_0, Q8_0 or BF16. All layers have the same weights."""
    rng = np.random.default_rng(0)
    kv_size, size = shape.kv_heads * shape.dim, shape.heads * shape.dim
    inv_freq = (500_000.0 ** (-np.arange(0, shape.dim, 2) / shape.dim)).astype(np.float32)
    layer = Layer(
        attn_norm=_ones(shape.hidden),
        wq=_encoded(fmt, size, shape.hidden, rng),
        wk=_encoded(fmt, kv_size, shape.hidden, rng),
        wv=_encoded(fmt, kv_size, shape.hidden, rng),
        wo=_encoded(fmt, shape.hidden, size, rng),
        ffn_norm=_ones(shape.hidden),
        gate=_encoded(fmt, shape.ffn, shape.hidden, rng),
        up=_encoded(fmt, shape.ffn, shape.hidden, rng),
        down=_encoded(fmt, shape.hidden, shape.ffn, rng),
        rope=Rope(inv_freq, interleaved=False),
    )
    return Decoder(
        num_heads=shape.heads,
        num_kv_heads=shape.kv_heads,
        head_dim=shape.dim,
        hidden_size=shape.hidden,
        vocab_size=shape.vocab,
        norm_eps=1e-5,
        activation="silu",
        attn_scale=shape.dim**-0.5,
        embed=_encoded(fmt, shape.vocab, shape.hidden, rng),
        layers=(layer,) * shape.layers,
        final_norm=_ones(shape.hidden),
        head=_encoded(fmt, shape.vocab, shape.hidden, rng),
    )
