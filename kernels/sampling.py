"""From logits to tokens. Row by row, so that what is chosen for a row never depends on the others.

In this order: bias, penalties, mask, temperature, top-k, top-p, min-p. Randomness is counter-based: the number that decides
is a hash of (seed, position), so a seed gives the same text in any batch, resumed or not.

What is written here in numpy is the meaning; three passes that cost too much in it are native where the CPU kernels are
built: the likeliest under a mask, applying a mask, and drawing from what top-p and min-p leave.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

try:
    from sapwood.kernels import _cpu
except ImportError:  # built for another machine: numpy does all
    _cpu = None  # type: ignore[assignment]

Floats = NDArray[np.float32]
Int32s = NDArray[np.int32]

_NONE = np.empty(0, np.int32)
_COLDEST = 1e-30  # temperature
_BLOCK = 256  # tokens whose weights are summed before it is known where the random number falls
_CANDIDATES = 1024  # most tokens that are sorted at first when only the likeliest matter


@dataclass(slots=True)
class SampleRow:
    """How one token is to be chosen."""

    seed: int  # 64 bits
    position: int  # of the token being chosen, in its sequence
    temperature: float = 1.0  # 0: the likeliest
    top_k: int = 0  # 0: all
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0  # on tokens of prompt and output (arXiv 1909.05858)
    presence_penalty: float = 0.0  # on tokens of the output
    frequency_penalty: float = 0.0  # likewise, times their count
    bias_ids: Int32s = field(default_factory=lambda: _NONE)
    bias_values: Floats = field(default_factory=lambda: _NONE.astype(np.float32))
    prompt_ids: Int32s = field(default_factory=lambda: _NONE)  # only looked at for penalties
    output_ids: Int32s = field(default_factory=lambda: _NONE)
    mask: NDArray[np.uint32] | None = None  # [ceil(vocab / 32)], bit i % 32 of word i // 32: token i is allowed
    num_logprobs: int | None = None  # None: no logprobs


@dataclass(slots=True)
class Sampled:
    id: int
    logprob: float | None = None  # under the raw distribution
    top: list[tuple[int, float]] = field(default_factory=list)  # likeliest alternatives, best first


@runtime_checkable
class Chooses(Protocol):
    """An output whose logits stay where they were computed, and are sampled there."""

    def choose(self, outs: Sequence[int], rows: Sequence[SampleRow]) -> list[Sampled]:
        """`sample` from the logits number `outs`, one token for each of `rows`."""
        ...


def sample(logits: Floats, rows: Sequence[SampleRow]) -> list[Sampled]:
    """Choose one token a row. logits: float32 [len(rows), vocab]; not changed."""
    return [_sample_row(logits[i], row) for i, row in enumerate(rows)]


def score(logits: Floats, ids: Int32s, num_top: int) -> list[Sampled]:
    """The raw log probability of given tokens, one a row, with `num_top` alternatives."""
    return [_with_logprobs(logits[i], int(token), num_top) for i, token in enumerate(ids)]


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) that depends on nothing but its arguments (SplitMix64, doi 10.1145/2714064.2660195)."""
    z = (seed + 0x9E3779B97F4A7C15 * (position + 1)) & 0xFFFFFFFFFFFFFFFF
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
    return float((z ^ (z >> 31)) >> 11) * 2.0**-53


def log_softmax(logits: Floats) -> Floats:
    """Over one row, in float64 where sums are."""
    shifted = logits - logits.max()
    total = np.exp(shifted, dtype=np.float32).sum(dtype=np.float64)
    result: Floats = shifted - np.float32(np.log(total))
    return result


def allowed(mask: NDArray[np.uint32], vocab: int) -> NDArray[np.bool_]:
    """A packed mask as booleans [vocab]."""
    bits = np.unpackbits(mask.view(np.uint8), count=vocab, bitorder="little")
    return bits.view(np.bool_)


def _sample_row(logits: Floats, row: SampleRow) -> Sampled:
    if row.mask is not None and row.temperature <= 0 and _cpu and not changes(row) and logits.flags.c_contiguous:
        token = _cpu.masked_argmax(logits, row.mask)
    else:
        token = _choose(_adjusted(logits, row), row)
    return Sampled(token) if row.num_logprobs is None else _with_logprobs(logits, token, row.num_logprobs)


def _with_logprobs(logits: Floats, token: int, num_top: int) -> Sampled:
    logprobs = log_softmax(logits)
    top: list[tuple[int, float]] = []
    if num_top:
        best = _largest(logprobs, num_top)
        top = [(int(i), float(logprobs[i])) for i in best]
    return Sampled(token, float(logprobs[token]), top)


def changes(row: SampleRow) -> bool:
    """Whether bias or penalties change any logit."""
    penalised = row.repetition_penalty != 1.0 or row.presence_penalty or row.frequency_penalty
    return bool(penalised or len(row.bias_ids))


def _adjusted(logits: Floats, row: SampleRow) -> Floats:
    """Bias, penalties and mask; a copy where anything changes."""
    if not changes(row) and row.mask is None:
        return logits
    values = logits.copy(order="C")
    if len(row.bias_ids):
        values[row.bias_ids] += row.bias_values
    if row.repetition_penalty != 1.0:
        seen = np.unique(np.concatenate([row.prompt_ids, row.output_ids]))
        at = values[seen]
        values[seen] = np.where(at > 0, at / row.repetition_penalty, at * row.repetition_penalty)
    if (row.presence_penalty or row.frequency_penalty) and len(row.output_ids):
        written, counts = np.unique(row.output_ids, return_counts=True)
        values[written] -= row.presence_penalty + row.frequency_penalty * counts.astype(np.float32)
    if row.mask is not None and _cpu:
        _cpu.forbid(values, row.mask)
    elif row.mask is not None:
        values[~allowed(row.mask, len(values))] = -np.inf
    return values


def _choose(values: Floats, row: SampleRow) -> int:
    if row.temperature <= 0:
        return int(values.argmax())
    with np.errstate(over="ignore"):  # a tiny temperature: all weights but the likeliest's become 0
        weights = np.exp((values - values.max()) / np.float32(max(row.temperature, _COLDEST)))  # the likeliest has 1
    number = uniform(row.seed, row.position)
    if row.top_k or row.top_p < 1 or row.min_p > 0:
        if _cpu and not row.top_k:  # numpy finds a known number faster
            return _cpu.draw(weights, row.top_p, row.min_p, number)
        kept = _kept(weights, row)
        return int(kept[_drawn(weights[kept], number)])
    sums = np.add.reduceat(weights, np.arange(0, len(weights), _BLOCK), dtype=np.float64)
    block = _drawn(sums, number)
    start, before = block * _BLOCK, sums[:block].sum()
    rest = (number * sums.sum() - before) / sums[block]  # where in its block the number falls, up to rounding
    return start + _drawn(weights[start : start + _BLOCK], max(0.0, rest))


def _drawn(weights: NDArray[np.floating], number: float) -> int:
    """The index on which a number in [0, 1) falls when each has a share by its weight; never one of weight 0."""
    cumulative = weights.cumsum(dtype=np.float64)
    last = int(np.searchsorted(cumulative, cumulative[-1]))  # rounding must not lead beyond it
    return min(last, int(np.searchsorted(cumulative, number * cumulative[-1], side="right")))


def _kept(weights: Floats, row: SampleRow) -> NDArray[np.intp]:
    """The tokens that top-k, then top-p, then min-p leave, likeliest first."""
    count = row.top_k or _CANDIDATES
    kept = _largest(weights, count)
    total = float((weights[kept] if row.top_k else weights).sum(dtype=np.float64))
    while not row.top_k and len(kept) < len(weights):
        least = weights[kept[-1]]
        if weights[kept].sum(dtype=np.float64) >= row.top_p * total or least < row.min_p or least == 0:
            break
        count *= 8
        kept = _largest(weights, count)
    if row.top_p < 1:
        kept = kept[: int(np.searchsorted(weights[kept].cumsum(dtype=np.float64), row.top_p * total)) + 1]
    return kept[weights[kept] >= row.min_p] if row.min_p > 0 else kept


def _largest(values: NDArray[np.floating], count: int) -> NDArray[np.intp]:
    """Indices of the `count` largest values, largest first, equal ones by index."""
    count = min(count, len(values))
    if count < len(values):
        least = np.partition(values, len(values) - count)[len(values) - count]
        chosen = np.flatnonzero(values >= least)
    else:
        chosen = np.arange(len(values))
    return chosen[np.lexsort((chosen, -values[chosen]))][:count]
