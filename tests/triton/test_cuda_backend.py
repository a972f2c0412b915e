"""The GPU plan means what the reference means, in Triton's interpreter where there is no card."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from decoders import VOCAB, decoder, int32, run

from sapwood.errors import InvalidRequest
from sapwood.kernels import cuda_backend
from sapwood.kernels.cuda_backend import CudaPlan
from sapwood.kernels.cuda_graphs import GraphBuckets
from sapwood.kernels.decoder import Format
from sapwood.kernels.plan import Batch, DraftTail
from sapwood.kernels.reference import ReferencePlan
from sapwood.kernels.sampling import SampleRow, sample, score
from sapwood.runtime.engine.engine import Engine

LENGTH = 40
RNG = np.random.default_rng(3)
IDS = RNG.integers(0, VOCAB, LENGTH).tolist()
TABLE = int32(RNG.permutation(LENGTH + 10)[:LENGTH])


def plans(kind: str, fmt: Format, device: str, **options: Any) -> tuple[CudaPlan, ReferencePlan]:
    model = decoder(kind, fmt, num_layers=2)
    made = CudaPlan(model, num_slots=LENGTH + 10, device=device, dtype=torch.float16, captures=(0, 1), **options)
    return made, ReferencePlan(model, num_slots=LENGTH + 10, captures=(0, 1))


@pytest.mark.parametrize("kind", ["llama", "gemma", "qwen"])
def test_logits_are_the_reference_s(kind: str, device: str) -> None:
    plan, reference = plans(kind, Format.Q8_0, device)
    expected = np.concatenate([run(reference, IDS, TABLE, 0, 30), run(reference, IDS, TABLE, 30, 31)])
    got = np.concatenate([run(plan, IDS, TABLE, 0, 30), run(plan, IDS, TABLE, 30, 31)])
    assert np.isfinite(got).all()
    assert np.abs(got - expected).max() / np.abs(expected).max() < 0.02


@pytest.mark.parametrize(("kv", "size", "tolerance"), [("int8", 1 + 4 / 16, 0.03), ("fp8", 1 + 4 / 16, 0.1)])
def test_quantized_keys_and_values(kv: str, size: float, tolerance: float, device: str) -> None:
    plan, reference = plans("llama", Format.Q8_0, device, kv=kv)
    expected = np.concatenate([run(reference, IDS, TABLE, 0, 12), run(reference, IDS, TABLE, 12, 14)])
    got = np.concatenate([run(plan, IDS, TABLE, 0, 12), run(plan, IDS, TABLE, 12, 14)])
    assert np.abs(got - expected).max() / np.abs(expected).max() < tolerance
    assert plan.kv.bytes_per_slot == 2 * 2 * 2 * 16 * size  # layers, keys and values, heads, channels
    records = plan.kv.read(TABLE[:14])
    again, _ = plans("llama", Format.Q8_0, device, kv=kv)
    again.kv.write(TABLE[:14], records)
    assert np.array_equal(again.kv.read(TABLE[:14]), records)
    assert np.array_equal(run(again, IDS, TABLE, 12, 14), got[12:])
    other, _ = plans("llama", Format.Q8_0, device)
    assert other.kv.layout != plan.kv.layout


def test_flashinfer_is_refused_what_it_can_not_do(device: str) -> None:
    with pytest.raises(InvalidRequest, match="use attention 'triton'"):
        plans("llama", Format.Q8_0, device, kv="int8", attention="flashinfer")


def test_the_engine_chooses_on_the_device_what_it_would_choose_from_the_logits(device: str) -> None:
    plan, _ = plans("llama", Format.Q8_0, device)
    engine = Engine(plan)
    rows = int32(range(8))
    batch = Batch(int32(IDS[:8]), rows, TABLE[:8], int32([0] * 8), [TABLE], rows)
    settings: list[dict[str, float]] = [{}, {"temperature": 0.0}, {"top_p": 0.8}, {"min_p": 0.1}]
    sampled = [SampleRow(seed=i, position=i, **setting) for i, setting in enumerate(settings)]  # type: ignore[arg-type]
    output = engine.run(batch)
    for outs in ([0, 1, 2, 3], [7, 1, 1, 5]):
        assert engine.choose(outs, sampled) == sample(output.logits[outs], sampled)
    assert engine.choose([7, 6], sampled[:2]) == engine.choose([7, 6, 5], sampled[:3])[:2]
    assert engine.score([3], [5], 2) == score(output.logits[3:4], int32([5]), 2)


def test_draft_trees_captures_and_records(device: str) -> None:
    plan, reference = plans("llama", Format.Q8_0, device)
    outputs = []
    for target in (plan, reference):
        run(target, IDS, TABLE, 0, 20)
        free = [slot for slot in range(LENGTH + 10) if slot not in TABLE[:20]][:3]
        table = int32([*TABLE[:20], *free])
        batch = Batch(
            int32([1, 2, 3]),
            int32([20, 21, 21]),
            int32(free),
            int32([0] * 3),
            [table],
            int32(range(3)),
            want_hidden=True,
        )
        batch.drafts = {0: DraftTail(20, np.asarray([0b1, 0b11, 0b101], np.uint64))}
        outputs.append(target.run(batch))
    got, expected = outputs
    assert got.features is not None and expected.features is not None
    assert np.abs(got.logits - expected.logits).max() / np.abs(expected.logits).max() < 0.02
    np.testing.assert_allclose(got.features, expected.features, atol=0.1)
    records = plan.kv.read(TABLE[:5])
    plan.kv.write(int32([45, 46, 47, 48, 49]), records)
    assert np.array_equal(plan.kv.read(int32([45, 46, 47, 48, 49])), records)


def test_a_recorded_step_gives_what_a_launched_one_gives(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a recorder that only keeps the function: the static buffers and their padding are what is tested."""
    monkeypatch.setattr(cuda_backend, "GRAPH_POSITIONS", cuda_backend.SPLIT)
    model = decoder("gemma", Format.Q8_0, num_layers=2)
    options = {"num_slots": LENGTH + 10, "device": device, "dtype": torch.float16}
    plain = CudaPlan(model, **options)  # type: ignore[arg-type]
    graphed = CudaPlan(model, recorder=lambda launch: launch, **options)  # type: ignore[arg-type]
    for begin, end in ((0, 30), (30, 31), (31, 34), (34, 35)):
        expected = run(plain, IDS, TABLE, begin, end)
        got = run(graphed, IDS, TABLE, begin, end)
        assert np.isfinite(got).all() and np.abs(got - expected).max() / np.abs(expected).max() < 2e-3


def test_buckets_hold_the_rows_and_record_once() -> None:
    recorded: list[int] = []
    ran: list[int] = []

    def make(rows: int):  # type: ignore[no-untyped-def]
        return lambda: ran.append(rows)

    def recorder(launch):  # type: ignore[no-untyped-def]
        recorded.append(1)
        return launch

    buckets = GraphBuckets(make, recorder, buckets=(4, 1, 16))
    assert [buckets.bucket(rows) for rows in (1, 2, 4, 5, 16, 17)] == [1, 4, 4, 16, 16, None]
    buckets.capture()
    for _ in range(3):
        buckets.replay(4)
    assert ran == [4, 4, 4] and len(recorded) == 3
