"""Rotary embeddings as a checkpoint's keys describe them, with what stretches them over longer contexts."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from sapwood.errors import ModelError
from sapwood.kernels.decoder import Rope
from sapwood.kernels.formats import dequantize
from sapwood.runtime.models.checkpoint import Checkpoint, integer, number
from sapwood.runtime.models.sizes import Sizes

Frequencies = NDArray[np.float64]

# Tensors that divide the frequencies: Llama 3's scaling as GGUF stores it, and Phi-3's for contexts up to the length that it
# was trained on first (`Sizes` ends its context there: the factors for longer ones would change what short prompts mean).
DIVISORS = ("rope_freqs.weight", "rope_factors_short.weight")


def rope_from(checkpoint: Checkpoint, sizes: Sizes, *, interleaved: bool, base: float | None = None) -> Rope:
    """The rotary embedding that the keys `{architecture}.rope.*` describe. `base` overrides theirs, and drops their scaling."""
    prefix = f"{sizes.architecture}.rope."
    dim = integer(checkpoint, prefix + "dimension_count", sizes.head_dim)
    if dim % 2 or dim > sizes.head_dim:
        raise ModelError(f"the checkpoint rotates {dim} of {sizes.head_dim} channels a head; it is damaged")
    theta = number(checkpoint, prefix + "freq_base", 10000.0) if base is None else base
    if theta <= 1:
        raise ModelError(f"the checkpoint says a rotary base of {theta:g}; it is damaged")
    inv_freq = theta ** (-np.arange(0, dim, 2, dtype=np.float64) / dim)
    if base is not None:
        return Rope(inv_freq.astype(np.float32), interleaved)
    inv_freq, magnitude = _scaled(checkpoint, prefix + "scaling.", inv_freq, theta)
    for name in DIVISORS:
        if name in checkpoint.tensors:
            divisors = dequantize(checkpoint.weight(name)).astype(np.float64)
            if divisors.shape != inv_freq.shape:
                raise ModelError(f"tensor '{name}' has shape {divisors.shape}, not {inv_freq.shape}")
            inv_freq = inv_freq / divisors
    return Rope(inv_freq.astype(np.float32), interleaved, magnitude)


def _scaled(checkpoint: Checkpoint, prefix: str, inv_freq: Frequencies, theta: float) -> tuple[Frequencies, float]:
    """The frequencies, and what multiplies cosine and sine, after the scaling that the keys under `prefix` name."""
    kind = checkpoint.get(prefix + "type", "none")
    magnitude = number(checkpoint, prefix + "attn_factor", 1.0)
    if kind in ("none", "longrope"):
        return inv_freq, magnitude
    if kind not in ("linear", "llama3", "yarn"):
        raise ModelError(
            f"rotary embeddings scaled by '{kind}' are not supported; supported are linear, llama3, longrope and yarn"
        )
    factor = number(checkpoint, prefix + "factor")
    if kind == "linear":
        return inv_freq / factor, 1.0
    original = number(checkpoint, prefix + "original_context_length")
    if kind == "llama3":
        low, high = number(checkpoint, prefix + "low_freq_factor"), number(checkpoint, prefix + "high_freq_factor")
        return _llama3(inv_freq, factor, original, low, high), 1.0
    fast, slow = (number(checkpoint, f"{prefix}yarn_beta_{end}", at) for end, at in (("fast", 32.0), ("slow", 1.0)))
    return _yarn(inv_freq, theta, factor, original, fast, slow), magnitude * (0.1 * math.log(factor) + 1.0)


def _llama3(inv_freq: Frequencies, factor: float, original: float, low: float, high: float) -> Frequencies:
    """Llama 3.1's: wavelengths up to original / high as they are, from original / low on stretched, a ramp between."""
    turns = original * inv_freq / (2 * math.pi)
    ramp = np.clip((turns - low) / max(high - low, 0.001), 0, 1)
    return inv_freq / factor * (1 - ramp) + inv_freq * ramp


def _yarn(inv_freq: Frequencies, theta: float, factor: float, original: float, fast: float, slow: float) -> Frequencies:
    """YaRN (arXiv 2309.00071): channels that turn `fast` times stay, those below `slow` are stretched, a ramp between."""
    dim = 2 * len(inv_freq)

    def channel(rotations: float) -> float:
        return dim * math.log(original / (rotations * 2 * math.pi)) / (2 * math.log(theta))

    low, high = max(math.floor(channel(fast)), 0), min(math.ceil(channel(slow)), dim - 1)
    ramp = np.clip((np.arange(len(inv_freq)) - low) / max(high - low, 0.001), 0, 1)
    return inv_freq / factor * ramp + inv_freq * (1 - ramp)
