"""The same programs, on a server's OpenAI API: same texts and scores as on the backend itself."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sapwood as sw
from sapwood.runtime.client import Client
from sapwood.runtime.server.config import ServerConfig
from sapwood.runtime.server.serving import listen, server_of, url_of


@pytest.fixture
def url(client: Client, tmp_path: Path) -> Iterator[str]:
    config = ServerConfig(data_dir=str(tmp_path), port=0)
    taken = listen(config.host, config.port)
    server = server_of(client, config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [taken]}, daemon=True)
    thread.start()
    yield url_of(taken, config)
    server.should_exit = True
    thread.join(10)


@sw.function
def talk(s: Any) -> None:
    s += sw.system("Be brief.") + sw.user("Name a river.")
    s += sw.assistant("It is " + sw.gen("river", max_tokens=6, temperature=0))
    s += sw.user("A number?") + sw.assistant(sw.gen("number", regex="[0-9]{3}", temperature=0))


@sw.function
def tell(s: Any) -> None:
    s += "Once " + sw.gen("one", max_tokens=5, temperature=0, stop="~") + " and "
    s += sw.select("two", ["ab", "abcd", "xyz"])


@pytest.mark.parametrize("program", [talk, tell])
def test_a_server_gives_what_its_backend_gives(program: sw.Function, url: str) -> None:
    here, there = program.run(), program.run(backend=sw.RuntimeEndpoint(url))
    assert there.variables() == here.variables() and there.messages() == here.messages()
    if "two" in here:
        scores = [(state.get_meta_info("two") or {})["scores"] for state in (here, there)]
        assert scores[0] == pytest.approx(scores[1], abs=1e-4)


def test_a_server_s_answer_streams(url: str) -> None:
    backend = sw.RuntimeEndpoint(url)
    state = talk.run(backend=backend, stream=True)
    pieces = list(state.text_iter("river"))
    assert len(pieces) > 1 and "".join(pieces) == state["river"] == talk.run()["river"]
    assert sw.get_server_info(backend) and sw.flush_cache(backend)
    assert (state.get_meta_info("river") or {})["completion_tokens"] == 6


def test_a_server_s_refusal_is_said_with_the_line(url: str) -> None:
    @sw.function
    def wrong(s: Any) -> None:
        s += "a" + sw.gen("x", regex="(never")

    with pytest.raises(sw.ProgramError, match=r"gen\('x'\) at .*test_openai.py:\d+ failed: the server answered 400"):
        wrong.run(backend=sw.RuntimeEndpoint(url))["x"]


def test_a_server_that_isn_t_there_is_an_error_not_a_hang() -> None:
    with pytest.raises(sw.ProgramError, match="can't be used"):
        tell.run(backend=sw.OpenAI("m", base_url="http://127.0.0.1:9/v1", selects=True))["one"]
