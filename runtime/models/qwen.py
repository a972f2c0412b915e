"""Qwen2 (biases on q, k and v), Qwen3 (norms on q and k) and Phi-3 (fused matrices): Llama with halves that rotate."""

from __future__ import annotations

from sapwood.kernels.decoder import Decoder
from sapwood.runtime.models.checkpoint import Checkpoint
from sapwood.runtime.models.rope import rope_from
from sapwood.runtime.models.sizes import Sizes
from sapwood.runtime.models.transformer import Family, build, same_window


def qwen(checkpoint: Checkpoint, sizes: Sizes) -> Decoder:
    rope = rope_from(checkpoint, sizes, interleaved=False)
    return build(checkpoint, sizes, Family(rope=lambda layer: rope, window=same_window(checkpoint, sizes)))
