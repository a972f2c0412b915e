"""Pooling: the last token's hidden state, or the exact mean of all."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import openai
import pytest

from sapwood.kernels import open_plan
from sapwood.kernels.plan import Batch
from sapwood.runtime.client import Client
from sapwood.runtime.fake import fake_model
from sapwood.runtime.messages import Sampling

READ = Sampling(max_tokens=0, temperature=0.0)
LONG = "a text of some length, so that it takes several steps to read. " * 6  # more rows than one step scores


def hidden(client: Client, ids: list[int], pooling: str, **fields: object) -> list[float]:
    return client.generate(ids, READ, want_hidden=True, pooling=pooling, **fields).hidden


def test_the_mean_is_that_of_each_prefix_s_last_state(backend: Client) -> None:
    ids = backend.tokenizer.encode(LONG)[:140]
    states = [hidden(backend, ids[: end + 1], "last") for end in range(len(ids))]
    expected = np.add.reduce(np.asarray(states), axis=0) / len(ids)
    assert hidden(backend, ids, "mean") == expected.tolist()  # to the last bit, although all of it is cached by now


def test_the_mean_is_the_reference_s() -> None:
    with Client.launch("fake", backend="reference") as client:
        ids = client.tokenizer.encode(LONG)
        got = hidden(client, ids, "mean")
    count = len(ids)
    places = np.arange(count, dtype=np.int32)
    plan = open_plan(fake_model().decoder, backend="reference", num_slots=count)
    batch = Batch(
        np.array(ids, np.int32), places, places, np.zeros(count, np.int32), [places], places, want_hidden=True
    )
    states = plan.run(batch).hidden
    assert states is not None and states.shape[0] == count
    np.testing.assert_allclose(got, states.mean(axis=0), rtol=1e-4, atol=1e-5)


def test_the_mean_doesn_t_depend_on_what_else_is_running(backend: Client) -> None:
    ids = backend.tokenizer.encode(LONG)
    alone = hidden(backend, ids, "mean", namespace="alone")
    with ThreadPoolExecutor(4) as pool:
        fields = [("mean", "a"), ("last", "b"), ("mean", "a"), ("mean", "b")]
        several = list(pool.map(lambda one: hidden(backend, ids, one[0], namespace=one[1]), fields))
    assert several[0] == several[2] == several[3] == alone != several[1]


def test_a_text_goes_on_after_its_mean_was_taken(backend: Client) -> None:
    ids = backend.tokenizer.encode(LONG)
    sampling = Sampling(max_tokens=5, temperature=0.0, ignore_eos=True)
    with_mean = backend.generate(ids, sampling, want_hidden=True, pooling="mean")
    assert with_mean.ids == backend.generate(ids, sampling).ids
    assert with_mean.hidden == hidden(backend, ids, "mean")


def test_pooling_is_an_extra_field_of_embeddings(ai: openai.OpenAI, backend: Client) -> None:
    ids = backend.tokenizer.encode(LONG)
    last, mean = (
        ai.embeddings.create(model="m", input=[ids], extra_body={"pooling": pooling}).data[0].embedding
        for pooling in ("last", "mean")
    )
    assert last == ai.embeddings.create(model="m", input=[ids]).data[0].embedding != mean
    raw = np.asarray(hidden(backend, ids, "mean"))
    np.testing.assert_allclose(mean, raw / np.linalg.norm(raw), atol=1e-6)
    assert np.linalg.norm(mean) == pytest.approx(1, abs=1e-6)


def test_another_pooling_is_refused(serve: Callable[..., str]) -> None:
    refused = httpx.post(serve() + "/v1/embeddings", json={"input": "a", "pooling": "max"})
    assert refused.status_code == 400 and refused.json()["error"]["param"] == "pooling"
