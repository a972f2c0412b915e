"""`sapwood chat`: a conversation in the terminal, in which any turn can be taken back or forked."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sapwood.errors import InvalidRequest, SapwoodError
from sapwood.runtime.cli.conversation import Conversation
from sapwood.runtime.cli.generate import schema_text
from sapwood.runtime.cli.opening import open_client
from sapwood.runtime.cli.options import DEFAULT_MODEL, Connect, Kernels, Model, Threads
from sapwood.runtime.cli.terminal import console, note, say_error

if TYPE_CHECKING:
    from sapwood.runtime.client import Client
    from sapwood.runtime.messages import GrammarSpec, Sampling

HELP = """\
/fork [NAME]    go on in a copy of this branch        /undo           take back the last exchange
/switch NAME    go to another branch                  /branches       list them
/schema JSON    answers follow this JSON Schema       /schema         (alone) free text again
/system TEXT    set the system message                /clear          begin again
/help           this text                             /quit           leave (also Ctrl-D)
A line that ends in \\ goes on in the next one; Ctrl-C stops an answer. The arrow keys bring back earlier lines."""


def chat(
    model: Model = DEFAULT_MODEL,
    system: Annotated[str | None, typer.Option(help="The system message.")] = None,
    temperature: Annotated[float, typer.Option(min=0, max=2, help="0: always the likeliest token.")] = 0.7,
    max_tokens: Annotated[int, typer.Option(min=1, help="Longest answer, in tokens.")] = 1024,
    seed: Annotated[int | None, typer.Option(help="The same seed gives the same answers.")] = None,
    connect: Connect = None,
    backend: Kernels = "cpu",
    threads: Threads = None,
) -> None:
    """Talk with a model; /fork, /undo and /schema work on the conversation, /help lists the rest."""
    with open_client(model, connect, backend=backend, threads=threads) as client:
        if not client.tokenizer.chat_template:
            raise InvalidRequest(f"{client.info.name} has no chat template; use `sapwood generate --raw`")
        note(f"{client.info.name}. /help shows what you can do; Ctrl-D leaves.")
        _history()
        Session(client, Conversation(system), temperature, max_tokens, seed).loop()


class Session:
    """One run of the command: reads lines, runs commands, streams answers."""

    def __init__(
        self, client: Client, conversation: Conversation, temperature: float, max_tokens: int, seed: int | None
    ) -> None:
        self.client = client
        self.conversation = conversation
        self.temperature = temperature
        self.max_tokens = max_tokens
        self.seed = seed
        self.grammar: GrammarSpec | None = None
        self.commands: dict[str, Callable[[str], None]] = {
            "fork": self._fork,
            "undo": self._undo,
            "switch": self._switch,
            "branches": self._branches,
            "schema": self._schema,
            "system": self._system,
            "clear": self._clear,
            "help": lambda _: note(HELP),
        }

    def loop(self) -> None:
        """Until the user leaves."""
        while True:
            try:
                line = read_entry(f"{self.conversation.current}> ")
            except EOFError:
                return
            except KeyboardInterrupt:
                print()
                continue
            if line in ("/quit", "/exit"):
                return
            try:
                if line.startswith("/"):
                    self._command(line)
                elif line.strip():
                    self._answer(line)
            except InvalidRequest as error:
                say_error(str(error))

    def _command(self, line: str) -> None:
        name, _, argument = line[1:].partition(" ")
        command = self.commands.get(name)
        if command is None:
            raise InvalidRequest(f"there is no /{name}; /help lists what there is")
        command(argument.strip())

    def _answer(self, text: str) -> None:
        from sapwood.runtime.messages import Sampling

        self.conversation.add("user", text)
        tokenizer = self.client.tokenizer
        ids = tokenizer.encode(tokenizer.render(self.conversation.for_template()), special=True)
        sampling = Sampling(
            max_tokens=self.max_tokens, temperature=self.temperature, seed=self.seed, grammar=self.grammar
        )
        answer = ""
        try:
            answer = self._show(ids, sampling)
        except SapwoodError:
            self.conversation.undo()
            raise
        self.conversation.add("assistant", answer)

    def _show(self, ids: list[int], sampling: Sampling) -> str:
        """Stream an answer as Markdown; Ctrl-C keeps what came."""
        from rich.live import Live
        from rich.markdown import Markdown

        answer = ""
        stream = self.client.stream(ids, sampling)
        plain = self.grammar is not None or not sys.stdout.isatty()
        try:
            if plain:
                for chunk in stream:
                    answer += chunk.text
                    print(chunk.text, end="", flush=True)
                print()
            else:
                with Live(console=console(), refresh_per_second=12, vertical_overflow="visible") as live:
                    for chunk in stream:
                        answer += chunk.text
                        live.update(Markdown(answer))
        except KeyboardInterrupt:
            note("(stopped)")
        finally:
            stream.close()
        return answer

    def _fork(self, name: str) -> None:
        note(f"Now in {self.conversation.fork(name or None)}; /switch goes back.")

    def _undo(self, _: str) -> None:
        taken = self.conversation.undo()
        note(f"Took back: {taken.content}" if taken else "There is nothing to take back.")

    def _switch(self, name: str) -> None:
        self.conversation.switch(name)
        for message in self.conversation.messages[-2:]:
            note(f"{message.role}: {message.content}")

    def _branches(self, _: str) -> None:
        for name, messages in self.conversation.branches.items():
            mark = "*" if name == self.conversation.current else " "
            note(f"{mark} {name}: {len(messages)} messages")

    def _schema(self, text: str) -> None:
        from sapwood.runtime.messages import GrammarSpec

        self.grammar = GrammarSpec("json_schema", schema_text(text)) if text else None
        note("Answers follow the schema; /schema alone ends that." if text else "Answers are free text.")

    def _system(self, text: str) -> None:
        self.conversation.system = text or None

    def _clear(self, _: str) -> None:
        self.conversation = Conversation(self.conversation.system)


def read_entry(prompt: str) -> str:
    """One entry of one or more lines: a backslash at the end asks for another."""
    lines = [input(prompt)]
    while lines[-1].endswith("\\"):
        lines[-1] = lines[-1][:-1]
        lines.append(input("... "))
    return "\n".join(lines)


def _history() -> None:
    """Keep entered lines over sessions, where Python has readline."""
    try:
        import atexit
        import readline
    except ImportError:
        return
    from platformdirs import user_state_path

    file = Path(user_state_path("sapwood")) / "history"
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.exists():
        readline.read_history_file(file)
    readline.set_history_length(1000)
    atexit.register(readline.write_history_file, file)
