"""The command line explains itself, does what it says, and fails with one sentence."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from command_line import SAPWOOD, sapwood

COMMANDS = [
    ["pull"],
    ["build"],
    ["list"],
    ["rm"],
    ["run"],
    ["generate"],
    ["chat"],
    ["serve"],
    ["bench", "serve"],
    ["doctor"],
]


@pytest.mark.parametrize("command", [[], *COMMANDS], ids=" ".join)
def test_every_command_has_help(command: list[str]) -> None:
    result = sapwood(*command, "--help")
    assert result.returncode == 0 and "Usage" in result.stdout


def test_help_loads_nothing_heavy() -> None:
    code = "import sapwood.runtime.cli, sys; print(*sorted({m.split('.')[0] for m in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "numpy", "fastapi", "zmq", "tokenizers"}.intersection(loaded)


def test_serve_has_at_most_forty_options_and_each_says_what_it_is_for() -> None:
    import typer

    from sapwood.runtime.cli.app import app

    serve = typer.main.get_command(app).commands["serve"]  # type: ignore[attr-defined]
    assert len(serve.params) <= 40
    assert all(getattr(parameter, "help", None) for parameter in serve.params)


def test_every_option_of_serve_is_in_its_page_and_has_a_variable() -> None:
    import typer

    from sapwood.runtime.cli.app import app

    page = (Path(__file__).resolve().parents[2] / "docs" / "server.md").read_text()
    serve = typer.main.get_command(app).commands["serve"]  # type: ignore[attr-defined]
    for option in [parameter for parameter in serve.params if parameter.opts[0].startswith("--")]:
        assert f"`{option.opts[0]}`" in page, option.opts
        assert option.envvar == f"SAPWOOD_{option.name.upper()}", option.opts


@pytest.mark.parametrize(
    ("words", "expected"),
    [("sapwood se", ["serve"]), ("sapwood bench ", ["serve"]), ("sapwood serve --max-b", ["--max-body"])],
)
def test_the_shell_completes_commands_and_options(words: str, expected: list[str]) -> None:
    result = subprocess.run(
        [sys.executable, "-c", "from sapwood.runtime.cli import main; import sys; sys.argv[0] = 'sapwood'; main()"],
        env={
            **os.environ,
            "_SAPWOOD_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(words.count(" ")),
        },
        capture_output=True,
        text=True,
    )
    assert set(expected) <= set(result.stdout.split()), result


@pytest.mark.parametrize(
    ("args", "part"),
    [
        (["generate", "hi", "--model", "no-such-model"], "sapwood pull"),
        (["serve", "no-such-model", "--port", "0"], "sapwood pull"),
        (["serve", "/nowhere/model.gguf", "--port", "0"], "/nowhere/model.gguf"),
        (["serve", "fake", "--host", "256.1.1.1"], "--host"),
        (["serve", "fake", "--api-key-file", "/nowhere"], "--api-key-file"),
        (["serve", "fake", "--config", "/nowhere"], "--config"),
        (["serve", "fake", "--port", "0", "--num-slots", "99999999999"], "fits in the memory that is free"),
        (["serve", "fake", "--port", "0", "--max-rows", "99999999999"], "max_rows"),
        (["serve", "fake", "--port", "0", "--threads", "99999999"], "threads"),
        (["serve", "fake", "--port", "0", "--ttl", "-1"], "ttl"),
        (["serve", "fake", "--port", "0", "--tls-cert", "/nowhere"], "--tls-cert"),
        (["generate", "hi", "--model", "fake", "--regex", "(("], "not closed"),
        (["generate", "hi", "--model", "fake", "--json-schema", "{"], "JSON"),
        (["generate", "hi", "--model", "fake", "--json-schema", "/nowhere"], "/nowhere"),
        (["generate", "hi", "--regex", "a", "--choice", "b"], "can't be combined"),
        (["generate", "", "--model", "fake"], "empty"),
        (["run", "/nowhere.py"], "/nowhere.py"),
        (["rm", "no-such-model"], "sapwood list"),
        (["bench", "serve", "ftp://x"], "address"),
        (["bench", "serve", "http://127.0.0.1:1/v1"], "can't be reached"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input_is_one_sentence_and_a_non_zero_exit(args: list[str], part: str) -> None:
    result = sapwood(*args)
    said = " ".join(result.stderr.split())
    assert result.returncode == 1, result
    assert part in said and "Traceback" not in said and said.count("sapwood:") == 1


def test_a_port_in_use_is_found_before_the_model_is_loaded() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        result = sapwood("serve", "no-such-model", "--port", str(taken.getsockname()[1]))
    assert result.returncode == 1 and "in use" in result.stderr and "--port" in result.stderr


def test_a_config_file_sets_options_and_refuses_unknown_ones(tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    file.write_text("port = 99999\n")
    assert "65535" in sapwood("serve", "--config", str(file)).stderr
    file.write_text("prot = 8000\n")
    assert "prot" in sapwood("serve", "--config", str(file)).stderr


def test_generate_follows_a_grammar_and_writes_only_the_answer() -> None:
    assert sapwood("generate", "hi", "--model", "fake", "--regex", "(yes|no)").stdout in ("yes\n", "no\n")
    piped = sapwood("generate", "--model", "fake", "--choice", "only", stdin="a question")
    assert piped.stdout == "only\n"


def test_generate_writes_several_answers_one_a_line() -> None:
    result = sapwood("generate", "hi", "--model", "fake", "--n", "3", "--seed", "1", "--regex", "[a-z]{4}")
    assert all(len(json.loads(line)) == 4 for line in result.stdout.splitlines()) and result.stdout.count("\n") == 3
    assert (
        sapwood("generate", "hi", "--model", "fake", "--n", "3", "--seed", "1", "--regex", "[a-z]{4}").stdout
        == result.stdout
    )


def test_chat_forks_undoes_and_follows_a_schema() -> None:
    lines = ['/schema {"enum": ["ok"]}', "hello", "/fork other", "again", "/branches", "/undo", "/nothing", "/quit"]
    result = sapwood("chat", "--model", "fake", stdin="\n".join(lines) + "\n")
    assert result.returncode == 0, result.stderr
    assert result.stdout.count('"ok"') == 2
    assert "other: 4 messages" in result.stderr and "main: 2 messages" in result.stderr
    assert "Took back: again" in result.stderr and "there is no /nothing" in result.stderr


@contextmanager
def served(*args: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A running `sapwood serve fake`, in a process group of its own, and its URL."""
    command = [*SAPWOOD, "serve", "fake", "--port", "0", *args]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stderr
        try:
            said = next(line for line in process.stderr if "http://" in line)
            yield process, said.split("served at ")[1].split()[0]
            said = process.stderr.read()
            assert "Traceback" not in said, said
        finally:
            process.kill()


def backends_of(pid: int) -> list[int]:
    """The processes that a server started."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_ctrl_c_ends_a_server_at_once_whatever_runs_and_leaves_no_process() -> None:
    body = {"prompt": "a", "max_tokens": 10**6, "ignore_eos": True, "stream": True}
    with served("--threads", "1") as (process, url):
        (backend,) = backends_of(process.pid)
        with httpx.stream("POST", f"{url}/v1/completions", json=body) as stream:
            lines = stream.iter_lines()  # dropping it would end the stream
            next(lines)
            started = time.monotonic()
            os.killpg(process.pid, signal.SIGINT)
            process.wait(10)
    assert time.monotonic() - started < 2
    assert not Path(f"/proc/{backend}").exists()


def test_sigterm_lets_running_requests_finish_and_leaves_no_process() -> None:
    body = {"prompt": "a", "max_tokens": 1500, "ignore_eos": True, "stream": True}
    with served("--threads", "1") as (process, url):
        (backend,) = backends_of(process.pid)
        with httpx.stream("POST", f"{url}/v1/completions", json=body) as stream:
            lines = stream.iter_lines()
            next(lines)
            process.send_signal(signal.SIGTERM)
            assert [line for line in lines if line][-1] == "data: [DONE]"
        assert process.wait(10) == 0
    assert not Path(f"/proc/{backend}").exists()


def test_clients_that_leave_in_the_middle_of_a_body_are_no_news() -> None:
    head = "POST {} HTTP/1.1\r\nHost: a\r\nContent-Type: multipart/form-data; boundary=x\r\nContent-Length: 99\r\n\r\n"
    with served() as (process, url):
        for path in ("/v1/completions", "/v1/files", "/generate"):
            with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as taken:
                taken.sendall(head.format(path).encode() + b'--x\r\n{"prompt"')
                assert httpx.get(f"{url}/health").status_code == 200  # by now the server reads the body
        process.send_signal(signal.SIGTERM)  # `served` fails if there is a traceback


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_named_address_leaves_no_file(tmp_path: Path, number: signal.Signals) -> None:
    file = tmp_path / "backend.sock"
    with served("--address", f"ipc://{file}") as (process, url):
        assert httpx.get(f"{url}/health").status_code == 200 and file.is_socket()
        process.send_signal(number)
        process.wait(10)
        deadline = time.monotonic() + 5
        while file.exists():  # the backend of a killed server notices by itself
            assert time.monotonic() < deadline, "the socket's file is still there"
            time.sleep(0.01)


def test_a_server_that_can_t_have_an_address_leaves_it_to_its_owner(tmp_path: Path) -> None:
    file = tmp_path / "backend.sock"
    with served("--address", f"ipc://{file}") as (process, _):
        refused = sapwood("serve", "fake", "--port", "0", "--address", f"ipc://{file}")
        assert refused.returncode == 1 and "choose another address" in " ".join(refused.stderr.split())
        assert file.is_socket()
        process.send_signal(signal.SIGTERM)


def test_a_server_is_measured_against_itself(tmp_path: Path) -> None:
    with served() as (process, url):
        file = tmp_path / "figures.json"
        result = sapwood("bench", "serve", f"{url}/v1", f"{url}/v1", "--only", "single,json", "--json", str(file))
        assert result.returncode == 0, result.stderr
        assert "single" in result.stdout and " x" in result.stdout
        rows = json.loads(file.read_text())
        assert [row["workload"] for row in rows] == ["single", "single", "json", "json"]
        assert all(row["error"] is None and row["completion_tokens"] > 0 for row in rows)
        process.send_signal(signal.SIGTERM)


def test_run_gives_a_program_its_backend_and_its_arguments(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import sys, sapwood as sw\n"
        "@sw.function\n"
        "def ask(s):\n"
        "    s += sw.gen('answer', regex='(yes|no)')\n"
        "print(ask.run()['answer'], sys.argv[1:])\n"
    )
    result = sapwood("run", "--model", "fake", str(program), "--fast", "3")
    assert result.stdout in ("yes ['--fast', '3']\n", "no ['--fast', '3']\n"), result


def test_a_programs_own_faults_are_shown_without_ours(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("def broken(:\n")
    result = sapwood("run", str(program))
    assert result.returncode == 1 and "line 1" in result.stderr and "Traceback" not in result.stderr
    program.write_text("def divide():\n    return 1 / 0\n\ndivide()\n")
    result = sapwood("run", "--model", "fake", str(program))
    assert result.returncode == 1 and "ZeroDivisionError" in result.stderr
    assert "runpy" not in result.stderr and "typer" not in result.stderr


def test_doctor_looks_around() -> None:
    result = sapwood("doctor")
    assert "processor" in result.stdout and "models" in result.stdout
