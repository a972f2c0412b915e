"""What an architecture needs of a checkpoint, whatever file it lies in. Keys and tensor names are GGUF's."""

from __future__ import annotations

from collections.abc import Container
from typing import Any, Protocol

from sapwood.kernels.decoder import Weight


class Checkpoint(Protocol):
    @property
    def metadata(self) -> dict[str, Any]: ...

    @property
    def tensors(self) -> Container[str]:
        """The names of all tensors."""
        ...

    def get(self, key: str, default: Any = None) -> Any:
        """A key's value; ModelError when it is missing and there is no default."""
        ...

    def weight(self, name: str) -> Weight:
        """A tensor; ModelError when it is missing."""
        ...
