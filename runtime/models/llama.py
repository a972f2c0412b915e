"""Llama and what shares its form: SmolLM2, Mistral, TinyLlama. GGUF stores q and k rows for interleaved rotation."""

from __future__ import annotations

from sapwood.kernels.decoder import Decoder
from sapwood.runtime.models.checkpoint import Checkpoint
from sapwood.runtime.models.rope import rope_from
from sapwood.runtime.models.sizes import Sizes
from sapwood.runtime.models.transformer import Family, build, same_window


def llama(checkpoint: Checkpoint, sizes: Sizes) -> Decoder:
    rope = rope_from(checkpoint, sizes, interleaved=bool(checkpoint.get("sapwood.interleaved_rope", True)))
    return build(checkpoint, sizes, Family(rope=lambda layer: rope, window=same_window(checkpoint, sizes)))
