"""What can be changed and kept while a real backend process serves, or over its restart."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sapwood.runtime.client import Client
from sapwood.runtime.messages import Sampling

GREEDY = Sampling(max_tokens=40, temperature=0, ignore_eos=True)
PROMPTS = [f"{'a hot beginning ' * (i % 4)}question {i}" for i in range(24)]
BRANCHES = [[1 + branch, *(1 + (i * 37) % 250 for i in range(999))] for branch in range(10)]


@pytest.fixture
def client() -> Iterator[Client]:
    with Client.launch("fake", num_slots=16_384, threads=1, max_running=4) as client:
        yield client


def test_the_policy_changes_under_load_and_nobody_is_lost_or_answered_differently(client: Client) -> None:
    alone = [client.generate(prompt, GREEDY).ids for prompt in PROMPTS]
    client.ask("flush")
    with ThreadPoolExecutor(len(PROMPTS)) as pool:
        calls = [pool.submit(client.generate, prompt, GREEDY) for prompt in PROMPTS]
        for policy in ("lpm", "dfs-weight", "priority", "fcfs"):
            assert client.ask("policy", policy=policy) == policy
        assert [call.result().ids for call in calls] == alone


def test_a_quota_set_while_it_runs_holds_at_once(client: Client) -> None:
    mine = [7] * 1000
    client.generate(mine, Sampling(max_tokens=1), namespace="mine")
    client.ask("quota", namespace="mine", num_slots=1100)
    for i in range(20):
        client.generate([20 + i] * 1000, Sampling(max_tokens=1), namespace="others")
    usage = client.generate(mine, Sampling(max_tokens=1), namespace="mine").usage
    assert usage.cached_tokens == 999


def test_a_restarted_backend_is_warm_with_ten_thousand_tokens_at_once(client: Client, tmp_path: Path) -> None:
    for ids in BRANCHES:
        client.generate(ids, Sampling(max_tokens=0))
    cold = [client.generate(ids, GREEDY).ids for ids in BRANCHES[:2]]
    client.ask("flush")
    for ids in BRANCHES:
        client.generate(ids, Sampling(max_tokens=0))
    file = str(tmp_path / "warm")
    assert client.ask("save", path=file) == {"num_tokens": 10_000}
    client.restart()
    began = time.perf_counter()
    assert client.ask("load", path=file) == {"num_tokens": 10_000}
    assert time.perf_counter() - began < 1
    assert all(client.generate(ids, Sampling(max_tokens=1)).usage.cached_tokens == 999 for ids in BRANCHES)
    assert [client.generate(ids, GREEDY).ids for ids in BRANCHES[:2]] == cold
