"""The client against a real backend process: sync, async, streams, cancelling, many at once."""

from __future__ import annotations

import asyncio
import os
import stat
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from sapwood.errors import BackendDied, Cancelled, DeadlineExceeded, GrammarError, InvalidRequest
from sapwood.runtime.client import Client
from sapwood.runtime.messages import GrammarSpec, Reply, Sampling

GREEDY = Sampling(max_tokens=24, temperature=0)
ENDLESS = Sampling(max_tokens=4000, temperature=0, ignore_eos=True)


def until(condition: Any) -> None:
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline, "it never came to pass"
        time.sleep(0.01)


def test_generate_stream_and_their_async_twins_agree(client: Client) -> None:
    whole = client.generate("Tell me a story", GREEDY)
    assert len(whole.ids) == 24 and whole.finish_reason == "length"
    assert whole.text == client.tokenizer.decode(whole.ids)
    chunks = list(client.stream("Tell me a story", GREEDY))
    assert "".join(chunk.text for chunk in chunks) == whole.text
    assert len(chunks) > 1 and chunks[-1].usage is not None and chunks[-1].usage.completion_tokens == 24

    async def both() -> None:
        assert (await client.agenerate("Tell me a story", GREEDY)).text == whole.text
        pieces = [chunk.text async for chunk in client.astream("Tell me a story", GREEDY)]
        assert "".join(pieces) == whole.text

    asyncio.run(both())


def test_a_stop_string_is_not_in_the_text(client: Client) -> None:
    text = client.generate("Tell me a story", GREEDY).text
    sampling = Sampling(max_tokens=24, temperature=0, stop=[text[7:10]])
    before = text[: text.find(text[7:10])]
    assert client.generate("Tell me a story", sampling).text == before
    assert "".join(chunk.text for chunk in client.stream("Tell me a story", sampling)) == before


def test_characters_are_never_torn(client: Client) -> None:
    sampling = Sampling(max_tokens=20, grammar=GrammarSpec("regex", "äöü🌧"), jump=False)
    chunks = [chunk.text for chunk in client.stream("x", sampling)]
    assert "".join(chunks) == "äöü🌧"
    assert not any("\ufffd" in chunk for chunk in chunks)


def test_many_threads_and_tasks_share_one_client(client: Client) -> None:
    prompts = [f"Prompt {i}" for i in range(40)]
    alone = [client.generate(prompt, GREEDY).text for prompt in prompts]
    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(lambda prompt: client.generate(prompt, GREEDY).text, prompts)) == alone

    async def tasks() -> list[str]:
        return [done.text for done in await asyncio.gather(*(client.agenerate(p, GREEDY) for p in prompts))]

    assert asyncio.run(tasks()) == alone


def test_errors_come_as_the_exceptions_they_are(client: Client) -> None:
    with pytest.raises(InvalidRequest, match="temperature"):
        client.generate("x", Sampling(temperature=-1))
    with pytest.raises(GrammarError):
        client.generate("x", Sampling(grammar=GrammarSpec("regex", "(")))
    with pytest.raises(DeadlineExceeded):
        client.generate("x", ENDLESS, timeout=0.05)
    with pytest.raises(InvalidRequest, match="asked"):
        client.ask("nonsense")
    with pytest.raises(InvalidRequest, match="policy"):
        client.ask("policy", policy="nonsense")
    with pytest.raises(InvalidRequest, match="arguments"):
        client.ask("pin", idz=[1])


def test_cancelling_in_any_way_frees_the_slots(client: Client) -> None:
    client.ask("flush")

    def idle() -> bool:
        stats = client.ask("stats")
        return bool(stats["num_running"] == 0 and stats["num_locked"] == 0)

    stream = client.stream("Tell me", ENDLESS)
    next(stream)
    assert not idle()
    stream.close()
    until(idle)

    async def cancelled() -> None:
        task = asyncio.create_task(client.agenerate("Tell me", ENDLESS))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    until(idle)

    got: list[Reply] = []
    call = client.submit(client._request("Tell me", ENDLESS, stream=False), got.append)
    until(lambda: not idle())
    call.cancel()
    until(lambda: got)
    assert getattr(got[0], "kind", "") == "cancelled"

    errors: list[Exception] = []

    def blocked() -> None:
        try:
            client.generate("Tell me", ENDLESS, rid="mine")
        except Cancelled as error:
            errors.append(error)

    thread = threading.Thread(target=blocked)
    thread.start()
    until(lambda: not idle())
    with pytest.raises(InvalidRequest, match="mine"):
        client.generate("Tell me", GREEDY, rid="mine")
    client.abort("mine")
    thread.join(5)
    assert errors and idle()


def test_asking_works_while_requests_run(client: Client) -> None:
    ids = client.tokenizer.encode("A prefix to keep")
    client.generate(ids, Sampling(max_tokens=0))
    assert client.ask("pin", ids=ids) == {"num_pinned": len(ids)}
    client.ask("flush")
    usage = client.generate(ids, Sampling(max_tokens=1)).usage
    assert usage.cached_tokens == len(ids) - 1
    (root,) = client.ask("tree")["children"]
    (node,) = [child for child in root["children"] if child["head"][:8] == ids[:8]]
    assert node["locks"] == 1 and node["len"] <= len(ids)
    client.ask("unpin", ids=ids)
    with pytest.raises(InvalidRequest, match="not pinned"):
        client.ask("unpin", ids=ids)
    for policy in ("fcfs", "lpm", "dfs-weight"):
        assert client.ask("policy", policy=policy) == policy
        assert len(client.generate("x", GREEDY).ids) == 24
    assert client.ask("stats")["hit_rate"] > 0


def test_a_client_that_vanishes_loses_its_requests_within_a_second(tmp_path: Path) -> None:
    address = f"ipc://{tmp_path / 'socket'}"
    with Client.launch("fake", address=address, num_slots=4096, threads=1) as client:
        assert stat.S_IMODE(os.stat(tmp_path / "socket").st_mode) & 0o077 == 0, "only its user can open it"
        for stream in ("True", "False"):
            code = (
                "import sys; from sapwood.runtime.client import Client, Sampling\n"
                f"client = Client.connect({address!r})\n"
                f"client.submit(client._request('Tell me', Sampling(max_tokens=4000, ignore_eos=True), stream={stream}), print)\n"
                "print(flush=True); sys.stdin.read()"
            )
            other = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            assert other.stdout is not None and other.stdin is not None
            other.stdout.readline()
            until(lambda: client.ask("stats")["num_running"] == 1)
            other.kill()
            other.wait()
            gone = time.monotonic()
            until(lambda: client.ask("stats")["num_running"] == 0)
            assert time.monotonic() - gone < 1.5
            other.stdout.close()
            other.stdin.close()


def test_connecting_where_nobody_listens_is_an_error_soon(tmp_path: Path) -> None:
    (tmp_path / "stale").touch()
    for address in (f"ipc://{tmp_path / 'nobody'}", f"ipc://{tmp_path / 'stale'}"):
        began = time.monotonic()
        with pytest.raises(BackendDied, match="no backend answers"):
            Client.connect(address)
        assert time.monotonic() - began < 4
    with pytest.raises(InvalidRequest):
        Client.connect("nonsense")
