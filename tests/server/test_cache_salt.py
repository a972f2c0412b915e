"""Tenants with salts of their own never learn what others have asked."""

from __future__ import annotations

import httpx
import pytest

PROMPT = "a secret that only one of them has written down"


def cached(http: httpx.Client, salt: str | None) -> int:
    fields = {"prompt": PROMPT, "max_tokens": 1, "temperature": 0} | ({} if salt is None else {"cache_salt": salt})
    answer = http.post("/v1/completions", json=fields)
    assert answer.status_code == 200
    usage = answer.json()["usage"]
    cached: int = usage["prompt_tokens_details"]["cached_tokens"]
    assert cached in (0, usage["prompt_tokens"] - 1), "nothing, or all but the token whose logits are wanted"
    return cached


@pytest.mark.parametrize("order", [["a", "b", None], [None, "b", "a"]])
def test_the_first_request_of_each_tenant_finds_nothing_and_its_second_everything(
    http: httpx.Client, order: list[str | None]
) -> None:
    http.post("/flush_cache")
    for salt in order:
        assert cached(http, salt) == 0, "zero is reported, as zero"
        assert cached(http, salt) > 0


def test_a_snapshot_of_one_tenant_is_not_another_s(http: httpx.Client) -> None:
    http.post("/flush_cache")
    cached(http, "a")
    assert http.post("/cache/save", json={"name": "salted", "cache_salt": "b"}).json()["num_tokens"] == 0
    assert http.post("/cache/save", json={"name": "salted", "cache_salt": "a"}).json()["num_tokens"] > 0
    http.post("/flush_cache")
    http.post("/cache/load", json={"name": "salted"})
    assert [cached(http, salt) > 0 for salt in ("b", None, "a")] == [False, False, True]
