"""Tool calls: what the model is told, the grammar that keeps a call valid, and how its text is read back.

A format is data: how a call begins, where its arguments stand, how it ends. Under a grammar the model writes exactly
that, so reading is a scan for known text, and arguments are the bytes that the schema allowed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from sapwood.runtime.messages import GrammarSpec
from sapwood.runtime.server.errors import invalid
from sapwood.runtime.server.pythonic import Thought, calls_grammar, rest_of_call_grammar, spelled_calls
from sapwood.runtime.server.schemas import closed, moved

Mode = Literal["none", "auto", "required", "named"]
NAME = re.compile(r"[A-Za-z0-9_.\-]{1,64}")
NO_ARGUMENTS = {"type": "object", "properties": {}, "additionalProperties": False}


@dataclass(frozen=True)
class ToolFormat:
    """How a family of models writes a call. `{name}` in `begin` stands for the tool's name."""

    name: str
    trigger: str  # what no answer without a call contains
    begin: str  # from the trigger to the arguments
    end: str  # after the arguments

    def header(self) -> re.Pattern[str]:
        """`begin` with the name as group 1 and any blanks between its parts, as unconstrained models vary them."""
        pieces = [r"\s*".join(map(re.escape, re.split(r"\s+", piece))) for piece in self.begin.split("{name}")]
        return re.compile(r"([^\"\]]+)".join(pieces))

    def opening(self, tool: str) -> str:
        """The text before the arguments of a call to `tool`."""
        return self.begin.replace("{name}", tool)


HERMES = ToolFormat("hermes", "<tool_call>", '<tool_call>\n{"name": "{name}", "arguments": ', "}\n</tool_call>")
LLAMA3 = ToolFormat("llama3", '{"name": "', '{"name": "{name}", "parameters": ', "}")
MISTRAL = ToolFormat("mistral", '[{"name": "', '[{"name": "{name}", "arguments": ', "}]")
ARRAY = ToolFormat("array", '{"name":"', '{"name":"{name}","arguments":', "}")  # tool_choice required: one JSON array
PYTHONIC = ToolFormat("pythonic", "[", "[{name}(", ")]")  # Python syntax: see `pythonic`
PYTHON_EXAMPLE = re.compile(r"\[\s*func\w*\(")  # how templates show it: [func_name1(params_name1=params_value1), ...]
FORMATS = {format.name: format for format in (HERMES, LLAMA3, MISTRAL, PYTHONIC)}


def format_of(template: str | None) -> ToolFormat:
    """The format that a chat template shows its model; Hermes' where it shows none."""
    template = template or ""
    if PYTHON_EXAMPLE.search(template):
        return PYTHONIC
    if "<tool_call>" in template:
        return HERMES
    if "[TOOL_CALLS]" in template:
        return MISTRAL
    if "python_tag" in template or "ipython" in template:
        return LLAMA3
    return HERMES


class Function(msgspec.Struct):
    """A tool's `function`."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None

    def schema(self) -> dict[str, Any]:
        """The JSON Schema of its arguments."""
        return closed(self.parameters) if self.parameters else NO_ARGUMENTS


class Tool(msgspec.Struct):
    """One entry of `tools`."""

    function: Function
    type: Literal["function"] = "function"

    def described(self) -> dict[str, Any]:
        """As chat templates take it."""
        function = {
            "name": self.function.name,
            "description": self.function.description or "",
            "parameters": self.function.parameters or NO_ARGUMENTS,
        }
        return {"type": "function", "function": function}


@dataclass(frozen=True)
class ToolPlan:
    """What to do about tools in one request."""

    mode: Mode
    format: ToolFormat
    tools: tuple[Tool, ...] = ()
    tool: Tool | None = None  # with mode named
    parallel: bool = True

    def grammar(self, thought: Thought = "none") -> GrammarSpec | None:
        """What the output must match so that every call in it is valid for its schema; a thought may come before."""
        if self.format is PYTHONIC and self.mode != "none":
            return GrammarSpec("lark", self._python(thought))
        if self.tool is not None:
            return GrammarSpec("json_schema", json.dumps(self.tool.function.schema()))
        if self.mode == "required":
            calls: dict[str, Any] = {"type": "array", "minItems": 1, "items": {"anyOf": [_call(t) for t in self.tools]}}
            calls["$defs"] = {t.function.name: moved(t.function.schema(), t.function.name) for t in self.tools}
            if not self.parallel:
                calls["maxItems"] = 1
            return GrammarSpec("json_schema", json.dumps(calls))
        if self.mode == "auto" and not self.parallel:
            return GrammarSpec("lark", self._text_or_one_call())
        if self.mode == "auto":
            return GrammarSpec("structural_tag", json.dumps(self._tag()))
        return None

    def _python(self, thought: Thought) -> str:
        try:
            if self.tool is not None:
                return rest_of_call_grammar(self.tool.function.name, self.tool.function.schema())
            schemas = {tool.function.name: tool.function.schema() for tool in self.tools}
            return calls_grammar(schemas, text=self.mode == "auto", several=self.parallel, thought=thought)
        except (AttributeError, KeyError, TypeError, RecursionError) as error:
            raise invalid(f"the parameters of a tool are no JSON Schema ({error}); correct them", "tools") from None

    def _tag(self) -> dict[str, Any]:
        structures = [
            {
                "begin": self.format.opening(tool.function.name),
                "schema": tool.function.schema(),
                "end": self.format.end,
            }
            for tool in self.tools
        ]
        return {"structures": structures, "triggers": [self.format.trigger]}

    def _text_or_one_call(self) -> str:
        """A Lark grammar of what the structural tag allows, up to the end of the first call."""
        trigger = json.dumps(self.format.trigger, ensure_ascii=False)
        names = [f"call{number}" for number in range(len(self.tools))]
        rules = [f"start: {' | '.join(names)} | text", "text: TEXT", "TEXT: /(.|\\n)*/"]
        for name, tool in zip(names, self.tools, strict=True):
            begin = self.format.opening(tool.function.name).removeprefix(self.format.trigger)
            parts = [json.dumps(part, ensure_ascii=False) for part in (begin, self.format.end)]
            rules.append(f"{name}_trigger[lazy]: TEXT {trigger}")
            rules.append(f"{name}: {name}_trigger {parts[0]} %json {json.dumps(tool.function.schema())} {parts[1]}")
        return "\n".join(rules)

    def spelled(self, calls: Sequence[tuple[str, dict[str, Any]]]) -> str:
        """Calls, as (name, arguments), as the model would have written them."""
        if self.format is PYTHONIC:
            return spelled_calls(calls)
        return "\n".join(self.format.opening(name) + json.dumps(given) + self.format.end for name, given in calls)

    def prefix(self) -> str:
        """Text that the model is taken to have written already: with a named tool, everything up to the arguments."""
        return self.format.opening(self.tool.function.name) if self.tool is not None else ""


NO_TOOLS = ToolPlan("none", HERMES)


def plan_tools(
    tools: list[Tool] | None, choice: str | dict[str, Any] | None, parallel: bool | None, format: ToolFormat
) -> ToolPlan:
    """Check `tools` and `tool_choice`."""
    if not tools:
        if choice not in (None, "none", "auto"):
            raise invalid("tool_choice names a tool, but tools is empty; send the tools too", "tool_choice")
        return NO_TOOLS
    names = [tool.function.name for tool in tools]
    for name in names:
        if not NAME.fullmatch(name):
            raise invalid(f"{name!r} can't be a tool's name: use 1 to 64 letters, digits, '_', '-' or '.'", "tools")
    if len(set(names)) < len(names):
        raise invalid("two tools have the same name; give each its own", "tools")
    several = parallel is not False
    if choice in (None, "auto"):
        return ToolPlan("auto", format, tuple(tools), parallel=several)
    if choice == "none":
        return NO_TOOLS
    if choice == "required":
        return ToolPlan("required", PYTHONIC if format is PYTHONIC else ARRAY, tuple(tools), parallel=several)
    function = choice.get("function", choice) if isinstance(choice, dict) else {}
    wanted = function.get("name") if isinstance(function, dict) else None
    for tool in tools:
        if tool.function.name == wanted:
            return ToolPlan("named", format, tuple(tools), tool, parallel=False)
    raise invalid(
        f"tool_choice is {choice!r}; it must be auto, none, required or name one of {', '.join(names)}", "tool_choice"
    )


def _call(tool: Tool) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"name": {"const": tool.function.name}, "arguments": {"$ref": f"#/$defs/{tool.function.name}"}},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }


def instructions(plan: ToolPlan) -> str:
    """What to tell a model whose chat template knows nothing of tools."""
    listed = "\n".join(json.dumps(tool.described()) for tool in plan.tools)
    call = plan.format.opening("NAME") + ("key=value, ..." if plan.format is PYTHONIC else "{...}") + plan.format.end
    return (
        "You may call functions to help with the user's request. Their signatures stand within <tools></tools>:\n"
        f"<tools>\n{listed}\n</tools>\n\nTo call a function, answer with its name and arguments in this form:\n{call}"
    )
