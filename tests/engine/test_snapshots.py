"""Saved and loaded keys and values give the same bits, and a wrong file never does harm."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from in_process import TOKENIZER, Driver

from sapwood.errors import InvalidRequest
from sapwood.runtime.admin import Admin
from sapwood.runtime.messages import Answer, Ask, Failed

TEXTS = ["Tell me a story about trees", "Tell me a story about the sea", "Another one"]


def ask(driver: Driver, what: str, **args: object) -> object:
    Admin(driver.system).take(b"admin", Ask("a", what, args))  # type: ignore[arg-type]
    until = time.monotonic() + 30
    while not (replies := driver.scheduler.outbox.replies.pop(b"admin", [])):
        assert time.monotonic() < until, "no answer"
        driver.scheduler.step()
    if isinstance(replies[0], Failed):
        raise InvalidRequest(replies[0].message)
    assert isinstance(replies[0], Answer)
    return replies[0].value


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    driver = Driver()
    for text in TEXTS:
        driver.complete(text, max_tokens=8)
    driver.complete("Not for everybody", max_tokens=1, namespace="mine")
    answer = ask(driver, "save", path=str(tmp_path / "cache"))
    assert answer == {"num_tokens": driver.tree.num_slots - driver.tree.num_free - 17}
    assert [file.name for file in tmp_path.iterdir()] == ["cache"]
    return tmp_path / "cache"


def test_a_restart_with_a_snapshot_is_warm_and_gives_the_same_bits(saved: Path) -> None:
    driver = Driver()
    ask(driver, "load", path=str(saved))
    driver.tree.check()
    for text in TEXTS:
        cold = Driver().complete(text, max_tokens=12, logprobs=2)
        warm = driver.complete(text, max_tokens=12, logprobs=2)
        assert warm.usage.cached_tokens == len(text) - 1
        assert warm.ids == cold.ids and warm.logprobs == cold.logprobs
    assert driver.complete("Not for everybody", max_tokens=1, namespace="mine").usage.cached_tokens == 0
    assert ask(driver, "load", path=str(saved)) == {"num_tokens": 0}


def test_a_prefix_alone_can_be_saved(tmp_path: Path) -> None:
    driver = Driver()
    for text in TEXTS:
        driver.complete(text, max_tokens=2)
    ids = TOKENIZER.encode("Tell me a story about tents")
    assert ask(driver, "save", path=str(tmp_path / "prefix"), ids=ids) == {"num_tokens": 23}
    other = Driver()
    ask(other, "load", path=str(tmp_path / "prefix"))
    assert other.complete(TEXTS[1], max_tokens=1).usage.cached_tokens == 23
    assert other.complete(TEXTS[2], max_tokens=1).usage.cached_tokens == 0


def test_what_does_not_fit_is_left_out(saved: Path) -> None:
    driver = Driver(num_slots=40)
    ask(driver, "load", path=str(saved))
    driver.tree.check()
    assert driver.complete(TEXTS[2], max_tokens=8).ids == Driver().complete(TEXTS[2], max_tokens=8).ids


@pytest.mark.parametrize("harm", ["cut", "flipped", "empty", "missing", "text"])
def test_a_damaged_file_is_refused_and_changes_nothing(saved: Path, harm: str) -> None:
    content = bytearray(saved.read_bytes())
    content[len(content) // 2] ^= 1
    saved.write_bytes({"cut": bytes(content[:-100]), "flipped": bytes(content), "text": b"hello"}.get(harm, b""))
    if harm == "missing":
        saved.unlink()
    driver = Driver()
    with pytest.raises(InvalidRequest, match="can't be read" if harm == "missing" else "damaged"):
        ask(driver, "load", path=str(saved))
    assert driver.tree.num_free == driver.tree.num_slots


def test_a_snapshot_of_another_model_is_refused(saved: Path, smollm2_path: Path) -> None:
    driver = Driver(model=str(smollm2_path), num_slots=64)
    with pytest.raises(InvalidRequest, match="another model"):
        ask(driver, "load", path=str(saved))


def test_a_folder_that_is_not_there_is_an_error_that_says_so(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="No such file"):
        ask(Driver(), "save", path=str(tmp_path / "no" / "where"))
