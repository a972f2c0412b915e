"""What a `gen` and a `select` ask of the backend, and what their answers do to the state."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from sapwood.errors import InvalidRequest
from sapwood.lang.choices import METHODS
from sapwood.runtime.completion import Chunk
from sapwood.runtime.messages import GrammarSpec, Logprob, Sampling

if TYPE_CHECKING:
    from sapwood.lang.executor import Executor
    from sapwood.lang.expressions import Gen, Select

Result = tuple[list[int], Chunk, str]  # all ids, the last chunk, the text


def generate(executor: Executor, gen: Gen) -> None:
    """Ask for `gen.n` samples; the first goes on in the text."""
    sampling = executor.settings.defaults
    if gen.overrides:
        sampling = msgspec.structs.replace(sampling, **gen.overrides)
    ids = executor.take_pending()
    healed = ""
    if gen.heal:
        sampling, healed = _healed(executor, sampling)
    results: list[Result | None] = [None] * gen.n
    has_failed = False

    def finish(index: int, ids: list[int], chunk: Chunk, text: str) -> None:
        results[index] = (ids, chunk, text)
        if None not in results and not has_failed:
            _generated(executor, gen, [result for result in results if result is not None], len(healed))

    streamed = _Streamed(len(healed))

    def piece(chunk: Chunk) -> None:
        executor.chunks.append((gen.name, *streamed.piece(chunk)))
        executor.notify()

    def failed(error: Exception) -> None:
        nonlocal has_failed
        if has_failed:
            return
        has_failed = True  # the other samples no longer count
        value = gen.on_error(error) if callable(gen.on_error) else None
        executor.set(gen.name, value, {"error": str(error)})
        if isinstance(value, str) and None in results:  # otherwise the text is there, it only has another form
            executor.write(value)
        executor.resume()

    for index in range(gen.n):
        own = sampling
        if gen.n > 1 and sampling.seed is not None:
            own = msgspec.structs.replace(sampling, seed=sampling.seed + index)
        executor.submit(
            gen, own, list(ids), partial(finish, index),
            piece if executor.settings.stream and index == 0 else None,
            None if gen.on_error == "raise" else failed,
        )  # fmt: skip


class _Streamed:
    """What is known of the pieces of a stream. Log probabilities of tokens that show no text yet wait for those that do."""

    def __init__(self, skipped: int) -> None:
        self._num_tokens = 0
        self._held: list[Logprob] = []
        self._skipped = skipped  # characters to come that the text has already

    def piece(self, chunk: Chunk) -> tuple[str, dict[str, Any]]:
        """The new text, and what is known of it. `logprobs` are the new tokens' only; `completion_tokens` counts all so far."""
        self._num_tokens += len(chunk.ids)
        self._held += chunk.logprobs
        text, self._skipped = chunk.text[self._skipped :], max(0, self._skipped - len(chunk.text))
        logprobs = self._held if text else []
        if text:
            self._held = []
        return text, {
            "finish_reason": chunk.finish_reason,
            "usage": chunk.usage,
            "completion_tokens": self._num_tokens,
            "logprobs": logprobs,
            "output_token_logprobs": [(entry.logprob, entry.id, None) for entry in logprobs],
            "output_token_logprobs_length": self._num_tokens,
        }


def _healed(executor: Executor, sampling: Sampling) -> tuple[Sampling, str]:
    """Take the last token back, and ask for its text again as the beginning of what is generated."""
    written, grammar = executor.written, sampling.grammar
    last = executor.backend.tokenizer.token_bytes[written.ids[-1]] if written.ids else b""
    text = last.decode("utf-8", "ignore")
    if grammar is not None and grammar.kind != "regex":
        raise InvalidRequest(f"heal goes with a regex or no grammar, not with {grammar.kind}")
    if not text or text.encode() != last:  # a special token, or a part of a character
        return sampling, ""
    written.ids.pop()
    rest = r"[\s\S]*" if grammar is None else f"({grammar.text})"
    spec = GrammarSpec("regex", re.escape(text) + rest)
    return msgspec.structs.replace(sampling, grammar=spec, max_tokens=sampling.max_tokens + 1), text


def _generated(executor: Executor, gen: Gen, results: list[Result], skipped: int) -> None:
    ids, chunk, text = results[0]
    kept, rest = _without_stop(executor, ids, text) if isinstance(chunk.matched, str) else (ids, "")
    written = executor.written
    written.ids += kept
    if rest:
        written.pending.append((rest, False))
    written.text += text[skipped:]
    values = [_value(gen, chunk, text[skipped:]) for _, chunk, text in results]
    metas = [_meta(chunk, ids) for ids, chunk, _ in results]
    if gen.n == 1:
        executor.set(gen.name, values[0], metas[0])
    else:
        executor.set(gen.name, values, {"samples": metas})
    executor.resume()


def _value(gen: Gen, chunk: Chunk, text: str) -> Any:
    if gen.convert is None:
        return text
    try:
        return gen.convert(text)
    except (ValueError, msgspec.DecodeError) as error:
        if chunk.finish_reason == "length":
            raise InvalidRequest(f"max_tokens ended the text before its form was complete: {text[-60:]!r}") from error
        raise


def _without_stop(executor: Executor, ids: list[int], text: str) -> tuple[list[int], str]:
    """The tokens that lie before a stop string, and the text that shared a token with it."""
    coded, size, count = text.encode(), 0, 0
    table = executor.backend.tokenizer.token_bytes
    while count < len(ids) and size + len(table[ids[count]]) <= len(coded):
        size += len(table[ids[count]])
        count += 1
    return ids[:count], coded[size:].decode("utf-8", "replace")


def _meta(chunk: Chunk, ids: list[int]) -> dict[str, Any]:
    """What SGLang calls meta_info."""
    usage = chunk.usage
    return {
        "finish_reason": {"type": chunk.finish_reason, "matched": chunk.matched},
        "prompt_tokens": usage.prompt_tokens if usage else 0,
        "completion_tokens": usage.completion_tokens if usage else 0,
        "cached_tokens": usage.cached_tokens if usage else 0,
        "logprobs": chunk.logprobs,
        "output_token_logprobs": [(entry.logprob, entry.id, None) for entry in chunk.logprobs],
        "output_ids": list(ids),
    }


def choose(executor: Executor, select: Select) -> None:
    """Score every choice as a prompt: the tree computes what they share once.

    Text and choice are encoded together, as a model would read them. A choice's tokens are those from where the text's own
    tokens end; where some choice merges into the last of them, that token counts for every choice, so that all are
    conditioned on the same tokens.
    """
    method = METHODS[select.method]
    written = executor.written
    text = executor.encoded()
    encoded = [executor.encoded(choice) for choice in select.choices]
    start = min(min(_common(text, ids), len(ids) - 1) for ids in encoded)
    if not written.ids:
        start = max(start, 1)  # nothing precedes the first token: it has no probability
    sets = [(written.ids + ids, len(written.ids) + start) for ids in encoded]
    if select.method == "unconditional_likelihood_normalized":
        bos = executor.backend.tokenizer.bos_id
        before = [bos] if bos is not None else (written.ids + encoded[0])[:1]
        sets += [(before + ids[start:], 1) for ids in encoded]
    scores: list[list[float] | None] = [None] * len(sets)

    def finish(index: int, _ids: list[int], chunk: Chunk, _text: str) -> None:
        scores[index] = [entry.logprob for entry in chunk.prompt_logprobs if entry.logprob is not None]
        known = [score for score in scores if score is not None]
        if len(known) == len(sets):
            given = known[: len(encoded)]
            _chosen(executor, select, encoded, given, method(given, known[len(encoded) :]))

    for index, (ids, first) in enumerate(sets):
        sampling = Sampling(max_tokens=0, prompt_logprobs=0, prompt_logprobs_start=first)
        executor.submit(select, sampling, ids, partial(finish, index))


def _chosen(
    executor: Executor, select: Select, encoded: list[list[int]], logprobs: list[list[float]], scores: list[float]
) -> None:
    best = max(range(len(scores)), key=lambda i: scores[i])
    written = executor.written
    written.ids += encoded[best]
    written.pending = []
    written.text += select.choices[best]
    if executor.settings.stream:
        executor.chunks.append((select.name, select.choices[best], {}))
    meta = {"choices": select.choices, "scores": scores, "token_logprobs": logprobs}
    executor.set(select.name, select.choices[best], meta)
    executor.resume()


def _common(text: list[int], ids: list[int]) -> int:
    """Leading ids that both share."""
    shared = 0
    while shared < min(len(text), len(ids)) and text[shared] == ids[shared]:
        shared += 1
    return shared
