"""Keys and values in GPU memory, as they are or quantized.

A quantized cache keeps codes, and one scale for each token and head: value = code * scale. The scale makes the largest
value of the head's vector the largest code (127 of int8, 448 of float8_e4m3), so a token's codes depend on that token alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

CacheKind = Literal["same", "int8", "fp8"]
_CODES: dict[CacheKind, tuple[torch.dtype, float]] = {"int8": (torch.int8, 127.0), "fp8": (torch.float8_e4m3fn, 448.0)}


@dataclass(frozen=True, slots=True, eq=False)
class Cache:
    """One layer's keys and values."""

    keys: torch.Tensor  # [slots, kv_heads, dim]
    values: torch.Tensor
    key_scale: torch.Tensor  # float32 [slots, kv_heads]; empty where `limit` is 0
    value_scale: torch.Tensor
    dtype: torch.dtype  # attention computes in it
    limit: float  # the largest code; 0: values as they are

    @property
    def parts(self) -> list[torch.Tensor]:
        """What makes up a slot's record, each [slots, ...]."""
        return (
            [self.keys, self.values] if self.limit == 0 else [self.keys, self.values, self.key_scale, self.value_scale]
        )


def make_cache(
    num_slots: int, kv_heads: int, dim: int, dtype: torch.dtype, device: str, kind: CacheKind = "same"
) -> Cache:
    """Room for so many slots; `kind` "same" keeps values in `dtype` (float16, bfloat16 or float32)."""
    stored, limit = (dtype, 0.0) if kind == "same" else _CODES[kind]
    keys, values = (torch.zeros(num_slots, kv_heads, dim, dtype=stored, device=device) for _ in range(2))
    key_scale, value_scale = (torch.zeros(num_slots if limit else 0, kv_heads, device=device) for _ in range(2))
    return Cache(keys, values, key_scale, value_scale, dtype, limit)


def dequantized(cache: Cache) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values as float32 [slots, kv_heads, dim]: the specification of every kernel that reads them."""
    keys, values = cache.keys.float(), cache.values.float()
    if cache.limit:
        keys, values = keys * cache.key_scale[..., None], values * cache.value_scale[..., None]
    return keys, values
