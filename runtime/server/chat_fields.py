"""The body of a chat completion, and what it comes to: a prompt, a tool plan, jobs.

Responses, Anthropic's and Ollama's APIs translate to it too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec

from sapwood.runtime.server.chat_prompt import chat_ids
from sapwood.runtime.server.errors import invalid
from sapwood.runtime.server.fields import Count, GenerationFields, grammar_of, sampling_of
from sapwood.runtime.server.reader import Reader, reader_of
from sapwood.runtime.server.service import Job, Service, samples
from sapwood.runtime.server.tools import FORMATS, Tool, ToolPlan, format_of, plan_tools


class ChatRequest(GenerationFields, kw_only=True):
    """The body of a chat completion."""

    messages: list[dict[str, Any]]
    max_completion_tokens: Count | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, msgspec.Meta(ge=0, le=20)] | None = None
    tools: list[Tool] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    continue_final_message: bool | None = None
    store: bool | None = None
    metadata: dict[str, Any] | None = None


@dataclass(frozen=True)
class Chat:
    """A chat request, checked and ready to run."""

    fields: ChatRequest
    jobs: list[Job]
    plan: ToolPlan
    reasoning: bool  # the model may think aloud before it answers
    thinking: bool  # the prompt ends within a think tag

    def reader(self) -> Reader:
        """A reader for one choice."""
        return reader_of(self.plan, reasoning=self.reasoning, inside=self.thinking)


def prepare(service: Service, fields: ChatRequest) -> Chat:
    """Check everything that can be checked without the backend. Raises ApiError."""
    template = service.tokenizer.chat_template or ""
    configured = service.config.tool_format
    format = FORMATS[configured] if configured else format_of(template)
    plan = plan_tools(fields.tools, fields.tool_choice, fields.parallel_tool_calls, format)
    wanted = grammar_of(fields)
    calling = plan.mode in ("required", "named")
    if wanted is not None and calling:
        raise invalid(
            "tool_choice already fixes the output's form; leave response_format and grammars out", "tool_choice"
        )
    if fields.top_logprobs and not fields.logprobs:
        raise invalid("top_logprobs needs logprobs: true", "top_logprobs")
    template_fields = dict(fields.chat_template_kwargs or {})
    if fields.reasoning_effort:
        template_fields.setdefault("reasoning_effort", fields.reasoning_effort)
        template_fields.setdefault("enable_thinking", fields.reasoning_effort != "none")
    constrained = calling or wanted is not None
    ids, thinking = chat_ids(
        service,
        fields.messages,
        plan,
        template_fields,
        continued=bool(fields.continue_final_message),
        constrained=constrained,
    )
    thinks = "<think>" in template or service.config.reasoning_format == "think"
    asked = fields.max_completion_tokens if fields.max_completion_tokens is not None else fields.max_tokens
    sampling = sampling_of(
        fields,
        max_tokens=service.room(ids, asked),
        grammar=wanted or plan.grammar("open" if thinking else "possible" if thinks else "none"),
        logprobs=(fields.top_logprobs or 0) if fields.logprobs else None,
    )
    jobs = samples(service.job(ids, sampling, fields), fields.n or 1)
    return Chat(fields, jobs, plan, thinks and not constrained, thinking)
