"""`sapwood generate PROMPT`: one answer on stdout."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sapwood.errors import InvalidRequest
from sapwood.runtime.cli.opening import open_client
from sapwood.runtime.cli.options import DEFAULT_MODEL, Connect, Kernels, Model, Threads
from sapwood.runtime.cli.terminal import note

if TYPE_CHECKING:
    from sapwood.runtime.client import Client
    from sapwood.runtime.messages import GrammarSpec, Sampling

OUTPUT_PANEL = "Output"
SAMPLING_PANEL = "Sampling"


def generate(
    prompt: Annotated[str | None, typer.Argument(help="What to answer. Absent or -: read from stdin.")] = None,
    model: Model = DEFAULT_MODEL,
    raw: Annotated[bool, typer.Option("--raw", help="Continue the text as it is, without the chat template.")] = False,
    system: Annotated[str | None, typer.Option(help="A system message before the prompt.")] = None,
    json_schema: Annotated[
        str | None,
        typer.Option(
            help="A JSON Schema, or a file that holds one: the answer is valid for it.", rich_help_panel=OUTPUT_PANEL
        ),
    ] = None,
    regex: Annotated[
        str | None,
        typer.Option(help="A regular expression that the whole answer matches.", rich_help_panel=OUTPUT_PANEL),
    ] = None,
    choice: Annotated[
        list[str] | None, typer.Option(help="The answer is one of these; repeat it.", rich_help_panel=OUTPUT_PANEL)
    ] = None,
    n: Annotated[
        int, typer.Option("--n", min=1, help="How many answers; one a line if several.", rich_help_panel=OUTPUT_PANEL)
    ] = 1,
    max_tokens: Annotated[
        int, typer.Option(min=1, help="Longest answer, in tokens.", rich_help_panel=OUTPUT_PANEL)
    ] = 512,
    stop: Annotated[
        list[str] | None, typer.Option(help="End the answer before this text; repeat it.", rich_help_panel=OUTPUT_PANEL)
    ] = None,
    temperature: Annotated[
        float, typer.Option(min=0, max=2, help="0: always the likeliest token.", rich_help_panel=SAMPLING_PANEL)
    ] = 0.7,
    top_p: Annotated[float, typer.Option(min=0, max=1, rich_help_panel=SAMPLING_PANEL)] = 1.0,
    top_k: Annotated[int, typer.Option(min=0, help="0: all tokens.", rich_help_panel=SAMPLING_PANEL)] = 0,
    min_p: Annotated[float, typer.Option(min=0, max=1, rich_help_panel=SAMPLING_PANEL)] = 0.0,
    seed: Annotated[
        int | None, typer.Option(help="The same seed gives the same answer.", rich_help_panel=SAMPLING_PANEL)
    ] = None,
    connect: Connect = None,
    backend: Kernels = "cpu",
    threads: Threads = None,
) -> None:
    """Answer a prompt on stdout; with a grammar the answer matches it, token by token."""
    from sapwood.runtime.messages import Sampling

    text = sys.stdin.read() if prompt in (None, "-") else prompt
    if not text:
        raise InvalidRequest("the prompt is empty; give it as an argument or on stdin")
    sampling = Sampling(
        max_tokens=max_tokens,
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        min_p=min_p,
        seed=seed,
        stop=stop or [],
        grammar=grammar_of(json_schema, regex, choice),
    )
    with open_client(model, connect, backend=backend, threads=threads) as client:
        ids = prompt_ids(client, text, raw=raw, system=system)
        if n == 1:
            write_one(client, ids, sampling)
        else:
            write_several(client, ids, sampling, n)


def prompt_ids(client: Client, text: str, *, raw: bool, system: str | None) -> list[int]:
    """The prompt as token ids: a user's turn, or the bare text."""
    tokenizer = client.tokenizer
    if raw or not tokenizer.chat_template:
        return tokenizer.encode(text, special=True, bos=True)
    messages = [{"role": "system", "content": system}] if system else []
    return tokenizer.encode(tokenizer.render([*messages, {"role": "user", "content": text}]), special=True)


def write_one(client: Client, ids: list[int], sampling: Sampling) -> None:
    """Stream one answer."""
    last = None
    for last in client.stream(ids, sampling):
        sys.stdout.write(last.text)
        sys.stdout.flush()
    print()
    if last is not None and last.finish_reason == "length":
        note(f"(cut off after {sampling.max_tokens} tokens; --max-tokens allows more)")


def write_several(client: Client, ids: list[int], sampling: Sampling, n: int) -> None:
    """Write n answers as JSON strings, one a line, in order."""
    from concurrent.futures import ThreadPoolExecutor

    import msgspec

    def one(index: int) -> str:
        seed = None if sampling.seed is None else (sampling.seed + index) % 2**64
        return client.generate(ids, msgspec.structs.replace(sampling, seed=seed)).text

    with ThreadPoolExecutor(n) as pool:
        for text in pool.map(one, range(n)):
            print(json.dumps(text, ensure_ascii=False), flush=True)


def grammar_of(json_schema: str | None, regex: str | None, choices: list[str] | None) -> GrammarSpec | None:
    """The one grammar that the options ask for."""
    from sapwood.runtime.messages import GrammarSpec

    if sum(map(bool, (json_schema, regex, choices))) > 1:
        raise InvalidRequest("--json-schema, --regex and --choice can't be combined; give one of them")
    if json_schema:
        return GrammarSpec("json_schema", schema_text(json_schema))
    if regex:
        return GrammarSpec("regex", regex)
    return GrammarSpec("choices", json.dumps(choices)) if choices else None


def schema_text(given: str) -> str:
    """A JSON Schema that was given itself or as a file's path, checked to be JSON."""
    inline = given.lstrip().startswith(("{", "true", "false"))
    try:
        text = given if inline else Path(given).read_text()
        json.loads(text)
    except OSError as error:
        raise InvalidRequest(f"can't read the schema {given!r}: {error.strerror}") from None
    except ValueError as error:
        raise InvalidRequest(f"the schema is not valid JSON: {error}") from None
    return text
