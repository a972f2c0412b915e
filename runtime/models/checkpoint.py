"""What an architecture needs of a checkpoint, whatever file it lies in. Keys and tensor names are GGUF's."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any, Protocol

import numpy as np

from sapwood.errors import ModelError
from sapwood.kernels.decoder import Weight


class Checkpoint(Protocol):
    @property
    def metadata(self) -> dict[str, Any]: ...

    @property
    def tensors(self) -> Collection[str]:
        """The names of all tensors."""
        ...

    def get(self, key: str, default: Any = None) -> Any:
        """A key's value; ModelError when it is missing and there is no default."""
        ...

    def weight(self, name: str) -> Weight:
        """A tensor; ModelError when it is missing."""
        ...


def number(checkpoint: Checkpoint, key: str, default: float | None = None) -> float:
    """A key that must be a positive number. Where a file gives it for each layer, all layers must agree."""
    value = checkpoint.get(key, default)
    if isinstance(value, list | np.ndarray) and len(value) and all(v == value[0] for v in value):
        value = value[0]
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        raise ModelError(f"the checkpoint says {value!r} for '{key}', where one number for all layers is needed")
    if not 0 < float(value) < math.inf:
        raise ModelError(f"the checkpoint says {value} for '{key}', where a positive number is needed; it is damaged")
    return float(value)


def integer(checkpoint: Checkpoint, key: str, default: int | None = None) -> int:
    """A key that must be a count: at least 1, and small enough that no array of that size is a danger."""
    value = number(checkpoint, key, default)
    if value >= 1 << 31 or value != int(value):
        raise ModelError(f"the checkpoint says {value:g} for '{key}'; it is damaged, or its kind isn't supported")
    return int(value)
