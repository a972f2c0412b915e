"""From OpenAI's messages to token ids, by the model's own chat template."""

from __future__ import annotations

import json
from typing import Any

from sapwood.runtime.server.errors import invalid
from sapwood.runtime.server.service import Service
from sapwood.runtime.server.tools import ToolPlan, instructions

RESERVED = frozenset({"self", "messages", "tools", "add_generation_prompt", "template"})
ROLES = {"system", "user", "assistant", "tool"}


def chat_ids(
    service: Service,
    messages: list[dict[str, Any]],
    plan: ToolPlan,
    template_fields: dict[str, Any],
    *,
    continued: bool = False,
    constrained: bool = False,
) -> tuple[list[int], bool]:
    """The prompt's ids, and whether it ends within a think tag.

    `continued`: the last message is the assistant's and its text is to be continued. `constrained`: all of the answer
    follows a grammar, so a think tag that the template opens is closed again.
    """
    turns = [normal(message, f"messages[{i}]") for i, message in enumerate(messages)]
    if not turns:
        raise invalid("messages is empty; send at least one", "messages")
    tools = [tool.described() for tool in plan.tools] or None
    if tools and "tools" not in (service.tokenizer.chat_template or ""):
        turns = [_spelled(turn, plan) for turn in _told(turns, instructions(plan))]
        tools = None
    for name in RESERVED.intersection(template_fields):
        raise invalid(f"chat_template_kwargs may not set {name!r}; the request's own fields do", "chat_template_kwargs")
    opening = ""
    if continued:
        if turns[-1]["role"] != "assistant":
            raise invalid("continue_final_message needs a last message of the assistant's", "continue_final_message")
        opening = turns.pop()["content"]
    text = service.tokenizer.render(turns, tools=tools, add_generation_prompt=True, **template_fields)
    thinking = text.rstrip().endswith("<think>")
    if thinking and constrained:
        text += "\n</think>\n\n"
    text += opening + plan.prefix()
    ids = service.tokenizer.encode(text, special=True)
    service.check_prompt(ids, "messages")
    return ids, thinking and not constrained


def normal(message: dict[str, Any], where: str) -> dict[str, Any]:
    """A message as templates take it: known role, content as one text, call arguments as an object."""
    role = str(message.get("role", "")).lower()
    role = "system" if role == "developer" else "tool" if role == "function" else role
    if role not in ROLES:
        raise invalid(
            f"{where}.role is {message.get('role')!r}; it must be system, user, assistant or tool", f"{where}.role"
        )
    turn = {**message, "role": role, "content": _text(message.get("content"), f"{where}.content")}
    calls = message.get("tool_calls")
    if calls:
        if not isinstance(calls, list):
            raise invalid(f"{where}.tool_calls must be a list", f"{where}.tool_calls")
        turn["tool_calls"] = [_call(call, f"{where}.tool_calls[{i}]") for i, call in enumerate(calls)]
    else:
        turn.pop("tool_calls", None)
    return turn


def _text(content: Any, where: str) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise invalid(f"{where} must be a text or a list of parts", where)
    texts = []
    for i, part in enumerate(content):
        kind = part.get("type") if isinstance(part, dict) else type(part).__name__
        if kind not in ("text", "input_text", "output_text") or not isinstance(part.get("text"), str):
            raise invalid(f"{where}[{i}] is of type {kind}; this model reads text only", f"{where}[{i}]")
        texts.append(part["text"])
    return "".join(texts)


def _call(call: Any, where: str) -> dict[str, Any]:
    try:
        function = call["function"]
        arguments = function["arguments"]
        if isinstance(arguments, str):
            arguments = json.loads(arguments or "{}")
        return {**call, "function": {**function, "name": str(function["name"]), "arguments": arguments}}
    except (KeyError, TypeError, ValueError) as error:
        raise invalid(f"{where} needs a function with a name and arguments as JSON ({error})", where) from None


def _spelled(turn: dict[str, Any], plan: ToolPlan) -> dict[str, Any]:
    """A turn of a conversation with tools, as text, for a template that knows only system, user and assistant."""
    if turn["role"] == "tool":
        return {"role": "user", "content": f"<tool_response>\n{turn['content']}\n</tool_response>"}
    calls = [(call["function"]["name"], call["function"]["arguments"]) for call in turn.get("tool_calls", ())]
    written = plan.spelled(calls) if calls else ""
    return {"role": turn["role"], "content": f"{turn['content']}\n{written}".strip() if written else turn["content"]}


def _told(turns: list[dict[str, Any]], text: str) -> list[dict[str, Any]]:
    """`turns` with `text` at the end of the system message."""
    if turns[0]["role"] == "system":
        first = {**turns[0], "content": f"{turns[0]['content']}\n\n{text}"}
        return [first, *turns[1:]]
    return [{"role": "system", "content": text}, *turns]
