"""EAGLE heads: the public layouts are read, the native code computes what the formulas say, and the text never changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from decoders import decoder, int32, run
from eagle_heads import PlainEagle, write_head
from in_process import Driver
from safetensors.numpy import load_file, save_file

from sapwood.errors import InvalidRequest, ModelError
from sapwood.kernels.cpu_backend import CpuPlan
from sapwood.kernels.cpu_eagle import DEEPEST, CpuEagle
from sapwood.kernels.decoder import Format
from sapwood.kernels.eagle import EagleHead
from sapwood.kernels.plan import Batch
from sapwood.runtime.fake import fake_model
from sapwood.runtime.models.eagle import identity, load_eagle
from sapwood.runtime.speculative.drafter import Wish
from sapwood.runtime.speculative.eagle import EagleDrafter

TARGET = decoder("llama", Format.F32, num_layers=6)
TEXT = [int(i) for i in np.random.default_rng(5).integers(0, 100, 40)]


class Reader:
    """A target and a head that read texts together."""

    def __init__(self, head: EagleHead, num_slots: int = 400) -> None:
        self.plan = CpuPlan(TARGET, num_slots=num_slots, threads=1, captures=head.captures)
        self.eagle = CpuEagle(self.plan, head)

    def read(self, ids: list[int], table: np.ndarray, begin: int, end: int) -> np.ndarray:
        """Positions begin .. end - 1 of a text; returns their features."""
        n = end - begin
        batch = Batch(
            int32(ids[begin:end]),
            int32(range(begin, end)),
            int32(table[begin:end]),
            int32([0] * n),
            [int32(table)],
            int32([n - 1]),
        )
        features = self.plan.run(batch).features
        assert features is not None
        self.eagle.observe(batch, features)
        return features

    def draft(self, ids: list[int], table: np.ndarray, depth: int, least: float = 0.0) -> tuple[list[int], list[float]]:
        found, chances = self.eagle.draft([int32(table[: len(ids)])], [ids[-1]], depth, least)
        return found[0].tolist(), chances[0].tolist()


@pytest.mark.parametrize(
    ("version", "config"), [(1, {}), (3, {}), (3, {"norm_before_residual": True})], ids=["1", "3", "3-normed"]
)
def test_the_native_head_guesses_as_the_formulas_say(tmp_path: Path, version: int, config: dict[str, Any]) -> None:
    head = load_eagle(write_head(tmp_path / "head", TARGET, version, **config), TARGET)
    reader, plain = Reader(head), PlainEagle(TARGET, head)
    table = np.random.default_rng(1).permutation(400)[: len(TEXT)]
    features = reader.read(TEXT, table, 0, len(TEXT) - 1)
    h = np.zeros(0)
    for position in range(1, len(TEXT)):
        h = plain.enter(TEXT[position], position, plain.g(features[position - 1]))
    got, chances = reader.draft(TEXT, table, 4)
    for depth in range(4):
        expected = plain.chances(h)
        rank = int(np.flatnonzero(head.vocab == got[depth])[0])
        # float16 keys and values and bfloat16 weights: near ties may fall the other way, chances are close
        assert expected[rank] > 0.9 * expected.max()
        assert chances[depth] == pytest.approx(expected[rank], rel=0.1)
        h = plain.enter(got[depth], len(TEXT) + depth, h)


def test_chunks_sharing_and_company_leave_drafts_as_they_are(tmp_path: Path) -> None:
    head = load_eagle(write_head(tmp_path / "head", TARGET, 3), TARGET)
    table = np.arange(len(TEXT))
    whole = Reader(head)
    whole.read(TEXT, table, 0, len(TEXT) - 1)
    expected = whole.draft(TEXT, table, 5)
    pieces = Reader(head)
    for begin, end in ((0, 7), (7, 8), (8, 30), (30, len(TEXT) - 1)):
        pieces.read(TEXT, table, begin, end)
    other, branch = [*TEXT[:20], *TEXT[:10]], np.concatenate([table[:20], np.arange(100, 110)])
    pieces.read(other, branch, 20, 29)  # shares 20 positions
    assert pieces.draft(TEXT, table, 5) == expected
    ids, chances = pieces.eagle.draft([int32(branch), int32(table)], [other[-1], TEXT[-1]], 5, 0.0)
    assert (ids[1].tolist(), chances[1].tolist()) == expected


def test_a_draft_ends_where_its_chance_falls_below_the_least(tmp_path: Path) -> None:
    head = load_eagle(write_head(tmp_path / "head", TARGET, 3), TARGET)
    reader, table = Reader(head), np.arange(len(TEXT))
    reader.read(TEXT, table, 0, len(TEXT) - 1)
    ids, chances = reader.draft(TEXT, table, DEEPEST)
    worth = np.linspace(0.3, 1, 16, dtype=np.float32)
    products = np.cumprod([worth[int(chance * 16)] for chance in chances])
    least = float(products[2] * 1.001)
    found, _ = reader.eagle.draft([int32(table[: len(TEXT)])], [TEXT[-1]], DEEPEST, least, worth)
    cut = found[0].tolist()
    size = int((products >= least).sum())
    assert 0 < size < DEEPEST
    assert cut == ids[:size] + [-1] * (DEEPEST - size)


def test_features_of_the_last_layer_and_out_of_range_layers() -> None:
    plan = CpuPlan(TARGET, num_slots=64, threads=1, captures=(0, 6))
    table = int32(range(8))
    run(plan, TEXT, table, 0, 8)
    with pytest.raises(ValueError, match="out of range"):
        CpuPlan(TARGET, num_slots=64, threads=1, captures=(7,))


@pytest.mark.parametrize("layer", ["midlayer.", "layers.0."])
def test_both_names_of_the_layer_are_read(tmp_path: Path, layer: str) -> None:
    heads = [load_eagle(write_head(tmp_path / name, TARGET, 3, layer=name), TARGET) for name in ("midlayer.", layer)]
    assert np.array_equal(heads[0].wq.data, heads[1].wq.data)
    assert heads[1].captures == (2, 3, 3)
    assert len(heads[1].vocab) == 50 and heads[1].vocab.max() < 100 and (np.diff(heads[1].vocab) > 0).all()


def test_layers_named_by_the_config_are_captured_one_later(tmp_path: Path) -> None:
    settings = {"use_aux_hidden_state": True, "eagle_aux_hidden_state_layer_ids": [0, 2, 5]}
    assert load_eagle(write_head(tmp_path / "h", TARGET, 3, eagle_config=settings), TARGET).captures == (1, 3, 6)


def test_a_pickled_checkpoint_is_read_without_running_it(tmp_path: Path) -> None:
    import torch

    folder = write_head(tmp_path / "head", TARGET, 1)
    expected = load_eagle(folder, TARGET)
    tensors = load_file(folder / "model.safetensors")
    torch.save({name: torch.from_numpy(value) for name, value in tensors.items()}, folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    assert np.array_equal(load_eagle(folder, TARGET).fc.data, expected.fc.data)
    torch.save({"fc.weight": Path("/")}, folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match="can't be read"):
        load_eagle(folder, TARGET)


def test_int8_rows_and_their_scales_are_q8_0(tmp_path: Path) -> None:
    folder = write_head(tmp_path / "head", TARGET, 3)
    tensors = load_file(folder / "model.safetensors")
    fc = tensors.pop("fc.weight")
    scales = (np.abs(fc).max(1, keepdims=True) / 127).astype(np.float16)
    whole = np.rint(fc / scales.astype(np.float32)).astype(np.int8)
    save_file(tensors | {"fc.weight": whole, "fc.weight_scale": scales}, folder / "model.safetensors")
    weight = load_eagle(folder, TARGET).fc
    from sapwood.kernels.formats import dequantize

    assert weight.format is Format.Q8_0
    assert np.array_equal(dequantize(weight), whole * scales.astype(np.float32))


def damaged(folder: Path, change: str) -> None:
    """Break a head's folder in one way."""
    file, config = folder / "model.safetensors", folder / "config.json"
    tensors, described = load_file(file), json.loads(config.read_text())
    if change == "no config":
        config.unlink()
    elif change == "no tensors":
        file.unlink()
    elif change == "lost tensor":
        del tensors["midlayer.mlp.up_proj.weight"]
        save_file(tensors, file)
    elif change == "d2t":
        save_file(tensors | {"d2t": tensors["d2t"] + 100}, file)
    elif change == "other width":
        config.write_text(json.dumps(described | {"hidden_size": 128}))
    elif change == "layers":
        config.write_text(json.dumps(described | {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 2, 77]}}))
    elif change == "truncated":
        file.write_bytes(file.read_bytes()[:-100])


@pytest.mark.parametrize(
    "change", ["no config", "no tensors", "lost tensor", "d2t", "other width", "layers", "truncated"]
)
def test_what_is_wrong_with_a_folder_is_said(tmp_path: Path, change: str) -> None:
    folder = write_head(tmp_path / "head", TARGET, 3)
    damaged(folder, change)
    with pytest.raises(ModelError, match=str(folder)):
        load_eagle(folder, TARGET)


@pytest.mark.parametrize("version", [1, 3])
@pytest.mark.parametrize(
    "settings", [{}, {"temperature": 0.8, "seed": 4}, {"presence_penalty": 0.4, "logprobs": 1}], ids=str
)
def test_the_text_is_the_same_with_a_head_that_knows_nothing(
    tmp_path: Path, version: int, settings: dict[str, Any]
) -> None:
    target = fake_model().decoder
    captures = {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 0, 1]}} if version == 3 else {}
    folder = write_head(tmp_path / "head", target, version, **captures)
    plain, drafting = Driver(), Driver(speculative=f"eagle:{folder}")
    drafts = drafting.scheduler._drafts
    assert drafts is not None
    drafts._depth = lambda request: (min(4, request.max_len - len(request.ids) - 1), 0.0)  # type: ignore[method-assign]
    for driver in (plain, drafting):
        for i, prompt in enumerate(["Tell me a story", "Tell me a tale", "x"]):
            driver.submit(str(i), prompt, max_tokens=50, **settings)
        driver.finish()
    for rid, outcome in plain.outcomes.items():
        assert drafting.outcomes[rid].ids == outcome.ids
        assert [one.logprob for one in drafting.outcomes[rid].logprobs] == [one.logprob for one in outcome.logprobs]
    assert sum(outcome.usage.drafted_tokens for outcome in drafting.outcomes.values()) > 100


def test_what_chances_are_worth_is_learned(tmp_path: Path) -> None:
    head = load_eagle(write_head(tmp_path / "head", TARGET, 3), TARGET)
    reader, table = Reader(head), int32(range(len(TEXT)))
    reader.read(TEXT, table, 0, len(TEXT) - 1)
    drafter = EagleDrafter(reader.eagle)
    wish = Wish("a", TEXT[-1], table, 3, 0.0)
    (before,) = drafter.propose([wish])
    for _ in range(200):
        drafter.propose([wish])
        drafter.accept("a", [before.ids[0], before.ids[1] + 1])  # the first always comes true, the second never
    (after,) = drafter.propose([wish])
    assert after.ids == before.ids and before.chances is not None and after.chances is not None
    _, (shares, *_) = reader.eagle.draft([table], [TEXT[-1]], 2, 0.0)
    if int(shares[0] * 16) != int(shares[1] * 16):
        assert after.chances[0] > 0.9 and after.chances[1] < 0.1
    else:
        assert 0.3 < after.chances[0] < 0.7


def test_ways_of_drafting_that_don_t_exist_are_refused(tmp_path: Path) -> None:
    for option in ("medusa", "ngram:x", "eagle"):
        with pytest.raises(InvalidRequest):
            Driver(speculative=option)
    with pytest.raises(InvalidRequest, match="cpu backend"):
        Driver(speculative=f"eagle:{tmp_path}", backend="reference")


def test_a_model_is_known_by_its_norms() -> None:
    assert identity(decoder("llama", Format.F32)) == identity(decoder("llama", Format.Q8_0))
    assert identity(decoder("llama")) != identity(decoder("qwen"))
