"""What computes: one interface (`plan.py`), several backends. The front door opens a plan on the one that is asked for."""

from __future__ import annotations

from pathlib import Path
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
    packed: Path | None = None,
) -> Plan:
    """Compile a decoder for a backend.

    `num_slots`: tokens whose keys and values fit; `max_rows`: most rows of a batch; `threads`: of the CPU backend, None:
    one for each core this process may use; `captures`: layers whose input the plan also returns (`Output.features`);
    `packed`: a file of the decoder's matrices as the CPU backend packs them (`cpu_packed.py`), mapped instead of packed again.
    """
    if packed is not None and backend != "cpu":
        raise InvalidRequest(f"the weights were packed for the cpu backend, not for {backend}; open the model itself")
    if backend == "cpu":
        from sapwood.kernels.cpu_backend import CpuPlan
        from sapwood.kernels.cpu_packed import map_packed

        weights = None if packed is None else map_packed(packed)
        return CpuPlan(
            decoder, num_slots=num_slots, max_rows=max_rows, threads=threads, captures=captures, packed=weights
        )
    if backend == "reference":
        from sapwood.kernels.reference import ReferencePlan

        return ReferencePlan(decoder, num_slots=num_slots, max_rows=max_rows, captures=captures)
    if backend == "cuda":
        from sapwood.kernels.cuda_backend import CudaPlan

        return CudaPlan(decoder, num_slots=num_slots, max_rows=max_rows, captures=captures)
    raise InvalidRequest(f"there is no backend '{backend}'; choose cpu, reference or cuda")
