"""Triton's interpreter must be chosen before triton is first imported. Where triton isn't there, nothing here is collected."""

from __future__ import annotations

import os
from importlib.util import find_spec

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
collect_ignore_glob = [] if find_spec("triton") else ["test_*.py"]


@pytest.fixture
def device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"
