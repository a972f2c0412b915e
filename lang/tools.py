"""Python functions as tools: their JSON Schema from their signatures, a call as a typed value, its result as a turn."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_type_hints

from sapwood.errors import InvalidRequest

if TYPE_CHECKING:
    from sapwood.lang.state import ProgramState


@dataclass(frozen=True)
class ToolCall:
    """A function that the model chose, and the arguments it wrote, already of the parameters' types."""

    function: Callable[..., Any]
    arguments: dict[str, Any]

    @property
    def name(self) -> str:
        return self.function.__name__

    def run(self) -> Any:
        return self.function(**self.arguments)


def calling(tools: Sequence[Callable[..., Any]]) -> tuple[dict[str, Any], Callable[[str], ToolCall]]:
    """The JSON Schema of a call of one of these functions, and what makes a `ToolCall` of its text."""
    if not tools:
        raise ValueError("tools needs at least one function")
    by_name = {tool.__name__: tool for tool in tools}
    parameters = {name: _parameters(tool) for name, tool in by_name.items()}
    schema = {"anyOf": [_call_schema(name, described[0]) for name, described in parameters.items()]}

    def read(text: str) -> ToolCall:
        import msgspec

        call = json.loads(text)
        values: Any = msgspec.convert(call["arguments"], parameters[call["name"]][1])
        return ToolCall(by_name[call["name"]], {name: getattr(values, name) for name in call["arguments"]})

    return schema, read


def describe_tools(tools: Sequence[Callable[..., Any]]) -> str:
    """What a system turn may say about the tools: one line each, and how to call them."""
    lines = [
        f"- {tool.__name__}{inspect.signature(tool)}: {(tool.__doc__ or '').strip().splitlines()[0]}" for tool in tools
    ]
    return "\n".join(["You can call these functions:", *lines, 'Call one as {"name": ..., "arguments": {...}}.'])


def call_tool(state: ProgramState, name: str | None) -> Any:
    """Run the call in a variable (the last one if none is named), append the result as a turn, and return it."""
    variables = state.variables()
    calls = [key for key, value in variables.items() if isinstance(value, ToolCall)]
    if name is None and calls:
        name = calls[-1]
    if name not in calls:
        raise InvalidRequest(
            f"no tool call is in {f'the variable {name!r}' if name else 'any variable'}; gen(tools=...) writes one"
        )
    call: ToolCall = variables[name]
    try:
        result = call.run()
    except Exception as error:
        result = f"error: {error}"
    said = result if isinstance(result, str) else json.dumps(result, default=str, ensure_ascii=False)
    with state.user():
        state += f"{call.name} returned: {said}"
    return result


def _call_schema(name: str, parameters: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"name": {"const": name}, "arguments": parameters},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }


def _parameters(tool: Callable[..., Any]) -> tuple[dict[str, Any], type]:
    """JSON Schema of a function's parameters, and the record that holds them."""
    import msgspec

    from sapwood.runtime.server.schemas import closed

    hints, fields = get_type_hints(tool), []
    for name, parameter in inspect.signature(tool).parameters.items():
        kind = hints.get(name, str)
        fields.append((name, kind) if parameter.default is parameter.empty else (name, kind, parameter.default))
    record = msgspec.defstruct(tool.__name__, fields, kw_only=True)
    (described,), named = msgspec.json.schema_components([record])
    own = named.pop(described["$ref"].rsplit("/", 1)[-1]) if "$ref" in described else described
    schema = closed(own)
    assert isinstance(schema, dict)
    if named:
        raise InvalidRequest(
            f"the parameters of the tool {tool.__name__} must be plain values, lists or dicts, not records"
        )
    return schema, record
