"""An invariant plan gives a row the same bits whatever shares its batch, however its prompt was cut, recorded or not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from decoders import VOCAB, decoder, int32, run

from sapwood.kernels import cuda_backend
from sapwood.kernels.cuda_backend import CudaPlan
from sapwood.kernels.decoder import Format
from sapwood.kernels.plan import Batch, DraftTail

PROMPT, SLOTS = 12, 110
RNG = np.random.default_rng(8)
IDS = RNG.integers(0, VOCAB, PROMPT + 1).tolist()
FREE = int32(RNG.permutation(SLOTS))
TABLE = FREE[: PROMPT + 1]


def opened(kind: str, fmt: Format, device: str, num_layers: int = 2, **options: Any) -> CudaPlan:
    model = decoder(kind, fmt, num_layers=num_layers)
    return CudaPlan(model, num_slots=SLOTS, device=device, dtype=torch.float16, invariant=True, **options)


def alone(plan: CudaPlan) -> np.ndarray:
    """The prompt at once, then the last token as a step of its own."""
    run(plan, IDS, TABLE, 0, PROMPT)
    return run(plan, IDS, TABLE, PROMPT, PROMPT + 1)[0]


def crowded(plan: CudaPlan, chunk: int) -> np.ndarray:
    """The same in chunks, and the last token between others: two that share its prefix, one that doesn't, a draft tree."""
    for begin in range(0, PROMPT, chunk):
        run(plan, IDS, TABLE, begin, min(begin + chunk, PROMPT))
    rest = iter(FREE[PROMPT + 1 :])
    tables, rows = [TABLE], [(0, PROMPT, IDS[PROMPT], int(TABLE[PROMPT]))]
    for number, shared in enumerate((PROMPT, 10, 0), start=1):
        new = int32([next(rest) for _ in range(number)])
        tables.append(int32([*TABLE[:shared], *new]))
        rows += [(number, shared + j, 7 * number + j, int(slot)) for j, slot in enumerate(new)]
    drafted = int32([next(rest) for _ in range(3)])
    tables.append(int32([*TABLE[:9], *drafted]))
    rows += [(4, 9 + min(j, 1), j, int(slot)) for j, slot in enumerate(drafted)]
    order = RNG.permutation(len(rows))
    # Draft rows keep their order among themselves, as their ancestors are listed in it.
    order[np.isin(order, range(len(rows) - 3, len(rows)))] = range(len(rows) - 3, len(rows))
    sequences, positions, ids, slots = (int32([rows[i][column] for i in order]) for column in range(4))
    batch = Batch(ids, positions, slots, sequences, tables, int32(range(len(rows))))
    batch.drafts = {4: DraftTail(9, np.asarray([0b1, 0b11, 0b101], np.uint64))}
    return plan.run(batch).logits[int(np.flatnonzero(order == 0)[0])].copy()


@pytest.mark.parametrize(
    ("kind", "fmt", "options"),
    [
        ("llama", Format.Q8_0, {"kv": "int8"}),
        ("llama", Format.F32, {}),
        ("gemma", Format.Q8_0, {}),
        ("qwen", Format.Q8_0, {"kv": "fp8"}),
        ("llama", Format.Q8_0, {"recorder": lambda launch: launch}),
    ],
)
def test_a_step_in_a_crowd_has_the_bits_of_a_step_alone(
    kind: str, fmt: Format, options: dict[str, Any], device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda_backend, "GRAPH_POSITIONS", cuda_backend.SPLIT)
    expected = alone(opened(kind, fmt, device, **options))
    assert np.isfinite(expected).all() and np.ptp(expected) > 0.1
    assert np.array_equal(crowded(opened(kind, fmt, device, **options), 7), expected)


def test_a_chain_of_drafts_has_the_bits_of_decoding(device: str) -> None:
    """The same tokens, one step each or verified at once. (Behind a sibling, sums have the same terms in other places.)"""
    decoded, verified = (opened("llama", Format.Q8_0, device, num_layers=1) for _ in range(2))
    begin = PROMPT - 2
    for plan in (decoded, verified):
        run(plan, IDS, TABLE, 0, begin)
    expected = np.concatenate([run(decoded, IDS, TABLE, at, at + 1) for at in range(begin, PROMPT + 1)])
    rows = int32(range(begin, PROMPT + 1))
    batch = Batch(int32(IDS[begin:]), rows, TABLE[begin:], int32([0] * 3), [TABLE], int32(range(3)))
    batch.drafts = {0: DraftTail(begin, np.asarray([0b1, 0b11, 0b111], np.uint64))}
    assert np.array_equal(verified.run(batch).logits, expected)


def test_a_long_prompt_has_the_bits_of_its_chunks(device: str) -> None:
    """More rows than those from which a plan that need not be invariant unpacks its weights."""
    ids = RNG.integers(0, VOCAB, 110).tolist()
    whole = run(opened("llama", Format.Q8_0, device, num_layers=1), ids, FREE, 0, 110)
    plan = opened("llama", Format.Q8_0, device, num_layers=1)
    pieces = [run(plan, ids, FREE, begin, end) for begin, end in ((0, 100), (100, 110))]
    assert np.array_equal(np.concatenate(pieces), whole)
