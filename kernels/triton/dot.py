"""The matrix product that all kernels use, on tensor cores or in the interpreter."""

from __future__ import annotations

import os

import triton
import triton.language as tl

# Triton reads the variable when a kernel is decorated, so it can't change after this import.
INTERPRETED = os.environ.get("TRITON_INTERPRET", "0") == "1"
_EXACT = tl.constexpr(INTERPRETED)


@triton.jit
def dot(a, b, acc):  # type: ignore[no-untyped-def]
    """acc + a @ b, accumulated in float32. The interpreter keeps bfloat16 as raw bits, so it multiplies float32."""
    if _EXACT:
        acc += tl.dot(a.to(tl.float32), b.to(tl.float32), input_precision="ieee")
    else:
        acc = tl.dot(a, b, acc)
    return acc
