"""What computes: one interface (`plan.py`), several backends. The front door opens a plan on the one that is asked for."""

from __future__ import annotations

from typing import Literal

from sapwood.errors import InvalidRequest
from sapwood.kernels.decoder import Decoder
from sapwood.kernels.plan import Plan

BackendName = Literal["cpu", "reference", "cuda"]


def open_plan(
    decoder: Decoder,
    *,
    backend: BackendName = "cpu",
    num_slots: int,
    max_rows: int = 512,
    threads: int | None = None,
    captures: tuple[int, ...] = (),
) -> Plan:
    """Compile a decoder for a backend.

    `num_slots`: tokens whose keys and values fit; `max_rows`: most rows of a batch; `threads`: of the CPU backend, None:
    one for each core this process may use; `captures`: layers whose input the plan also returns (`Output.features`).
    """
    if backend == "cpu":
        from sapwood.kernels.cpu_backend import CpuPlan

        return CpuPlan(decoder, num_slots=num_slots, max_rows=max_rows, threads=threads, captures=captures)
    if backend == "reference":
        from sapwood.kernels.reference import ReferencePlan

        return ReferencePlan(decoder, num_slots=num_slots, max_rows=max_rows, captures=captures)
    if backend == "cuda":
        from sapwood.kernels.cuda_backend import CudaPlan

        return CudaPlan(decoder, num_slots=num_slots, max_rows=max_rows, captures=captures)
    raise InvalidRequest(f"there is no backend '{backend}'; choose cpu, reference or cuda")
