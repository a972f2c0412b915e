"""Splits what a model writes, as it is being written, into content, reasoning and tool calls."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from sapwood.runtime.server.pythonic import value_of
from sapwood.runtime.server.tools import PYTHONIC, ToolFormat, ToolPlan

Kind = Literal["content", "reasoning", "call", "arguments"]
MAX_HEADER = 256  # characters from a trigger to the arguments
PYTHON_OPENING = re.compile(r"\s*\[\s*([\w.\-]+)\s*\(")
PYTHON_PART_OF_OPENING = re.compile(r"\s*(\[\s*([\w.\-]{1,64}\s*)?)?")
PYTHON_NEXT = re.compile(r"([\w.\-]+)\s*\(")


@dataclass(frozen=True)
class Part:
    """A piece of output: text of a kind; for `call` the tool's name, after which its `arguments` follow."""

    kind: Kind
    text: str


class Reader(Protocol):
    """Takes text as it comes and gives parts as soon as they are certain."""

    def push(self, text: str) -> list[Part]:
        """More text."""
        ...

    def finish(self) -> list[Part]:
        """The text is over; what was held back."""
        ...


class Plain:
    """Everything is content."""

    def push(self, text: str) -> list[Part]:
        return [Part("content", text)] if text else []

    def finish(self) -> list[Part]:
        return []


class Arguments:
    """Everything is the arguments of one call whose name is known: tool_choice named."""

    def __init__(self, name: str) -> None:
        self._name: str | None = name

    def push(self, text: str) -> list[Part]:
        begin = [Part("call", self._name)] if self._name is not None else []
        self._name = None
        return begin + ([Part("arguments", text)] if text else [])

    def finish(self) -> list[Part]:
        return []


class Calls:
    """Finds calls of one format in free text. `only`: text outside of calls is punctuation and dropped."""

    def __init__(self, format: ToolFormat, *, only: bool = False) -> None:
        self._format = format
        self._header = format.header()
        self._only = only
        self._held = ""
        self._scan: JsonScan | None = None
        self._called = False  # a call just ended
        self._skip = ""  # of the end text, what is still to come

    def push(self, text: str) -> list[Part]:
        self._held += text
        parts: list[Part] = []
        while self._step(parts):
            pass
        return parts

    def finish(self) -> list[Part]:
        held, self._held = self._held, ""
        if not held or self._skip:
            return []
        return [Part("arguments", held)] if self._scan is not None else self._content(held)

    def _step(self, parts: list[Part]) -> bool:
        """Take one piece off what is held; False when more text is needed."""
        if self._skip:
            return self._skip_end()
        if self._scan is not None:
            return self._take_arguments(parts)
        at = self._held.find(self._format.trigger)
        if at < 0:
            keep = overlap(self._held, self._format.trigger)
            cut = len(self._held) - keep
            parts += self._content(self._held[:cut])
            self._held = self._held[cut:]
            return False
        parts += self._content(self._held[:at])
        self._held = self._held[at:]
        match = self._header.match(self._held)
        if match:
            parts.append(Part("call", match[1]))
            self._held = self._held[match.end() :]
            self._scan = JsonScan()
            self._called = True
            return True
        if len(self._held) < MAX_HEADER:
            return False
        parts += self._content(self._format.trigger)  # looked like a call and is none
        self._held = self._held[len(self._format.trigger) :]
        return True

    def _take_arguments(self, parts: list[Part]) -> bool:
        assert self._scan is not None
        if not self._scan.begun:
            self._held = self._held.lstrip()
        end = self._scan.feed(self._held)
        taken = self._held if end is None else self._held[:end]
        if taken:
            parts.append(Part("arguments", taken))
        self._held = self._held[len(taken) :]
        if end is None:
            return False
        self._scan = None
        self._skip = self._format.end
        return True

    def _skip_end(self) -> bool:
        """Drop the end text, blank by blank tolerant; what is none of it belongs to what follows."""
        while self._held and self._skip:
            if self._held[0] == self._skip[0]:
                self._held, self._skip = self._held[1:], self._skip[1:]
            elif self._held[0].isspace():
                self._held = self._held[1:]
            elif self._skip[0].isspace():
                self._skip = self._skip[1:]
            else:
                self._skip = ""
        return not self._skip

    def _content(self, text: str) -> list[Part]:
        """Text outside of calls; blanks that follow a call are none."""
        if self._called:
            text = text.lstrip()
            self._called = not text
        return [] if self._only or not text else [Part("content", text)]


class Pythonic:
    """An answer like `[get_weather(city="Oslo"), now()]` is calls of known tools; any other is content.

    Each argument is given on, as JSON, once its value is complete. `written`: how the answer began in the prompt.
    """

    def __init__(self, names: Iterable[str], *, written: str = "") -> None:
        self._names = frozenset(names)
        self._take: Callable[[], list[Part] | None] = (
            self._take_opening
        )  # reads on from here; None: more text is needed
        self._held = written
        self._scan = ValueScan()
        self._num_arguments = 0

    def push(self, text: str) -> list[Part]:
        self._held += text
        parts: list[Part] = []
        while self._held and (found := self._take()) is not None:
            parts += found
        return parts

    def finish(self) -> list[Part]:
        held, self._held = self._held, ""
        return [Part("content", held)] if held and self._take == self._take_opening else []

    def _take_opening(self) -> list[Part] | None:
        match = PYTHON_OPENING.match(self._held)
        if match and match[1] in self._names:
            return self._call(match)
        if not match and PYTHON_PART_OF_OPENING.fullmatch(self._held):
            return None
        self._take = self._take_text
        return []

    def _take_text(self) -> list[Part]:
        held, self._held = self._held, ""
        return [Part("content", held)]

    def _call(self, match: re.Match[str]) -> list[Part]:
        self._held = self._held[match.end() :]
        self._num_arguments = 0
        self._take = self._take_argument
        return [Part("call", match[1])]

    def _take_argument(self) -> list[Part] | None:
        """A key, or the end of the arguments."""
        self._held = self._held.lstrip(" \n,")
        if self._held.startswith(")"):
            self._held = self._held[1:]
            self._take = self._take_next
            return [Part("arguments", "}" if self._num_arguments else "{}")]
        key, equals, rest = self._held.partition("=")
        if not equals:
            return None
        self._held = rest
        self._scan = ValueScan()
        self._take = self._take_value
        begin = ", " if self._num_arguments else "{"
        self._num_arguments += 1
        return [Part("arguments", f"{begin}{json.dumps(key.strip())}: ")]

    def _take_value(self) -> list[Part] | None:
        end = self._scan.feed(self._held)
        if end is None:
            return None
        text, self._held = self._held[:end], self._held[end:]
        self._take = self._take_argument
        try:
            value = value_of(text)
        except ValueError:  # an unconstrained model's slip, such as a text without quotes
            value = text.strip()
        return [Part("arguments", json.dumps(value))]

    def _take_next(self) -> list[Part] | None:
        """Another call, or the end of all."""
        self._held = self._held.lstrip(" \n,")
        match = PYTHON_NEXT.match(self._held)
        if match:
            return self._call(match)
        if self._held.startswith("]"):
            self._held = self._held[1:].lstrip()
            self._take = self._take_text
            return []
        return None


class Reasoning:
    """Text between think tags is reasoning; the rest goes to another reader."""

    def __init__(self, rest: Reader, *, begin: str = "<think>", end: str = "</think>", inside: bool = False) -> None:
        self.num_chars = 0  # of reasoning and its tags, as far as the text has been read
        self._rest = rest
        self._begin = begin
        self._end = end
        self._inside = inside
        self._fresh = True  # before any answer: only here may reasoning begin
        self._left = False  # reasoning just ended; newlines after it are no content
        self._held = ""

    def push(self, text: str) -> list[Part]:
        if not self._inside and not self._fresh:
            if self._left:
                text = text.lstrip("\n")
                self._left = not text
            return self._rest.push(text)
        self._held += text
        self.num_chars += len(text)
        if self._inside:
            return self._reason()
        stripped = self._held.lstrip()
        if stripped.startswith(self._begin):
            self._inside = True
            self._held = stripped[len(self._begin) :]
            return self._reason()
        if self._begin.startswith(stripped):
            return []
        self.num_chars = 0
        return self._leave("")

    def finish(self) -> list[Part]:
        kind: Kind = "reasoning" if self._inside else "content"
        if self._fresh and not self._inside:
            self.num_chars = 0
        held = [Part(kind, self._held)] if self._held else []
        return held + self._rest.finish()

    def _reason(self) -> list[Part]:
        at = self._held.find(self._end)
        if at >= 0:
            thought, rest = self._held[:at], self._held[at + len(self._end) :]
            self.num_chars -= len(rest)
            self._held = rest.lstrip("\n")
            self._left = not self._held
            return self._leave(thought)
        cut = len(self._held) - overlap(self._held, self._end)
        thought, self._held = self._held[:cut], self._held[cut:]
        return [Part("reasoning", thought)] if thought else []

    def _leave(self, thought: str) -> list[Part]:
        held, self._held = self._held, ""
        self._inside = self._fresh = False
        return ([Part("reasoning", thought)] if thought else []) + self._rest.push(held)


class JsonScan:
    """Finds where one JSON value ends in text that comes in pieces."""

    def __init__(self) -> None:
        self.begun = False
        self._depth = 0
        self._quoted = False
        self._escaped = False

    def feed(self, text: str) -> int | None:
        """The offset after the value's last character, None while it goes on. Objects and arrays only."""
        self.begun = self.begun or bool(text)
        for i, char in enumerate(text):
            if self._escaped:
                self._escaped = False
            elif self._quoted:
                self._escaped = char == "\\"
                self._quoted = char != '"'
            elif char == '"':
                self._quoted = True
            elif char in "{[":
                self._depth += 1
            elif char in "}]":
                self._depth -= 1
                if self._depth <= 0:
                    return i + 1
        return None


class ValueScan:
    """Finds where one argument of a Python call ends: at a comma or bracket that belongs to the call."""

    def __init__(self) -> None:
        self._at = 0  # characters seen
        self._depth = 0
        self._quote = ""
        self._escaped = False

    def feed(self, text: str) -> int | None:
        """`text` is all of the value so far: the offset of what ends it, None while it goes on."""
        for at in range(self._at, len(text)):
            char = text[at]
            if self._escaped:
                self._escaped = False
            elif self._quote:
                self._escaped = char == "\\"
                self._quote = "" if char == self._quote else self._quote
            elif char in "\"'":
                self._quote = char
            elif not self._depth and char in ",)":
                return at
            elif char in "([{":
                self._depth += 1
            elif char in ")]}":
                self._depth -= 1
        self._at = len(text)
        return None


def overlap(text: str, marker: str) -> int:
    """How many characters at the end of `text` may be the beginning of `marker`."""
    for n in range(min(len(text), len(marker) - 1), 0, -1):
        if text.endswith(marker[:n]):
            return n
    return 0


def num_reasoning(reader: Reader, ids: Sequence[int], token_bytes: Sequence[bytes]) -> int:
    """How many of `ids`, whose text the reader has read to its end, are reasoning or its tags."""
    if not isinstance(reader, Reasoning):
        return 0
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    num_chars = 0
    for count, id in enumerate(ids):
        if num_chars >= reader.num_chars:
            return count
        num_chars += len(decoder.decode(token_bytes[id] if id < len(token_bytes) else b""))
    return len(ids)


def reader_of(plan: ToolPlan, *, reasoning: bool, inside: bool) -> Reader:
    """The reader for a request; `inside`: the prompt ends within an open think tag."""
    names = [tool.function.name for tool in plan.tools]
    if plan.format is PYTHONIC and plan.mode != "none":
        reader: Reader = Pythonic(names, written=plan.prefix())
    elif plan.tool is not None:
        reader = Arguments(plan.tool.function.name)
    elif plan.mode == "required":
        reader = Calls(plan.format, only=True)
    else:
        reader = Calls(plan.format) if plan.mode == "auto" else Plain()
    return Reasoning(reader, inside=inside) if reasoning else reader
