"""What travels between a client and a backend: small typed records, encoded as MessagePack by msgspec.

A client sends `Request`s, a backend answers with `Reply`s that carry the request's `rid`. This file knows nothing of
sockets. Token ids travel, not text: the frontend tokenizes and detokenizes.
"""

from __future__ import annotations

from typing import Literal

import msgspec

GrammarKind = Literal["json_schema", "regex", "choices", "lark", "ebnf", "gbnf", "structural_tag"]


class GrammarSpec(msgspec.Struct, frozen=True):
    """What the output must match. `text` is the source: a regex, a grammar, or JSON (schema, list of choices, tag)."""

    kind: GrammarKind
    text: str
    whitespace: Literal["compact", "flexible"] = "compact"  # JSON kinds only; flexible is bounded
    any_order: bool = False  # JSON kinds only: keys in any order that the schema allows


class Sampling(msgspec.Struct, frozen=True, omit_defaults=True):
    """How tokens are chosen. In this order: logit_bias, penalties, grammar, temperature, top_k, top_p, min_p."""

    max_tokens: int = 128  # 0: only read the prompt into the tree
    min_tokens: int = 0
    temperature: float = 1.0  # 0: greedy
    top_k: int = 0  # 0: all
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0  # on prompt and output
    presence_penalty: float = 0.0  # on output
    frequency_penalty: float = 0.0  # on output
    logit_bias: dict[int, float] = {}
    seed: int | None = None  # None: drawn by the backend
    stop: list[str] = []  # not part of the text that the user gets
    stop_token_ids: list[int] = []
    ignore_eos: bool = False
    logprobs: int | None = None  # output logprobs with this many alternatives; None: none at all
    prompt_logprobs: int | None = None  # likewise for the prompt
    prompt_logprobs_start: int = 0  # first position that gets one
    grammar: GrammarSpec | None = None
    jump: bool = True  # forced text is appended, not sampled


class Generate(msgspec.Struct, tag=True, omit_defaults=True):
    """Continue `ids`. Answered by `Tokens` until one has a `finish_reason`, or by one `Failed`."""

    rid: str
    ids: list[int]
    sampling: Sampling
    namespace: str = ""  # cache_salt or adapter: prefixes are shared only within it
    priority: int = 0  # higher runs first
    timeout: float | None = None  # seconds from arrival
    stream: bool = True  # False: one Tokens at the end
    want_hidden: bool = False  # a hidden state in the final Tokens (embeddings)
    pooling: Literal["last", "mean"] = "last"  # which: the last token's, or the mean of all of the prompt's


class Abort(msgspec.Struct, tag=True):
    """Give up the request `target` (answered by its own `Failed`), or all of this client's when empty. No reply of its own."""

    rid: str
    target: str = ""


class Ask(msgspec.Struct, tag=True, omit_defaults=True):
    """An admin call, answered by one `Answer` or `Failed`. `args` are the call's own."""

    rid: str
    what: Literal["info", "stats", "flush", "tree", "pin", "unpin", "save", "load", "policy", "quota"]
    args: dict[str, object] = {}


Request = Generate | Abort | Ask


class Logprob(msgspec.Struct, frozen=True, array_like=True):
    """log P(id) under the model's own distribution (before bias, penalties, mask and temperature), natural log."""

    id: int
    logprob: float | None  # None: nothing precedes this position
    top: list[tuple[int, float]] = []  # alternatives, best first


class Usage(msgspec.Struct, frozen=True):
    """Counts for one request, final in the last `Tokens`."""

    prompt_tokens: int
    cached_tokens: int  # prompt tokens whose KV was reused from the tree
    completion_tokens: int
    jumped_tokens: int = 0  # of these, appended because the grammar forced them
    drafted_tokens: int = 0  # proposed by a drafter
    accepted_tokens: int = 0  # of these, accepted


FinishReason = Literal["stop", "length"]


class Tokens(msgspec.Struct, tag=True, omit_defaults=True):
    """New output. `ids` holds what came since the last one; the token that ends the text (EOS, stop token) is not in it."""

    rid: str
    ids: list[int]
    logprobs: list[Logprob] = []  # one for each of ids, if asked for
    prompt_logprobs: list[Logprob] = []  # once, if asked for
    finish_reason: FinishReason | None = None
    matched: str | int | None = None  # the stop string or token that ended it
    usage: Usage | None = None  # with finish_reason
    trim: int = 0  # with a matched stop string: this many bytes at the end of the text belong to it
    hidden: list[float] = []


ErrorKind = Literal["invalid", "grammar", "overloaded", "deadline", "cancelled", "died", "internal"]


class Failed(msgspec.Struct, tag=True, omit_defaults=True):
    """The request ended without a result."""

    rid: str
    kind: ErrorKind
    message: str
    where: str | int | None = None  # of a GrammarError


class Answer(msgspec.Struct, tag=True):
    rid: str
    value: object


Reply = Tokens | Failed | Answer


class ModelInfo(msgspec.Struct, frozen=True):
    """The answer to Ask("info")."""

    name: str
    path: str  # the model file or folder; the tokenizer is loaded from it
    architecture: str
    context_length: int
    vocab_size: int
    fingerprint: str  # changes when weights, tokenizer or arithmetic change
    backend: str
    num_slots: int
