"""What can be appended to a program's state: text, generations, choices, roles. Plain records; nothing here runs.

`a + b` makes a sequence; strings become text.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from sapwood.lang.choices import METHODS
from sapwood.runtime.messages import GrammarSpec

Role = str
# What becomes of a failed call: the program fails where it is read; the variable is None; or what a function makes of it.
OnError = Literal["raise", "none"] | Callable[[Exception], Any]
# What a server that takes only text may lack; a backend names these in `lacks`.
GRAMMARS = ("regex", "json_schema", "choices", "lark", "ebnf", "gbnf", "structural_tag")


class Expression:
    """Base of all expressions."""

    def __add__(self, other: str | Expression) -> Sequence_:
        return Sequence_([*parts(self), *parts(other)])

    def __radd__(self, other: str | Expression) -> Sequence_:
        return Sequence_([*parts(other), *parts(self)])


@dataclass(eq=False)
class Text(Expression):
    text: str


@dataclass(eq=False)
class Sequence_(Expression):
    items: list[Expression]


@dataclass(eq=False)
class Gen(Expression):
    """A generation. `overrides` are fields of `Sampling` that were given; the rest comes from the run."""

    name: str | None
    overrides: dict[str, Any] = field(default_factory=dict)
    n: int = 1
    convert: Callable[[str], Any] | None = None  # from the text to the variable's value
    line: str = ""  # where the program asked for it
    on_error: OnError = "raise"
    heal: bool = False


@dataclass(eq=False)
class Select(Expression):
    name: str | None
    choices: list[str]
    method: str = "token_length_normalized"
    line: str = ""

    def __post_init__(self) -> None:
        if not self.choices:
            raise ValueError("select needs at least one choice")
        if self.method not in METHODS:
            raise ValueError(f"there is no choices_method '{self.method}'; choose one of {', '.join(METHODS)}")


@dataclass(eq=False)
class RoleBegin(Expression):
    role: Role


@dataclass(eq=False)
class RoleEnd(Expression):
    role: Role


@dataclass(eq=False)
class VarBegin(Expression):
    name: str


@dataclass(eq=False)
class VarEnd(Expression):
    name: str


@dataclass(eq=False)
class Reasoning(Expression):
    """After `expression`: split what it wrote into thought and answer."""

    expression: Expression
    model_type: str


def parts(value: object) -> Iterator[Expression]:
    """The expressions that a value stands for, sequences flattened."""
    if isinstance(value, str):
        yield Text(value)
    elif isinstance(value, Sequence_):
        yield from value.items
    elif isinstance(value, Expression):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from parts(item)
    else:
        raise ValueError(f"a program can append text and expressions such as gen(), not {type(value).__name__}")


def needs(expression: Expression) -> frozenset[str]:
    """What a backend must offer for it: grammars by kind, "select"."""
    if isinstance(expression, Select):
        return frozenset({"select"})
    if isinstance(expression, Gen) and "grammar" in expression.overrides:
        return frozenset({expression.overrides["grammar"].kind})
    return frozenset()


def caller_line() -> str:
    """File and line of the code that called into this library."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("sapwood."):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


# SGLang's names of sampling parameters, and ours.
_RENAMED = {"max_new_tokens": "max_tokens", "min_new_tokens": "min_tokens", "random_seed": "seed"}
# Understood and without effect here: logprobs carry ids and are of the output; text of ids is the tokenizer's to give.
_IGNORED = {"logprob_start_len", "return_text_in_logprobs", "use_thread", "return_logprob", "top_logprobs_num"}
_FIELDS = (
    "max_tokens", "min_tokens", "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "presence_penalty",
    "frequency_penalty", "logit_bias", "seed", "stop", "stop_token_ids", "ignore_eos", "jump",
)  # fmt: skip
SAMPLING_NAMES = frozenset({*_RENAMED, *_FIELDS, *_IGNORED})  # of run(): not the program's own arguments


def sampling_overrides(given: dict[str, Any]) -> dict[str, Any]:
    """Those of `Sampling`'s fields that were given (not None), under our names. TypeError for unknown ones."""
    chosen: dict[str, Any] = {}
    for name, value in given.items():
        ours = _RENAMED.get(name, name)
        if name in _IGNORED:
            continue
        if ours not in _FIELDS:
            raise TypeError(f"there is no sampling parameter '{name}'")
        if value is None:
            continue
        if ours == "stop" and isinstance(value, str):
            value = [value]
        if ours == "top_k" and value < 0:
            value = 0
        chosen[ours] = value
    return chosen


def run_overrides(given: dict[str, Any]) -> dict[str, Any]:
    """As `sampling_overrides`, for the defaults of a run; return_logprob asks for logprobs of every gen."""
    chosen = sampling_overrides(given)
    if given.get("return_logprob"):
        chosen["logprobs"] = given.get("top_logprobs_num") or 0
    return chosen


def grammar_spec(**given: Any) -> GrammarSpec | None:
    """The one grammar of regex, json_schema, choices, ebnf, lark, gbnf, structural_tag that was given."""
    import json

    chosen = {kind: value for kind, value in given.items() if value is not None}
    if len(chosen) > 1:
        raise ValueError(f"an output can match one grammar; {' and '.join(chosen)} were given")
    for kind, value in chosen.items():
        text = value if isinstance(value, str) and kind != "choices" else json.dumps(value)
        return GrammarSpec(kind, text)  # type: ignore[arg-type]
    return None


def gen(
    name: str | None = None,
    max_tokens: int | None = None,
    *,
    n: int = 1,
    stop: str | Sequence[str] | None = None,
    temperature: float | None = None,
    choices: Sequence[str] | None = None,
    choices_method: str | Callable[..., Any] = "token_length_normalized",
    regex: str | None = None,
    json_schema: str | dict[str, Any] | None = None,
    ebnf: str | None = None,
    lark: str | None = None,
    gbnf: str | None = None,
    structural_tag: str | dict[str, Any] | None = None,
    dtype: type | None = None,
    schema: Any = None,
    logprobs: int | None = None,
    return_logprob: bool | None = None,
    top_logprobs_num: int | None = None,
    tools: Sequence[Callable[..., Any]] | None = None,
    on_error: OnError = "raise",
    heal: bool = False,
    **sampling: Any,
) -> Expression:
    """Generate text into the variable `name`.

    Sampling parameters (max_tokens, min_tokens, temperature, top_p, top_k, min_p, the penalties, logit_bias, seed, stop,
    stop_token_ids, ignore_eos) override those of the run; SGLang's names are understood too. At most one grammar: regex,
    json_schema, ebnf, lark, gbnf, structural_tag. `dtype` (int, float, bool, str): text of that form. `schema`: a pydantic
    model, dataclass, TypedDict, Literal, Enum or plain type; the variable is then a value of it. `choices`: a select.
    `tools`: functions; the variable is a `ToolCall` of one of them, for `s.call_tools()`. `logprobs`: that many
    alternatives beside each token's own, in `s.get_meta_info(name)["logprobs"]`. `n`: that many samples; the variable is a
    list and the first goes on in the text. `on_error`: "raise" (where the variable is read), "none" (the variable is None
    and the program goes on) or a function from the exception to the value. `heal`: the text's last token may become a
    longer one ("http:" goes on as "://"); only with no grammar or a regex.
    """
    line = caller_line()
    if choices is not None:
        return Select(name, list(choices), _method(choices_method), line)
    overrides = sampling_overrides({"max_tokens": max_tokens, "stop": stop, "temperature": temperature, **sampling})
    convert: Callable[[str], Any] | None = None
    if tools is not None:
        from sapwood.lang.tools import calling

        json_schema, convert = calling(tools)
    elif schema is not None or dtype is not None:
        from sapwood.lang.typed import form_of, typed

        if schema is not None:
            json_schema, convert = typed(schema)
        else:
            regex = form_of(dtype)
    grammar = grammar_spec(
        regex=regex, json_schema=json_schema, ebnf=ebnf, lark=lark, gbnf=gbnf, structural_tag=structural_tag
    )
    if grammar is not None:
        overrides["grammar"] = grammar
    if logprobs is not None or return_logprob:
        overrides["logprobs"] = logprobs if logprobs is not None else top_logprobs_num or 0
    return Gen(name, overrides, n, convert, line, on_error, heal)


def select(
    name: str | None = None,
    choices: Sequence[str] | None = None,
    *,
    choices_method: str | Callable[..., Any] = "token_length_normalized",
    temperature: float = 0.0,
) -> Select:
    """Append the likeliest of `choices` to the text and to the variable `name`.

    `choices_method`: "token_length_normalized" (mean log probability of a choice's tokens), "greedy_token_selection" (token
    by token, the likeliest goes on) or "unconditional_likelihood_normalized" (mean gain over the choice by itself).
    """
    return Select(name, list(choices or ()), _method(choices_method), caller_line())


def _method(method: str | Callable[..., Any]) -> str:
    return method if isinstance(method, str) else method.__name__


def gen_int(name: str | None = None, max_tokens: int | None = None, **more: Any) -> Expression:
    """An integer, as text."""
    return gen(name, max_tokens, dtype=int, **more)


def gen_float(name: str | None = None, max_tokens: int | None = None, **more: Any) -> Expression:
    """A decimal number, as text."""
    return gen(name, max_tokens, dtype=float, **more)


def gen_bool(name: str | None = None, max_tokens: int | None = None, **more: Any) -> Expression:
    """True or False, as text."""
    return gen(name, max_tokens, dtype=bool, **more)


def gen_string(name: str | None = None, max_tokens: int | None = None, **more: Any) -> Expression:
    """A JSON string with its quotes, as text."""
    return gen(name, max_tokens, dtype=str, **more)


def _role(role: Role, content: str | Expression | None) -> Sequence_:
    inside = [] if content is None else list(parts(content))
    return Sequence_([RoleBegin(role), *inside, RoleEnd(role)])


def system(content: str | Expression | None = None) -> Sequence_:
    """A system turn of the conversation, as the model's chat template writes it."""
    return _role("system", content)


def user(content: str | Expression | None = None) -> Sequence_:
    """A user turn."""
    return _role("user", content)


def assistant(content: str | Expression | None = None) -> Sequence_:
    """An assistant turn."""
    return _role("assistant", content)


def system_begin() -> RoleBegin:
    return RoleBegin("system")


def system_end() -> RoleEnd:
    return RoleEnd("system")


def user_begin() -> RoleBegin:
    return RoleBegin("user")


def user_end() -> RoleEnd:
    return RoleEnd("user")


def assistant_begin() -> RoleBegin:
    return RoleBegin("assistant")


def assistant_end() -> RoleEnd:
    return RoleEnd("assistant")


def separate_reasoning(expression: Expression, model_type: str = "deepseek-r1") -> Reasoning:
    """Split what a gen wrote: `name` keeps the answer, `name_reasoning_content` the thought between <think> tags."""
    return Reasoning(expression, model_type)
