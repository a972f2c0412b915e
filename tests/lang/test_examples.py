"""Every example runs; with answers from a script, or with the fake model's noise, which grammars make into records."""

from __future__ import annotations

import csv
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

import sapwood as sw
from sapwood.lang.mock import MockBackend

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def example(name: str) -> dict[str, Any]:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return vars(module)


def test_the_agent_calls_its_tools_until_it_finishes(capsys: pytest.CaptureFixture[str]) -> None:
    sw.set_default_backend(
        MockBackend([
            " I count the days.\n", '{"name": "days_between", "arguments": {"first": "2024-02-01", "second": "2024-03-01"}}',
            " I double it.\n", '{"name": "calculate", "arguments": {"expression": "29 * (1 + 1)"}}',
            " Done.\n", '{"name": "finish", "arguments": {"answer": "58"}}',
        ])
    )  # fmt: skip
    example("agent")["main"]("How many?")
    out = capsys.readouterr().out
    assert "days_between" in out and "Answer: 58" in out


def test_a_call_that_is_cut_off_says_so() -> None:
    with pytest.raises(sw.ProgramError, match=r"gen\('call_0'\) at .*agent.py:\d+ failed: max_tokens ended the text"):
        example("agent")["agent"].run(question="x", max_steps=1, temperature=0)


def test_records_are_extracted_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for n in range(3):
        (tmp_path / f"{n}.txt").write_text(f"Please send {n + 1} lamps. Yours, Ada")
    order = {"customer": "Ada", "product": "lamp", "quantity": 2, "priority": "normal"}
    main = example("extract")["main"]
    sw.set_default_backend(MockBackend(lambda text, request: json.dumps(order)))
    main(tmp_path, tmp_path / "records.jsonl", tmp_path / "table.csv")
    main(tmp_path, tmp_path / "records.jsonl", tmp_path / "table.csv")
    out = capsys.readouterr().out
    assert "3 letters read now" in out and "0 letters read now, 3 of 3 orders" in out
    rows = list(csv.DictReader((tmp_path / "table.csv").read_text().splitlines()))
    assert [row["file"] for row in rows] == ["0.txt", "1.txt", "2.txt"] and rows[0]["product"] == "lamp"


def test_thoughts_are_weighed(capsys: pytest.CaptureFixture[str]) -> None:
    example("tree_of_thought")["main"]("What is 2 + 2?")
    out = capsys.readouterr().out
    assert "Answer:" in out and int(out.splitlines()[-1].split()[0]) > 500


def test_a_citation_is_a_sentence_of_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bridge.txt").write_text("The bridge was built in 1873. It is made of stone. A toll (2d.) was paid.")
    (tmp_path / "other.txt").write_text("Geese fly south. The mill was built in 1901.")
    example("rag")["main"](tmp_path, "When was the bridge built?")
    quoted = capsys.readouterr().out.splitlines()[-1]
    assert quoted in (
        '    "The bridge was built in 1873." (bridge.txt)',
        '    "The mill was built in 1901." (other.txt)',
    )


def test_reviews_are_classified(capsys: pytest.CaptureFixture[str]) -> None:
    example("classify")["main"]()
    assert "known examples right" in capsys.readouterr().out


def test_a_conversation_goes_on_and_can_be_taken_back() -> None:
    lines = iter(["Hello", "/retry", "Bye", ""])
    shown: list[str] = []
    sw.set_default_backend(MockBackend(["one", "two", "three"]))
    state = example("chat")["talk"].run(lambda: next(lines), shown.append)
    assert shown[::2] == ["one", "two", "three"] and state.error() is None


@pytest.mark.parametrize("name", ["quickstart"])
def test_the_first_example_runs(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    example(name)["main"]()
    assert "prompt tokens came from the tree" in capsys.readouterr().out
