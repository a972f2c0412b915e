"""`sapwood build`, and the commands that start from what it wrote."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import sapwood


@pytest.fixture(scope="module")
def plan(smollm2_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("built") / "plan"
    result = sapwood("build", str(smollm2_path), "--out", str(out))
    assert result.returncode == 0 and f"sapwood serve {out}" in " ".join(result.stderr.split()), result
    return out


def test_generate_answers_from_a_plan_as_from_the_model(smollm2_path: Path, plan: Path) -> None:
    asked = ("generate", "Name a river.", "--temperature", "0", "--max-tokens", "12", "--model")
    from_model, from_plan = sapwood(*asked, str(smollm2_path)), sapwood(*asked, str(plan))
    assert from_plan.stdout == from_model.stdout != "", from_plan


def test_a_plan_is_for_the_backend_that_it_was_built_for(plan: Path) -> None:
    result = sapwood("generate", "hi", "--model", str(plan), "--backend", "reference")
    assert result.returncode == 1 and "packed for the cpu backend" in " ".join(result.stderr.split())


@pytest.mark.parametrize(("model", "part"), [("fake", "no file"), ("no-such-model", "sapwood pull")])
def test_what_has_no_file_can_not_be_built(model: str, part: str, tmp_path: Path) -> None:
    result = sapwood("build", model, "--out", str(tmp_path / "out"))
    said = " ".join(result.stderr.split())
    assert result.returncode == 1 and part in said and "Traceback" not in said
    assert not (tmp_path / "out").exists()


def test_a_plan_is_not_built_of_a_plan(plan: Path, tmp_path: Path) -> None:
    result = sapwood("build", str(plan), "--out", str(tmp_path / "out"))
    assert result.returncode == 1 and "built already" in result.stderr
