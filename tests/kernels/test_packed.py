"""Weights packed ahead of time are the same bits as those that a plan packs itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from decoders import HIDDEN, VOCAB, decoder, int32, run

from sapwood.errors import InvalidRequest, ModelError
from sapwood.kernels import _cpu, open_plan
from sapwood.kernels.cpu_packed import packed_size, packing_mark, places_of, write_packed
from sapwood.kernels.decoder import Format

IDS = [(7 * i) % VOCAB for i in range(40)]


@pytest.mark.parametrize("fmt", [Format.Q8_0, Format.F32])
@pytest.mark.parametrize("kind", ["llama", "gemma", "qwen"])
def test_a_plan_over_a_mapped_file_computes_the_same_bits(kind: str, fmt: Format, tmp_path: Path) -> None:
    model = decoder(kind, fmt)
    write_packed(model, tmp_path / "weights", threads=2)
    own = open_plan(model, num_slots=40, threads=2)
    mapped = open_plan(model, num_slots=40, threads=2, packed=tmp_path / "weights")
    assert np.array_equal(*(run(plan, IDS, int32(range(40)), 0, 40) for plan in (own, mapped)))
    assert mapped.weight_bytes == own.weight_bytes == packed_size(model)  # type: ignore[attr-defined]


def test_the_mapping_lives_as_long_as_the_plan(tmp_path: Path) -> None:
    model = decoder("llama")
    write_packed(model, tmp_path / "weights", threads=1)
    plan = open_plan(model, num_slots=40, threads=1, packed=tmp_path / "weights")
    (tmp_path / "weights").unlink()
    assert np.array_equal(
        run(plan, IDS, int32(range(40)), 0, 40),
        run(open_plan(model, num_slots=40, threads=1), IDS, int32(range(40)), 0, 40),
    )


def test_matrices_follow_each_other_at_multiples_of_64_bytes() -> None:
    model = decoder("qwen")
    starts = [start for _, start in places_of(model)]
    sizes = [_cpu.packed_bytes(weight.format.value, *weight.shape) for weight, _ in places_of(model)]
    assert all(start % 64 == 0 for start in starts)
    assert [*starts[1:], packed_size(model)] == [start + size for start, size in zip(starts, sizes, strict=True)]


def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    write_packed(decoder("llama", num_layers=2), tmp_path / "weights", threads=1)
    with pytest.raises(ModelError, match="not this model's"):
        open_plan(decoder("llama", num_layers=3), num_slots=40, packed=tmp_path / "weights")


def test_the_kernels_refuse_memory_that_does_not_fit() -> None:
    with pytest.raises(ValueError, match="too small"):
        _cpu.pack_into("F32", np.zeros((16, 4 * HIDDEN), np.uint8), HIDDEN, np.zeros(64, np.uint8), 1)


def test_another_backend_refuses_packed_weights(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="packed for the cpu backend"):
        open_plan(decoder("llama"), backend="reference", num_slots=40, packed=tmp_path / "weights")


def test_the_mark_depends_on_the_formats_and_on_nothing_else() -> None:
    assert packing_mark(decoder("llama")) == packing_mark(decoder("qwen", num_layers=1))
    assert packing_mark(decoder("llama")) != packing_mark(decoder("llama", Format.F32))
