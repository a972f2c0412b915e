"""`sapwood bench speculative`: what drafting brings on this machine, by workload and by the number of streams."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sapwood.errors import InvalidRequest
from sapwood.runtime.cli.terminal import console, waiting
from sapwood.runtime.messages import GrammarSpec, Sampling

if TYPE_CHECKING:
    from rich.table import Table

    from sapwood.runtime.client import Client

STREAMS = (1, 4, 16)
PASSAGE = (
    "The lighthouse at Cape Ferro was built in 1871 after three ships were lost in a single winter. Its lamp burned oil until 1934, "
    "when a cable was laid from the mainland. The last keeper, Maria Donati, lived there with her two sons for nineteen years and "
    "kept a diary of the weather that scientists still use. Today the tower is a museum, open from April to October."
)
CHATS = (
    "What should I pack for a week in the mountains?",
    "Explain how a bicycle stays upright.",
    "Write a short letter to a neighbour who is moving away.",
    "Why do leaves change colour in autumn?",
    "Give me three ideas for a rainy afternoon with children.",
    "How do I write a function in Python that counts vowels?",
    "What is the difference between weather and climate?",
    "Tell me a short story about a clockmaker and a cat.",
    "How can I learn to cook without recipes?",
    "What did people do before there were refrigerators?",
    "Describe a busy harbour at sunrise.",
    "Is it better to read on paper or on a screen?",
    "How does a vaccine protect the body?",
    "Write a poem about an old train station.",
    "What makes bread rise?",
    "Give advice to somebody who has to speak in public.",
)
EDITS = (
    f"Correct the spelling and grammar of this text and return the whole text:\n\n{PASSAGE}",
    f"Repeat the following text exactly, but write 1881 instead of 1871:\n\n{PASSAGE}",
    f"Summarize the following text, quoting it where you can:\n\n{PASSAGE}",
    f"Repeat the following text exactly:\n\n{PASSAGE}",
)
RECORD = {
    "type": "object",
    "properties": {
        "place": {"type": "string", "maxLength": 40},
        "year_of_construction": {"type": "integer", "minimum": 1000, "maximum": 2100},
        "last_keeper": {"type": "string", "maxLength": 40},
        "is_open_to_visitors": {"type": "boolean"},
        "reason_for_construction": {"type": "string", "maxLength": 80},
        "current_use": {"type": "string", "maxLength": 40},
    },
    "required": [
        "place",
        "year_of_construction",
        "last_keeper",
        "is_open_to_visitors",
        "reason_for_construction",
        "current_use",
    ],
    "additionalProperties": False,
}
RECORDS = tuple(
    f"{ask}\n\n{PASSAGE}" for ask in ("Extract a record as JSON.", "Describe the place as JSON.", "As JSON, please:")
)
WORKLOADS: dict[str, tuple[Sequence[str], dict[str, Any]]] = {
    "chat": (CHATS, {}),
    "chat at temperature 0.8": (CHATS, {"temperature": 0.8, "seed": 1}),
    "edit": (EDITS, {}),
    "json": (RECORDS, {"grammar": GrammarSpec("json_schema", json.dumps(RECORD))}),
}


@dataclass(frozen=True)
class Result:
    """One workload with one way of drafting, beside the same without."""

    workload: str
    speculative: str
    streams: int
    plain_tokens_per_second: float
    tokens_per_second: float
    tokens_per_step: float  # of one stream: output tokens over steps
    acceptance: list[float]  # by depth, given that all before came true
    same_tokens: bool  # as without drafts

    @property
    def speedup(self) -> float:
        return self.tokens_per_second / self.plain_tokens_per_second


@dataclass
class _Arm:
    """A backend and how fast it was, by round."""

    client: Client
    seconds: list[float]
    num_tokens: int = 0
    num_steps: int = 0
    outputs: tuple[list[int], ...] = ()
    tried: tuple[int, ...] = ()
    true: tuple[int, ...] = ()

    def run(self, prompts: Sequence[list[int]], sampling: Sampling, streams: int) -> None:
        """All prompts, `streams` at a time, each with the prompts' part already read."""
        client = self.client
        client.ask("flush")
        for prompt in prompts:
            client.generate(prompt[:-1], Sampling(max_tokens=0))
        before = client.ask("stats")
        began = time.perf_counter()
        with ThreadPoolExecutor(streams) as pool:
            done = list(pool.map(lambda prompt: client.generate(prompt, sampling), prompts))
        self.seconds.append(time.perf_counter() - began)
        after = client.ask("stats")
        self.outputs = tuple(list(one.ids) for one in done)
        self.num_tokens = after["num_output"] - before["num_output"]
        self.num_steps = after["num_steps"] - before["num_steps"]
        self.tried = tuple(b - a for a, b in zip(before["drafts_tried"], after["drafts_tried"], strict=True))
        self.true = tuple(b - a for a, b in zip(before["drafts_true"], after["drafts_true"], strict=True))


def speculative(
    model: Annotated[str, typer.Argument(help="A model's name, or a path.")] = "smollm2-135m",
    ways: Annotated[str, typer.Option(help="Ways of drafting to compare with none, with commas.")] = "ngram,auto",
    tokens: Annotated[int, typer.Option(min=8, help="Most tokens of an answer.")] = 128,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds, with and without drafts in turn; the best counts.")] = 3,
    threads: Annotated[int | None, typer.Option(min=1, help="Default: one for each usable core.")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write all figures here.")] = None,
    plot_file: Annotated[
        Path | None, typer.Option("--plot", help="Draw speed-ups and acceptance here (.png, .svg).")
    ] = None,
) -> None:
    """Measure drafting: tokens a step, acceptance by depth, and the speed beside that without drafts."""
    from sapwood.runtime.client import Client

    results: list[Result] = []
    for way in ways.split(","):
        with ExitStack() as stack:
            with waiting(f"Starting {model} with and without {way}"):
                plain, drafting = (
                    stack.enter_context(Client.launch(model, speculative=kind, threads=threads))
                    for kind in ("off", way)
                )
            for workload in WORKLOADS:
                for streams in STREAMS if workload == "chat" else (1,):
                    with waiting(f"{way}: {workload}, {streams} at once"):
                        results.append(_measure(plain, drafting, way, workload, streams, tokens, rounds))
    console().print(table(results))
    if json_file:
        json_file.write_text(json.dumps([asdict(result) | {"speedup": result.speedup} for result in results], indent=1))
    if plot_file:
        plot(results, plot_file)


def _measure(
    plain: Client, drafting: Client, way: str, workload: str, streams: int, tokens: int, rounds: int
) -> Result:
    questions, settings = WORKLOADS[workload]
    tokenizer = plain.tokenizer
    prompts = [
        tokenizer.encode(tokenizer.render([{"role": "user", "content": q}], add_generation_prompt=True), special=True)
        if tokenizer.chat_template
        else tokenizer.encode(q, bos=True)
        for q in questions
    ]
    sampling = Sampling(**{"max_tokens": tokens, "temperature": 0.0, **settings})
    arms = _Arm(plain, []), _Arm(drafting, [])
    for _ in range(rounds):
        for arm in arms:
            arm.run(prompts, sampling, streams)
    without, with_drafts = arms
    return Result(
        workload=workload,
        speculative=way,
        streams=streams,
        plain_tokens_per_second=without.num_tokens / min(without.seconds),
        tokens_per_second=with_drafts.num_tokens / min(with_drafts.seconds),
        tokens_per_step=with_drafts.num_tokens / with_drafts.num_steps,
        acceptance=[true / tried for tried, true in zip(with_drafts.tried, with_drafts.true, strict=True) if tried],
        same_tokens=without.outputs == with_drafts.outputs,
    )


def table(results: list[Result]) -> Table:
    """One line a workload and way."""
    from rich.table import Table

    shown = Table(title="Drafting, beside none", title_justify="left")
    for name in (
        "workload",
        "drafts",
        "streams",
        "tok/s without",
        "tok/s",
        "speed-up",
        "tokens a step",
        "accepted by depth",
        "same",
    ):
        shown.add_column(name, justify="left" if name in ("workload", "drafts", "accepted by depth") else "right")
    for one in results:
        shown.add_row(
            one.workload,
            one.speculative,
            str(one.streams),
            f"{one.plain_tokens_per_second:.0f}",
            f"{one.tokens_per_second:.0f}",
            f"{one.speedup:.2f}",
            f"{one.tokens_per_step:.2f}",
            " ".join(f"{share:.2f}".lstrip("0") for share in one.acceptance),
            "yes" if one.same_tokens else "NO",
        )
    return shown


def plot(results: list[Result], file: Path) -> None:
    """Speed-ups as bars, and the chance of each depth to come true."""
    try:
        import matplotlib
    except ModuleNotFoundError:
        raise InvalidRequest("--plot needs matplotlib; install it with: pip install 'sapwood[plot]'") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (bars, lines) = pyplot.subplots(1, 2, figsize=(11, 4))
    names = [f"{one.workload}, {one.streams} ({one.speculative})" for one in results]
    bars.barh(names, [one.speedup for one in results])
    bars.axvline(1, color="black", linewidth=0.8)
    bars.invert_yaxis()
    bars.set_xlabel("speed-up")
    for one, name in zip(results, names, strict=True):
        if one.streams == 1 and one.acceptance:
            lines.plot(range(1, len(one.acceptance) + 1), one.acceptance, marker="o", label=name)
    lines.set_ylim(0, 1)
    lines.set_xlabel("depth")
    lines.set_ylabel("share that comes true")
    lines.legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(file)
