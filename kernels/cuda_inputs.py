"""What a step needs from the host, sent to the device in one copy.

Named arrays of int32 lie one behind the other, in host memory that the card can read and in a buffer of the card. Room
with exact sizes is made for one batch; room with the largest sizes stays where it is and is filled again for every step of
a recorded graph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from sapwood.kernels.plan import Batch
from sapwood.kernels.triton.attention import AttentionWork
from sapwood.kernels.triton.attention_plan import SPLIT, TILE_ROWS, cut

Int32s = NDArray[np.int32]
Fields = dict[str, Int32s]

_ALIGNED = 4  # fields begin at multiples of so many int32
_WORK = ("ancestors", "tile_rows", "tile_table", "tile_begin", "row_len", "row_first", "tail_start")
_REST = {"slots": -1, "tile_rows": -1}  # what fills room that a batch doesn't need; else 0
_NOTHING = np.empty(0, np.int32)
TABLES = "tables"  # the largest field, and the last: what lies behind its used part isn't sent


@dataclass(slots=True)
class Inputs:
    """One step's inputs on the device. In a graph these tensors stay, and their contents are replaced."""

    ids: torch.Tensor  # [rows]
    positions: torch.Tensor
    slots: torch.Tensor
    out_rows: torch.Tensor  # [outputs]
    work: dict[int | None, AttentionWork]  # by window; empty where FlashInfer attends


class Room:
    """Arrays of these shapes on the host and on the device."""

    def __init__(self, shapes: Mapping[str, tuple[int, ...]], device: str) -> None:
        self._begins: dict[str, int] = {}
        size = 0
        for name, shape in shapes.items():
            self._begins[name] = size
            size += -(-int(np.prod(shape)) // _ALIGNED) * _ALIGNED
        self._host = torch.zeros(size, dtype=torch.int32, pin_memory=device == "cuda")
        self._device = torch.zeros(size, dtype=torch.int32, device=device)
        on_host = self._host.numpy()
        self._arrays = {name: on_host[begin:][: np.prod(shapes[name])] for name, begin in self._begins.items()}
        self._shapes = dict(shapes)
        self.fill({})

    def fill(self, fields: Fields) -> bool:
        """Send these instead of what was there; fields that aren't given become empty. False, and nothing is changed, where they don't fit."""
        if any(name not in self._arrays or values.size > self._arrays[name].size for name, values in fields.items()):
            return False
        for name, target in self._arrays.items():
            values = fields.get(name, _NOTHING)
            target[: values.size] = values.reshape(-1)
            if name != TABLES:
                target[values.size :] = _REST.get(name.split(".")[-1], 0)
        used = self._begins[TABLES] + fields[TABLES].size if TABLES in fields else len(self._host)
        # The host waits for the copy, as it may fill this memory again right after.
        self._device[:used].copy_(self._host[:used])
        return True

    def on_device(self, name: str) -> torch.Tensor:
        begin, shape = self._begins[name], self._shapes[name]
        return self._device[begin:][: int(np.prod(shape))].view(shape)


def fields_of(batch: Batch, windows: Sequence[int | None]) -> tuple[Fields, int]:
    """All that a batch needs to have attention by our kernels for layers with these windows, and its number of splits."""
    fields = {"ids": batch.ids, "positions": batch.positions, "slots": batch.slots, "out_rows": batch.logit_rows}
    num_splits = 0
    for index, window in enumerate(windows):
        work = cut(batch.positions, batch.sequences, batch.tables, batch.drafts, window)
        fields |= {f"{index}.{name}": getattr(work, name) for name in _WORK}
        num_splits = work.num_splits
    if windows:
        fields[TABLES] = np.concatenate(batch.tables)
    return fields, num_splits


def inputs_in(room: Room, windows: Sequence[int | None], num_splits: int) -> Inputs:
    """The tensors of the fields that `fields_of` made."""
    work: dict[int | None, AttentionWork] = {}
    for index, window in enumerate(windows):
        parts = {name: room.on_device(f"{index}.{name}") for name in _WORK}
        parts["ancestors"] = parts["ancestors"].view(torch.int64).view(-1)
        work[window] = AttentionWork(tables=room.on_device(TABLES), num_splits=num_splits, **parts)
    ids, positions, slots, out_rows = map(room.on_device, ("ids", "positions", "slots", "out_rows"))
    return Inputs(ids, positions, slots, out_rows, work)


def send(batch: Batch, windows: Sequence[int | None], device: str) -> Inputs:
    """A batch's inputs, in room of their own."""
    fields, num_splits = fields_of(batch, windows)
    room = Room({name: values.shape for name, values in fields.items()}, device)
    room.fill(fields)
    return inputs_in(room, windows, num_splits)


def largest_shapes(rows: int, positions: int, windows: Sequence[int | None]) -> dict[str, tuple[int, ...]]:
    """The shapes that hold any batch of so many rows and sequences on contexts of up to `positions`."""
    tiles = rows * -(-positions // SPLIT)
    by_name = {"ancestors": (rows, 2), "tile_rows": (tiles, TILE_ROWS), "tile_table": (tiles,), "tile_begin": (tiles,)}
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(("ids", "positions", "slots", "out_rows"), (rows,))
    for index in range(len(windows)):
        shapes |= {f"{index}.{name}": by_name.get(name, (rows,)) for name in _WORK}
    return shapes | {TABLES: (rows * positions,)}
