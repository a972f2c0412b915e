"""`make gpu-check` on a tiny model in the interpreter: all of its logic but the card."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from decoders import decoder
from fake_flashinfer import fake_flashinfer

from sapwood.kernels.cuda_backend import CudaPlan
from sapwood.kernels.decoder import Format
from sapwood.kernels.reference import ReferencePlan

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The benchmark as a module."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    import gpu

    yield gpu
    for name in ("gpu", "gpu_model"):
        sys.modules.pop(name)


@pytest.fixture
def bench(gpu: ModuleType, device: str) -> Any:
    from gpu_model import Shape

    shape = Shape(hidden=64, ffn=128, layers=1, heads=4, kv_heads=2, dim=16, vocab=70)
    scale = gpu.Scale(
        shape=shape, context=20, sequences=2, steps=2, prompt=16, text_tokens=4, copied_bytes=1 << 20, matmul=64,
        dtype=torch.float16,
    )  # fmt: skip
    return gpu.Bench(device, scale)


@pytest.mark.parametrize(("part", "figures"), [("decode", 2), ("throughput", 4), ("prefill", 2)])
def test_a_part_gives_its_figures(part: str, figures: int, gpu: ModuleType, bench: Any) -> None:
    bench.scale = replace(bench.scale, formats=(Format.Q4_0, Format.BF16))
    got = list(gpu.PARTS[part](bench))
    assert len(got) == figures and len({figure.what for figure in got}) == figures
    for figure in got:
        assert figure.part == part and figure.value > 0 and figure.fault is None
        if part != "throughput":
            assert 0 < figure.share < 1 and figure.goal is not None  # nothing beats its floor
            assert figure.is_good == (figure.share >= figure.goal)


def test_attention_is_compared_with_flashinfer_s(gpu: ModuleType, bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [f.what for f in gpu.attend(bench)] == [
        "decode, 2 x 20: ours", "decode, 2 that share 4: ours", "prefill, 16: ours"
    ]  # fmt: skip
    monkeypatch.setitem(sys.modules, "flashinfer", fake_flashinfer())
    monkeypatch.setattr(gpu, "is_available", lambda: True)
    both = list(gpu.attend(bench))
    assert len(both) == 6 and all(figure.is_good and figure.value > 0 for figure in both)
    monkeypatch.setattr(gpu.FlashInferAttention, "run", lambda self, q, *rest: torch.zeros_like(q))
    assert not all(figure.is_good for figure in gpu.attend(bench))


def test_random_models_compute_finite_logits(gpu: ModuleType, bench: Any) -> None:
    from gpu_model import random_decoder

    for fmt in bench.scale.formats:
        model = random_decoder(bench.scale.shape, fmt)
        batch = gpu.step_of(2, 5, 8)
        got = bench.plan(model, 16, 2).run(batch).logits
        expected = ReferencePlan(model, num_slots=16).run(batch).logits
        assert 0.2 < np.std(expected) < 5 and np.abs(got - expected).max() < 0.05


def test_texts_may_part_only_where_the_cpu_is_nearly_undecided(gpu: ModuleType, device: str) -> None:
    model = decoder("qwen", Format.Q8_0, num_layers=1)
    ids = [5, 9, 2]
    card = CudaPlan(model, num_slots=16, device=device, dtype=torch.float16)
    reference = ReferencePlan(model, num_slots=16)
    same = gpu.compare_text("q", card, reference, ids, 4)
    assert same.is_good and (same.value == 4 or same.fault is None)
    other = gpu.compare_text("q", ReferencePlan(decoder("gemma", Format.Q8_0, 1), num_slots=16), reference, ids, 4)
    assert other.value < 4 and "below the best" in other.fault and not other.is_good


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a card")
def test_without_a_card_one_sentence_refuses(gpu: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["--only", "card"]):
        assert gpu.main(arguments) == 1
        out, err = capsys.readouterr()
        assert out == "" and err.count("\n") == 1 and err.startswith("There is no NVIDIA card that torch ")


def test_the_result_is_a_table_and_json(
    gpu: ModuleType, bench: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gpu, "why_not", lambda: None)
    monkeypatch.setattr(gpu, "Bench", lambda: bench)
    figures = [gpu.Figure("card", "a card", 80.0, "GiB"), gpu.Figure("decode", "one", 3.0, "ms/token", 0.9, 0.85)]
    monkeypatch.setitem(gpu.PARTS, "decode", lambda _: iter(figures))
    assert gpu.main(["--only", "decode", "--json", str(tmp_path / "f.json")]) == 0
    assert "reached" in capsys.readouterr().out and '"share": 0.9' in (tmp_path / "f.json").read_text()
    figures[1].share = 0.84
    assert gpu.main(["--only", "decode"]) == 1 and "missed" in capsys.readouterr().out
