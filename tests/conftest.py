"""The real models, pulled once; everything else is made on the spot."""

from __future__ import annotations

from pathlib import Path

import pytest

from sapwood.runtime.store import pull


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """SmolLM2-135M-Instruct Q4_1, a .gguf file."""
    return pull("smollm2-135m")


@pytest.fixture(scope="session")
def gemma3_path() -> Path:
    """Gemma 3 270M Q4_K_M, a .gguf file."""
    return pull("gemma3-270m")
