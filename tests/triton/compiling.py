"""Compiles for a card that isn't there every kernel that a plan launches, with the arguments it launches it with.

A program of its own, as Triton's interpreter can't be left once it is chosen. Triton is given a driver that names a card
but can't launch; what the "kernels" compute is what memory held, and nobody looks.

    compiling.py 90 first | all         for compute capability 9.0: the first or all of each kernel's configurations

Prints a JSON object: for each kernel, the most shared memory that one of its variants takes, in bytes.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import torch
import triton
from decoders import decoder, int32
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase
from triton.runtime.jit import JITFunction

from sapwood.kernels.cuda_backend import CudaPlan
from sapwood.kernels.decoder import Format
from sapwood.kernels.plan import Batch
from sapwood.kernels.sampling import SampleRow
from sapwood.kernels.triton.attention import attention, plan_attention
from sapwood.kernels.triton.cache import make_cache
from sapwood.kernels.triton.grouped import combine, group_rows, grouped_linear
from sapwood.kernels.triton.linear import linear
from sapwood.kernels.triton.sampling import sample
from sapwood.kernels.triton.tuning import Tuner, use
from sapwood.kernels.triton.weights import GpuMatrix, pack_f8, pack_w4, pack_w8


class NamedCard(DriverBase):  # type: ignore[misc]
    """A card that only has a name: its compute capability, as in 90."""

    def __init__(self, capability: int) -> None:
        self._target = GPUTarget("cuda", capability, 32)

    @classmethod
    def is_active(cls) -> bool:
        return True

    def map_python_to_cpp_type(self, ty: str) -> str:
        raise NotImplementedError

    def get_current_target(self) -> GPUTarget:
        return self._target

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")

    def get_benchmarker(self) -> Any:
        raise NotImplementedError

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


def record_launches() -> dict[str, int]:
    """From now on launches compile, and are noted here."""
    shared: dict[str, int] = {}
    run = JITFunction.run

    def compile_only(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        kernel = run(self, *args, grid=grid, warmup=True, **kwargs)
        name = self.fn.__name__
        shared[name] = max(shared.get(name, 0), kernel.metadata.shared)
        return kernel

    JITFunction.run = compile_only
    return shared


def launch_plans(float8: bool) -> None:
    """Decode and prefill of plans of every kind; with gemma, what else norms, windows and caps ask for."""
    codes = "fp8" if float8 else "int8"
    for kind, options in (("llama", {"kv": "int8"}), ("gemma", {"invariant": True}), ("qwen", {"kv": codes})):
        plan = CudaPlan(decoder(kind, Format.Q8_0, num_layers=1), num_slots=128, device="cpu", **options)  # type: ignore[arg-type]
        for rows in (1, 100):
            at = int32(range(rows))
            plan.run(Batch(at % 7, at, at, int32([0] * rows), [at], at[-1:]))


def launch_attention() -> None:
    """At the size of a real model: 32 heads of 128 on 8 of keys and values."""
    rows = int32([600])
    work = plan_attention(rows, int32([0]), [int32(range(601))], {}, None, "cpu")
    cache = make_cache(601, 8, 128, torch.bfloat16, "cpu")
    attention(torch.zeros(1, 32, 128, dtype=torch.bfloat16), cache, work, scale=1.0)


def launch_matmuls(float8: bool) -> None:
    codes = torch.zeros(256, 512, dtype=torch.uint8)
    scale = torch.ones(256, 512 // 32)
    matrices = [
        pack_w4(codes, scale, scale),
        pack_w8(codes.view(torch.int8), scale),
        GpuMatrix("dense", codes.bfloat16()),
        *([pack_f8(codes.float())] if float8 else []),
    ]
    groups = group_rows(torch.zeros(8, 2, dtype=torch.int64), 4)
    for matrix in matrices:
        for rows in (1, 64):
            linear(torch.zeros(rows, 512, dtype=torch.bfloat16), matrix, invariant=matrix.layout == "dense")
        y = grouped_linear(torch.zeros(8, 512, dtype=torch.bfloat16), matrix, 4, groups)
    combine(y, groups, torch.ones(8, 2))


def main() -> None:
    capability = int(sys.argv[1])
    triton.runtime.driver.set_active(NamedCard(capability))
    shared = record_launches()
    if sys.argv[2] == "all":
        use(Tuner(lambda launch: float(launch() is not None), file=None))  # each configuration is "measured"
    with np.errstate(all="ignore"):
        launch_plans(capability >= 89)
        launch_attention()
        launch_matmuls(capability >= 89)
        sample(torch.zeros(2, 4096), [SampleRow(0, 0, top_p=0.9), SampleRow(0, 0, temperature=0.0)])
    print(json.dumps(shared))


if __name__ == "__main__":
    main()
