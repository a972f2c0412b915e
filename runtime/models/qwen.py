"""Qwen2 (biases on q, k and v), Qwen3 (norms on q and k) and Phi-3 (fused matrices): Llama with halves that rotate."""

from __future__ import annotations

from sapwood.kernels.decoder import Decoder
from sapwood.runtime.models.checkpoint import Checkpoint
from sapwood.runtime.models.transformer import Family, Sizes, build, rope_from


def qwen(checkpoint: Checkpoint, sizes: Sizes) -> Decoder:
    rope = rope_from(checkpoint, sizes, interleaved=False)
    window = checkpoint.get(f"{sizes.architecture}.attention.sliding_window", 0) or None
    return build(checkpoint, sizes, Family(rope=lambda layer: rope, window=lambda layer: window))
