"""What `examples/train_eagle` trains is what is served: the same head gives the same guesses in both."""

from __future__ import annotations

import argparse
import json
import random
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from decoders import decoder
from eagle_heads import PlainEagle

from sapwood.kernels.decoder import Decoder, Format
from sapwood.kernels.plan import Batch
from sapwood.kernels.reference import ReferencePlan
from sapwood.runtime.models.eagle import load_eagle

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "train_eagle"))
import data  # noqa: E402
import train  # noqa: E402
from export import read_head, write_head  # noqa: E402
from head import Head, Target  # noqa: E402
from loss import soft_cross_entropy  # noqa: E402

CAPTURES = (1, 2, 3)
TEXT = [int(i) for i in np.random.default_rng(2).integers(0, 100, 12)]


def target_decoder(kind: str) -> Decoder:
    return decoder(kind, Format.F32, num_layers=5)


@pytest.mark.parametrize("kind", ["llama", "qwen"])  # neighbouring pairs are rotated in one, halves in the other
def test_a_trained_head_guesses_the_same_when_it_is_served(tmp_path: Path, kind: str) -> None:
    torch.manual_seed(1)
    spec = target_decoder(kind)
    target = Target(spec, CAPTURES)
    head = Head(spec, len(CAPTURES), torch.arange(5, 95, 2), ffn=96)
    head.start_from(spec)
    facts = {"minutes": 0}
    write_head(tmp_path, SimpleNamespace(context_length=2048, name="tiny"), target, head, facts)  # type: ignore[arg-type]
    served = load_eagle(tmp_path, spec)
    assert served.captures == CAPTURES
    assert served.vocab.tolist() == head.vocab.tolist()

    again = Head(spec, len(CAPTURES), torch.arange(5, 95, 2), ffn=96)
    read_head(tmp_path, again)
    for name, weight in head.named_parameters():
        assert torch.allclose(again.get_parameter(name), weight, atol=float(weight.detach().abs().max()) / 100), name

    ids = torch.tensor([TEXT])
    features = torch.from_numpy(np.random.default_rng(3).standard_normal((1, len(TEXT), 3 * 64)).astype(np.float32))
    with torch.no_grad():
        states = head.passes(target.embed[ids].float(), head.project(features), 3)
    for depth in range(3):  # entry j of pass `depth`: true features up to entry j - depth, guesses after it
        plain = PlainEagle(spec, served)
        h = np.zeros(64)
        for entry in range(1, len(TEXT)):
            g = plain.g(features[0, entry - 1].numpy()) if entry < len(TEXT) - depth else h
            h = plain.enter(TEXT[entry], entry, g)
        got = states[depth][0, -1].numpy()
        assert np.abs(got - h).max() < 0.05 * np.abs(h).max()  # int8 and bfloat16 lie between them


def test_the_target_in_bfloat16_is_the_model() -> None:
    spec = target_decoder("llama")
    features, hidden = Target(spec, CAPTURES).run(torch.tensor([TEXT]))
    n = len(TEXT)
    at = np.arange(n, dtype=np.int32)
    plan = ReferencePlan(spec, num_slots=n, captures=CAPTURES)
    expected = plan.run(Batch(np.array(TEXT, np.int32), at, at, at * 0, [at], at, want_hidden=True))
    for got, exact in ((features, expected.features), (hidden, expected.hidden)):
        assert exact is not None
        assert np.abs(got[0].float().numpy() - exact).max() < 0.05 * np.abs(exact).max()


def test_the_loss_and_its_gradients_are_cross_entropy_s() -> None:
    torch.manual_seed(0)
    states, weight = torch.randn(2, 9, 16, requires_grad=True), torch.randn(30, 16, requires_grad=True)
    goal, goal_weight, scales = torch.randn(9, 16).bfloat16(), torch.randn(30, 16).bfloat16(), torch.tensor([1.0, 0.5])
    losses = soft_cross_entropy(states, weight, goal, goal_weight, scales)
    losses.sum().backward()
    got = [states.grad, weight.grad]
    states.grad = weight.grad = None
    wanted = (goal.float() @ goal_weight.float().T).softmax(-1)
    exact = -(wanted * (states @ weight.T).log_softmax(-1)).sum(-1).mean(-1)
    (exact * scales).sum().backward()
    assert torch.allclose(losses, exact, rtol=0.02)
    for mine, theirs in zip(got, [states.grad, weight.grad], strict=True):
        assert mine is not None and theirs is not None
        assert (mine - theirs).abs().max() < 0.03 * theirs.abs().max()


def test_training_lowers_the_loss_and_raises_acceptance(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    monkeypatch.setattr(train, "SKIPPED", 2)
    monkeypatch.setattr(train, "BATCH_TOKENS", 256)
    spec, rng = target_decoder("llama"), random.Random(0)
    target = Target(spec, CAPTURES)
    texts = []
    for _ in range(24):
        ids = [rng.randrange(100) for _ in range(4)]
        while len(ids) < 40:  # the model's own likeliest words, as greedy answers are
            _, hidden = target.run(torch.tensor([ids]))
            ids.append(int((hidden[0, -1] @ target.head.T).argmax()))
        texts.append(data.Conversation(ids, [(4, 40)], "question"))
    head = Head(spec, len(CAPTURES), torch.arange(100), ffn=96)
    before = train.evaluate(target, head, texts)
    train.train(target, head, texts, argparse.Namespace(seed=1, epochs=20, minutes=1.0, rate=1e-3))
    after = train.evaluate(target, head, texts)
    assert after[0] > before[0] + 0.1
    assert (after > 0.3).all()


def test_texts_that_run_in_circles_are_known(tmp_path: Path) -> None:
    assert data.runs_in_circles([1, 2, 3, 4, 5] * 20)
    assert not data.runs_in_circles(list(range(100)))
    conversation = data.Conversation([1, 2, 3], [(1, 3)], "text")
    data.save([conversation], tmp_path / "texts.jsonl", 2)
    assert data.load(tmp_path / "texts.jsonl") == [conversation]
    assert json.loads((tmp_path / "texts.jsonl").read_text())["kind"] == "text"
