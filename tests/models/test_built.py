"""What `sapwood build` wrote starts as the model did, and says what is wrong when it can't."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from sapwood.errors import ModelError
from sapwood.runtime.models.built import PLAN, WEIGHTS, Built, write_built
from sapwood.runtime.models.load import load_model


def build(model: Path, out: Path) -> Built:
    source = load_model(model)
    return write_built(
        out,
        name=source.name,
        model=source.path,
        model_fingerprint=source.fingerprint,
        decoder=source.decoder,
    )


@pytest.fixture
def model(smollm2_path: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copy(smollm2_path, tmp_path / "small.gguf"))


@pytest.fixture
def out(model: Path, tmp_path: Path) -> Path:
    build(model, tmp_path / "plan")
    return tmp_path / "plan"


def edit(out: Path, **changes: object) -> None:
    values = json.loads((out / PLAN).read_text())
    (out / PLAN).write_text(json.dumps(values | changes))


def test_a_plan_loads_as_the_model_that_it_was_built_of(model: Path, out: Path) -> None:
    plain, built = load_model(model), load_model(out)
    assert (built.name, built.path, built.fingerprint) == (plain.name, plain.path, plain.fingerprint)
    assert plain.packed is None and built.packed == out / WEIGHTS


def test_the_memory_map_covers_the_file(model: Path, out: Path) -> None:
    parts = json.loads((out / PLAN).read_text())["parts"]
    starts = [part["start"] for part in parts]
    assert starts == sorted(set(starts)) and starts[0] == 0 and starts[-1] < (out / WEIGHTS).stat().st_size
    assert parts[0]["name"] == "token_embd.weight" and len(parts) == 1 + 7 * len(load_model(model).decoder.layers)


def test_a_model_that_changed_makes_the_plan_stale(model: Path, out: Path) -> None:
    with open(model, "r+b") as file:
        file.seek(model.stat().st_size // 2)
        file.write(b"changed")
    with pytest.raises(ModelError, match="has changed since .* sapwood build"):
        load_model(out)
    build(model, out)
    assert load_model(out).packed is not None


def test_a_model_that_is_gone_is_named(model: Path, out: Path) -> None:
    model.unlink()
    with pytest.raises(ModelError, match="small.gguf, where no model is any more"):
        load_model(out)


def test_a_plan_of_itself_is_refused(out: Path) -> None:
    edit(out, model=str(out))
    with pytest.raises(ModelError, match="where no model is"):
        load_model(out)


@pytest.mark.parametrize("change", [{"packing": "0" * 32}, {"form": 2}])
def test_weights_that_lie_differently_are_refused(out: Path, change: dict[str, object]) -> None:
    edit(out, sapwood="0.0.1", **change)
    with pytest.raises(ModelError, match="built by Sapwood 0.0.1, which packs weights differently"):
        load_model(out)


def test_damage_is_found_before_the_start(out: Path) -> None:
    whole = (out / WEIGHTS).read_bytes()
    for damaged in (whole[:-64], b"\1" + whole[1:], b""):
        (out / WEIGHTS).write_bytes(damaged)
        with pytest.raises(ModelError, match="damaged or not the file"):
            load_model(out)
    (out / WEIGHTS).unlink()
    with pytest.raises(ModelError, match="damaged or not the file"):
        load_model(out)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"form": "one"}'])
def test_a_damaged_plan_says_so_and_can_be_built_over(model: Path, out: Path, text: str) -> None:
    (out / PLAN).write_text(text)
    with pytest.raises(ModelError, match="damaged or of another version"):
        load_model(out)
    build(model, out)
    assert load_model(out).packed is not None


def test_a_build_that_was_broken_off_is_built_over(model: Path, out: Path) -> None:
    (out / PLAN).unlink()
    (out / f"{WEIGHTS}.partial").write_bytes(b"half")
    build(model, out)
    assert sorted(path.name for path in out.iterdir()) == [PLAN, WEIGHTS]


def test_a_folder_of_other_things_is_left_alone(model: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    with pytest.raises(ModelError, match="holds other files"):
        build(model, tmp_path / "mine")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["letter.txt"]
