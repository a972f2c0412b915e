"""Gemma 3: five layers with a sliding window and a short rotary base, then one that sees everything; four norms a layer."""

from __future__ import annotations

import math

from sapwood.kernels.decoder import Decoder
from sapwood.runtime.models.checkpoint import Checkpoint, integer, number
from sapwood.runtime.models.rope import rope_from
from sapwood.runtime.models.sizes import Sizes
from sapwood.runtime.models.transformer import Family, build

LOCAL_BASE = 10_000.0
LAYERS_OF_27B = 62  # the one size whose queries are scaled by width / heads instead of the head's size


def gemma3(checkpoint: Checkpoint, sizes: Sizes) -> Decoder:
    window = integer(checkpoint, "gemma3.attention.sliding_window")
    period = integer(checkpoint, "gemma3.attention.sliding_window_pattern", 6)
    local_base = number(checkpoint, "gemma3.rope.freq_base_swa", LOCAL_BASE)
    everywhere = rope_from(checkpoint, sizes, interleaved=False)
    nearby = rope_from(checkpoint, sizes, interleaved=False, base=local_base)

    def is_global(layer: int) -> bool:
        return (layer + 1) % period == 0

    family = Family(
        rope=lambda layer: everywhere if is_global(layer) else nearby,
        window=lambda layer: None if is_global(layer) else window,
        activation="gelu_tanh",
        embed_scale=math.sqrt(sizes.hidden_size),
        attn_scale=(sizes.hidden_size / sizes.num_heads) ** -0.5 if sizes.num_layers == LAYERS_OF_27B else None,
    )
    return build(checkpoint, sizes, family)
