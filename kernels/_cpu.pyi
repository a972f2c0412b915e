"""Types of the CPU backend's native kernels (kernels/cpu)."""

import numpy as np
import numpy.typing as npt

# gemm_bind.cpp

class PackedMatrix:
    """A weight matrix [out, in], packed for the matmul kernels."""

    def __init__(self, format: str, rows: npt.NDArray[np.uint8], in_size: int, threads: int = 1) -> None: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def shape(self) -> tuple[int, int]: ...
    def dequantize_row(self, row: int, out: npt.NDArray[np.float32]) -> None: ...

class Activations:
    """Rows of float32, quantized or rounded as a packed matrix wants them."""

    @staticmethod
    def of(weights: PackedMatrix, x: npt.NDArray[np.float32]) -> Activations: ...

def gemm(
    weights: PackedMatrix,
    rows: Activations,
    out: npt.NDArray[np.float32],
    col_begin: int,
    col_end: int,
    accumulate: bool = False,
) -> None: ...
def read_once(data: npt.NDArray[np.uint8]) -> None: ...
def do_dots(operations: int) -> int: ...
def available_isas() -> list[str]: ...
def current_isa() -> str: ...
def set_isa(name: str) -> None: ...

# plain_bind.cpp

def code_layout(format: str) -> tuple[int, int, bool]: ...
def plain_codes(
    format: str,
    rows: npt.NDArray[np.uint8],
    codes: npt.NDArray[np.int8],
    scale: npt.NDArray[np.float32],
    offset: npt.NDArray[np.float32],
) -> None: ...

class EncodedMatrix:
    def __init__(self, format: str, rows: npt.NDArray[np.uint8], in_size: int) -> None: ...

class RopeSource:
    inv_freq: list[float]
    interleaved: bool
    magnitude: float

class LayerSource:
    window: int
    rope: int

class DecoderSource:
    attn_softcap: float
    logit_softcap: float
    gelu: bool
    embed: EncodedMatrix
    head: EncodedMatrix | None
    final_norm: list[float]
    ropes: list[RopeSource]
    layers: list[LayerSource]

class Plan:
    threads: int
    weight_bytes: int
    record_bytes: int
    def __init__(
        self, source: DecoderSource, num_slots: int, max_rows: int, threads: int, captures: list[int]
    ) -> None: ...
    def run(
        self,
        ids: npt.NDArray[np.int32],
        positions: npt.NDArray[np.int32],
        slots: npt.NDArray[np.int32],
        sequences: npt.NDArray[np.int32],
        tables: list[npt.NDArray[np.int32]],
        output_rows: npt.NDArray[np.int32],
        drafts: list[tuple[int, int, npt.NDArray[np.uint64]]],
        logits: npt.NDArray[np.float32],
        hidden: npt.NDArray[np.float32] | None,
        features: npt.NDArray[np.float32] | None,
    ) -> None: ...
    def read(self, slots: npt.NDArray[np.int32], records: npt.NDArray[np.uint8]) -> None: ...
    def write(self, slots: npt.NDArray[np.int32], records: npt.NDArray[np.uint8]) -> None: ...

# built.cpp

def packed_bytes(format: str, out: int, in_size: int) -> int: ...
def pack_into(
    format: str, rows: npt.NDArray[np.uint8], in_size: int, target: npt.NDArray[np.uint8], threads: int
) -> None: ...
def adopt(plan: Plan, data: npt.NDArray[np.uint8], shapes: list[tuple[str, int, int]]) -> None: ...

# sample_bind.cpp

def masked_argmax(values: npt.NDArray[np.float32], mask: npt.NDArray[np.uint32]) -> int: ...
def forbid(values: npt.NDArray[np.float32], mask: npt.NDArray[np.uint32]) -> None: ...
def draw(weights: npt.NDArray[np.float32], top_p: float, min_p: float, number: float) -> int: ...

# eagle_bind.cpp

class EagleSource:
    version: int
    fc: EncodedMatrix
    rope: RopeSource
    vocab: list[int]

class Eagle:
    weight_bytes: int
    def __init__(self, target: Plan, source: EagleSource) -> None: ...
    def observe(
        self,
        ids: npt.NDArray[np.int32],
        positions: npt.NDArray[np.int32],
        slots: npt.NDArray[np.int32],
        sequences: npt.NDArray[np.int32],
        tables: list[npt.NDArray[np.int32]],
        features: npt.NDArray[np.float32],
    ) -> None: ...
    def draft(
        self,
        tables: list[npt.NDArray[np.int32]],
        last_ids: npt.NDArray[np.int32],
        least: float,
        worth: npt.NDArray[np.float32],
        ids: npt.NDArray[np.int32],
        chances: npt.NDArray[np.float32],
    ) -> None: ...
