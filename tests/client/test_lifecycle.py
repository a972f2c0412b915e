"""Backends start, die, restart and end, and leave nothing behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sapwood.errors import BackendDied, InvalidRequest, ModelError
from sapwood.runtime.client import Client
from sapwood.runtime.messages import Sampling

ENDLESS = Sampling(max_tokens=4000, temperature=0, ignore_eos=True)


def exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def pid_of(client: Client) -> int:
    assert client._process is not None
    return client._process.pid


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for temporary files that the test can look into."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_a_killed_backend_fails_all_callers_at_once_and_can_be_restarted() -> None:
    with Client.launch("fake", num_slots=4096, threads=1) as client, ThreadPoolExecutor(8) as pool:
        before = client.generate("Tell me", Sampling(max_tokens=8, temperature=0)).text
        calls = [pool.submit(client.generate, f"Tell me {i}", ENDLESS) for i in range(8)]

        async def killed() -> float:
            waiting = asyncio.create_task(client.agenerate("Tell me", ENDLESS))
            await asyncio.sleep(0.1)
            began = time.monotonic()
            os.kill(pid_of(client), signal.SIGKILL)
            with pytest.raises(BackendDied, match="signal 9"):
                await waiting
            return began

        began = asyncio.run(killed())
        for call in calls:
            with pytest.raises(BackendDied):
                call.result(5)
        assert time.monotonic() - began < 1
        assert not client.is_alive
        with pytest.raises(BackendDied):
            client.generate("Tell me", ENDLESS)
        client.restart()
        assert client.generate("Tell me", Sampling(max_tokens=8, temperature=0)).text == before


def test_closing_leaves_no_process_and_no_file(scratch: Path) -> None:
    client = Client.launch("fake", num_slots=4096, threads=1)
    pid = pid_of(client)
    assert list(scratch.iterdir())
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(client.generate, "Tell me", ENDLESS)
        time.sleep(0.1)
        client.close()
        with pytest.raises(BackendDied):
            call.result(5)
    assert not exists(pid) and not list(scratch.iterdir())
    client.close()
    with pytest.raises(BackendDied):
        client.generate("Tell me", ENDLESS)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_backend_ends_with_its_owner_however_that_ends(how: signal.Signals, tmp_path: Path) -> None:
    code = (
        "from sapwood.runtime.client import Client, Sampling\n"
        "client = Client.launch('fake', num_slots=512, threads=1)\n"
        "print(client._process.pid, flush=True)\n"
        "client.generate('Tell me', Sampling(max_tokens=4000, ignore_eos=True))\n"
        "import time; time.sleep(60)"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    owner = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
    )
    assert owner.stdout is not None
    pid = int(owner.stdout.readline())
    time.sleep(0.05)
    owner.send_signal(how)
    owner.wait(5)
    owner.stdout.close()
    deadline = time.monotonic() + 3
    while exists(pid) or list(tmp_path.iterdir()):
        assert time.monotonic() < deadline, "the backend or its folder is still there"
        time.sleep(0.01)


def test_two_backends_on_one_address_is_an_error(tmp_path: Path) -> None:
    for address in (f"ipc://{tmp_path / 'socket'}", "tcp://127.0.0.1:0"):
        with Client.launch("fake", address=address, num_slots=512, threads=1) as first:
            with pytest.raises(InvalidRequest, match="choose another address"):
                Client.launch("fake", address=first.address, num_slots=512)
            with Client.connect(first.address) as second:
                assert second.generate("x", Sampling(max_tokens=2)).ids


def test_a_stale_socket_file_is_taken_over(tmp_path: Path) -> None:
    address = f"ipc://{tmp_path / 'socket'}"
    first = Client.launch("fake", address=address, num_slots=512, threads=1)
    os.kill(pid_of(first), signal.SIGKILL)
    first.close()
    with Client.launch("fake", address=address, num_slots=512, threads=1) as second:
        assert second.generate("x", Sampling(max_tokens=2)).ids


def test_what_is_wrong_at_the_start_is_said_and_nothing_is_left(scratch: Path) -> None:
    with pytest.raises(ModelError, match="no-such-model"):
        Client.launch("no-such-model")
    with pytest.raises(InvalidRequest, match="unknown backend options: slots"):
        Client.launch("fake", slots=3)
    with pytest.raises(InvalidRequest, match="num_slots"):
        Client.launch("fake", num_slots="many")
    with pytest.raises(InvalidRequest, match="policy"):
        Client.launch("fake", policy="nonsense")
    assert not list(scratch.iterdir())


def test_an_idle_backend_uses_no_processor_time() -> None:
    with Client.launch("fake", num_slots=512, threads=1) as client:
        client.generate("x", Sampling(max_tokens=2))
        statistics = Path(f"/proc/{pid_of(client)}/stat")
        if not statistics.exists():
            pytest.skip("needs /proc")

        def ticks() -> int:
            fields = statistics.read_text().rpartition(")")[2].split()
            return int(fields[11]) + int(fields[12])

        time.sleep(0.2)
        before = ticks()
        time.sleep(1)
        assert ticks() - before <= 1
