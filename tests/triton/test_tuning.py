"""The fastest configuration is found once for a shape, and remembered on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from triton.runtime.errors import OutOfResources

from sapwood.kernels.triton import tuning
from sapwood.kernels.triton.dot import INTERPRETED
from sapwood.kernels.triton.linear import W4_CONFIGS, linear
from sapwood.kernels.triton.tuning import Config, Tuner, choose, use
from sapwood.kernels.triton.weights import pack_w4, unpack

CONFIGS: list[Config] = [{"BLOCK": 16}, {"BLOCK": 32}, {"BLOCK": 64}]


class Card:
    """Says how long a launch took: `times` by BLOCK; one that isn't there is too large for it."""

    def __init__(self, times: dict[int, float]) -> None:
        self.times, self.launched = times, list[int]()

    def launch(self, config: Config) -> None:
        if config["BLOCK"] not in self.times:
            raise OutOfResources(300_000, 232_448, "shared memory")
        self.launched.append(config["BLOCK"])

    def measure(self, call: Callable[[], object]) -> float:
        call()
        return self.times[self.launched[-1]]


@pytest.fixture(autouse=True)
def after() -> Iterator[None]:
    yield
    use(None)


def test_each_shape_is_measured_once_and_remembered(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "card.json"
    card = Card({16: 2.0, 32: 1.0})
    tuner = Tuner(card.measure, file)
    for _ in range(2):
        assert tuner.best("k", (1, 2), CONFIGS, card.launch) == {"BLOCK": 32}
    assert card.launched == [16, 32]
    other = Card({16: 1.0, 32: 2.0})
    assert Tuner(other.measure, file).best("k", (1, 2), CONFIGS, other.launch) == {"BLOCK": 32}
    assert other.launched == []
    assert Tuner(other.measure, file).best("k", (1, 3), CONFIGS, other.launch) == {"BLOCK": 16}
    again = Tuner(card.measure, file)
    assert again.best("k", (1, 2), CONFIGS, card.launch) == {"BLOCK": 32}
    assert again.best("k", (1, 3), CONFIGS, card.launch) == {"BLOCK": 16} and len(card.launched) == 2


def test_a_configuration_that_is_no_longer_stated_is_measured_anew(tmp_path: Path) -> None:
    card = Card({16: 2.0, 32: 1.0, 64: 3.0})
    Tuner(card.measure, tmp_path / "f").best("k", (), CONFIGS, card.launch)
    assert Tuner(card.measure, tmp_path / "f").best("k", (), [CONFIGS[0], CONFIGS[2]], card.launch) == {"BLOCK": 16}


@pytest.mark.parametrize("content", ["", "[1]", '{"k ": 3}', "\x00"])
def test_a_damaged_file_is_measured_anew(content: str, tmp_path: Path) -> None:
    (tmp_path / "f").write_text(content)
    card = Card({16: 1.0})
    assert Tuner(card.measure, tmp_path / "f").best("k", ("",), CONFIGS, card.launch) == {"BLOCK": 16}
    assert '"BLOCK": 16' in (tmp_path / "f").read_text()


def test_a_card_that_can_run_none_says_so() -> None:
    card = Card({})
    with pytest.raises(OutOfResources):
        Tuner(card.measure, None).best("k", (), CONFIGS, card.launch)


@pytest.mark.skipif(not INTERPRETED, reason="a card measures")
def test_nothing_is_measured_in_the_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "card_file", lambda: pytest.fail("asked for the card"))
    card = Card({16: 2.0, 32: 1.0, 64: 1.0})
    assert choose("k", (), CONFIGS, card.launch) == CONFIGS[0] and card.launched == []


def test_nothing_is_measured_while_a_graph_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    card = Card({16: 2.0, 32: 1.0, 64: 3.0})
    use(Tuner(card.measure, None))
    assert choose("k", (1,), CONFIGS, card.launch) == CONFIGS[1]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    card.launched.clear()
    assert choose("k", (1,), CONFIGS, card.launch) == CONFIGS[1]
    assert choose("k", (2,), CONFIGS, card.launch) == CONFIGS[0] and card.launched == []


def test_every_configuration_computes_the_same_and_invariant_plans_take_the_first(device: str) -> None:
    taken: list[float] = []

    def measure(call: Callable[[], object]) -> float:
        call()
        taken.append(-len(taken))
        return taken[-1]  # the last one is the best

    use(Tuner(measure, None))
    scale = torch.rand(40, 2, device=device)
    weight = pack_w4(torch.randint(0, 16, (40, 64), dtype=torch.uint8, device=device), scale, -scale)
    x = torch.randn(3, 64, device=device).half()
    expected = x.float() @ unpack(weight).T
    linear(x, weight, invariant=True)
    assert taken == []
    torch.testing.assert_close(linear(x, weight), expected, rtol=1e-2, atol=1e-2 * float(expected.abs().max()))
    assert len(taken) == len(W4_CONFIGS)
