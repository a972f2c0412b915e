"""From logits to tokens on the card: `kernels/sampling.py`, which is the meaning, without bringing the logits over.

Two launches. The first goes over all rows and chunks of the vocabulary: the best token of a chunk under the mask. The
second has one program a row. A token's weight is exp((logit - best) / temperature); the order of tokens is by falling
weight, equal ones by index. Top-k, top-p and min-p each keep a beginning of that order, and the drawn token is where the
running mass passes the random number, so all four are one search, for the place at which a running count or mass reaches
a target: 8 passes over the weights, each of which fixes 4 bits of the weight at that place. Nothing is sorted, nothing is
added atomically, and a row never depends on another.

What may differ from the CPU's choice: exp and the order of float64 sums, so a draw within about 1e-6 of the border
between two tokens may fall on its other side, and tokens of equal weight up to rounding may change places.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import triton
import triton.language as tl

from sapwood.kernels.sampling import Sampled, SampleRow, changes, score, uniform

CHUNK = 2048  # tokens of one program of the first launch
COLDEST = 1e-30  # temperature, as on the CPU
_PARAMETERS = tl.constexpr(6)  # number, temperature, top_k, top_p, min_p, row of the mask


@triton.jit
def _best_kernel(  # type: ignore[no-untyped-def]
    logits_ptr, params_ptr, masks_ptr, best_ptr, index_ptr, vocab, words, CHUNK: tl.constexpr
):  # fmt: skip
    row, chunk = tl.program_id(0).to(tl.int64), tl.program_id(1)
    i = chunk * CHUNK + tl.arange(0, CHUNK)
    values = _allowed(logits_ptr, params_ptr, masks_ptr, row, i, vocab, words)
    best = tl.max(values, axis=0)
    at = row * tl.num_programs(1) + chunk
    tl.store(best_ptr + at, best)
    tl.store(index_ptr + at, tl.minimum(tl.min(tl.where(values == best, i, vocab), axis=0), vocab - 1))


@triton.jit
def _allowed(logits_ptr, params_ptr, masks_ptr, row, i, vocab, words):  # type: ignore[no-untyped-def]
    """The logits of tokens i, -inf for those that the row's mask forbids and beyond the vocabulary."""
    values = tl.load(logits_ptr + row * vocab + i, mask=i < vocab, other=float("-inf"))
    mask_row = tl.load(params_ptr + row * _PARAMETERS + 5).to(tl.int64)
    if mask_row >= 0:
        word = tl.load(masks_ptr + mask_row * words + i // 32, mask=i < vocab, other=0)
        values = tl.where(((word >> (i % 32)) & 1) == 1, values, float("-inf"))
    return values


@triton.jit
def _place(weights_ptr, vocab, target, BY_COUNT: tl.constexpr, PAST: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Where the running count or mass of tokens in their order reaches the target (PAST: goes past it).

    Returns the weight there, and count and mass of all larger weights. Where rounding keeps the mass below its target,
    the place is that of the smallest weight that isn't 0.
    """
    bins = tl.arange(0, 16)
    found = tl.full((), 0, tl.int32)
    above_count, above_mass = tl.full((), 0.0, tl.float64), tl.full((), 0.0, tl.float64)
    for level in range(8):
        shift = 28 - 4 * level
        counts, masses = tl.zeros((16,), tl.float64), tl.zeros((16,), tl.float64)
        for start in range(0, vocab, BLOCK):
            i = start + tl.arange(0, BLOCK)
            weight = tl.load(weights_ptr + i, mask=i < vocab, other=0.0)
            bits = weight.to(tl.int32, bitcast=True)  # weights are not negative: their bits are in their order
            here = (i < vocab) & ((bits >> shift >> 4) == (found >> shift >> 4))
            member = here[None, :] & (((bits >> shift) & 15)[None, :] == bins[:, None])
            counts += tl.sum(member.to(tl.int32), axis=1).to(tl.float64)
            masses += tl.sum(tl.where(member, weight[None, :].to(tl.float64), 0.0), axis=1)
        measure = counts if BY_COUNT else masses
        base = above_count if BY_COUNT else above_mass
        running = base + tl.sum(tl.where(bins[None, :] >= bins[:, None], measure[None, :], 0.0), axis=1)
        reached = (running > target) if PAST else (running >= target)
        digit = tl.max(tl.where(reached & (measure > 0), bins, -1), axis=0)
        if digit < 0:
            digit = tl.min(tl.where(measure > 0, bins, 15), axis=0)
        above_count += tl.sum(tl.where(bins > digit, counts, 0.0), axis=0)
        above_mass += tl.sum(tl.where(bins > digit, masses, 0.0), axis=0)
        found = found | (digit << shift)
    return found.to(tl.float32, bitcast=True), above_count, above_mass


@triton.jit
def _nth_equal(weights_ptr, vocab, weight, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Index of the token number n, from 0, among those of exactly this weight; the last where there are fewer."""
    token, before = tl.full((), 0, tl.int32), tl.full((), 0, tl.int32)
    for start in range(0, vocab, BLOCK):
        i = start + tl.arange(0, BLOCK)
        equal = (i < vocab) & (tl.load(weights_ptr + i, mask=i < vocab, other=-1.0) == weight)
        rank = before + tl.cumsum(equal.to(tl.int32), axis=0) - 1
        token = tl.maximum(token, tl.max(tl.where(equal & (rank <= n), i, 0), axis=0))
        before += tl.sum(equal.to(tl.int32), axis=0)
    return token


@triton.jit
def _by_index(weights_ptr, vocab, target, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """The first token at which the running mass, in the order of indices, goes past the target."""
    token, before = tl.full((), -1, tl.int32), tl.full((), 0.0, tl.float64)
    last = tl.full((), 0, tl.int32)
    for start in range(0, vocab, BLOCK):
        i = start + tl.arange(0, BLOCK)
        weight = tl.load(weights_ptr + i, mask=i < vocab, other=0.0).to(tl.float64)
        running = before + tl.cumsum(weight, axis=0)
        passed = (running > target) & (weight > 0)
        first = tl.min(tl.where(passed, i, vocab), axis=0)
        token = tl.where((token < 0) & (first < vocab), first, token)
        last = tl.maximum(last, tl.max(tl.where(weight > 0, i, 0), axis=0))
        before += tl.sum(weight, axis=0)
    return tl.where(token < 0, last, token)


@triton.jit
def _choose_kernel(  # type: ignore[no-untyped-def]
    logits_ptr, params_ptr, masks_ptr, best_ptr, index_ptr, weights_ptr, token_ptr, vocab, words, chunks,
    COLDEST: tl.constexpr, CHUNKS_BLOCK: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, CHUNKS_BLOCK)
    bests = tl.load(best_ptr + row * chunks + c, mask=c < chunks, other=float("-inf"))
    best = tl.max(bests, axis=0)
    params = params_ptr + row * _PARAMETERS
    number, temperature = tl.load(params), tl.load(params + 1).to(tl.float32)
    top_k, top_p, min_p = tl.load(params + 2), tl.load(params + 3), tl.load(params + 4).to(tl.float32)
    if temperature <= 0:
        chunk = tl.min(tl.where((bests == best) & (c < chunks), c, chunks), axis=0)
        tl.store(token_ptr + row, tl.load(index_ptr + row * chunks + tl.minimum(chunk, chunks - 1)))
        return
    temperature = tl.maximum(temperature, COLDEST)
    weights = weights_ptr + row * vocab
    mass, mass_of_min_p = tl.full((), 0.0, tl.float64), tl.full((), 0.0, tl.float64)
    for start in range(0, vocab, BLOCK):
        i = start + tl.arange(0, BLOCK)
        values = _allowed(logits_ptr, params_ptr, masks_ptr, row, i, vocab, words)
        weight = tl.exp(tl.div_rn(values - best, temperature + tl.zeros((BLOCK,), tl.float32)))
        tl.store(weights + i, weight, mask=i < vocab)
        mass += tl.sum(weight.to(tl.float64), axis=0)
        mass_of_min_p += tl.sum(tl.where(weight >= min_p, weight, 0.0).to(tl.float64), axis=0)
    tl.debug_barrier()  # other threads of the program read what these wrote
    least = tl.full((), 0.0, tl.float32)  # the smallest weight that is kept
    if top_k > 0:
        least, count, above = _place(weights, vocab, top_k, BY_COUNT=True, PAST=False, BLOCK=BLOCK)
        mass = above + (top_k - count) * least.to(tl.float64)
    if top_p < 1:
        goal = top_p * mass
        least, count, above = _place(weights, vocab, goal, BY_COUNT=False, PAST=False, BLOCK=BLOCK)
        ties = tl.maximum(tl.ceil((goal - above) / least.to(tl.float64)), 1.0)
        mass = tl.minimum(above + ties * least.to(tl.float64), mass)
    if min_p > least:
        mass = mass_of_min_p
    if (top_k > 0) | (top_p < 1) | (min_p > 0):
        weight, count, above = _place(weights, vocab, number * mass, BY_COUNT=False, PAST=True, BLOCK=BLOCK)
        n = tl.maximum(tl.floor((number * mass - above) / weight.to(tl.float64)), 0.0).to(tl.int32)
        token = _nth_equal(weights, vocab, weight, n, BLOCK=BLOCK)
    else:
        token = _by_index(weights, vocab, number * mass, BLOCK=BLOCK)
    tl.store(token_ptr + row, token)


def sample(logits: torch.Tensor, rows: Sequence[SampleRow]) -> list[Sampled]:
    """Choose one token a row. logits: float32 [len(rows), vocab] on the device, contiguous; not changed."""
    num_rows, vocab = logits.shape
    device = logits.device
    adjusted = _adjusted(logits, rows)
    masked = [i for i, row in enumerate(rows) if row.mask is not None]
    words = triton.cdiv(vocab, 32)
    masks = np.stack([row.mask[:words] for row in rows if row.mask is not None]) if masked else np.zeros((1, 1))
    masks_on_device = torch.from_numpy(masks.astype(np.uint32).view(np.int32)).to(device)
    parameters = [
        (uniform(r.seed, r.position), r.temperature, min(r.top_k, vocab), r.top_p, r.min_p, -1.0) for r in rows
    ]
    params = np.array(parameters, np.float64).reshape(num_rows, 6)
    params[masked, 5] = range(len(masked))
    params_on_device = torch.from_numpy(params).to(device)
    chunks = triton.cdiv(vocab, CHUNK)
    best = torch.empty(num_rows, chunks, dtype=torch.float32, device=device)
    index = torch.empty(num_rows, chunks, dtype=torch.int32, device=device)
    tokens = torch.empty(num_rows, dtype=torch.int32, device=device)
    weights = torch.empty_like(adjusted) if any(row.temperature > 0 for row in rows) else adjusted
    _best_kernel[(num_rows, chunks)](
        adjusted, params_on_device, masks_on_device, best, index, vocab, words, CHUNK=CHUNK
    )  # fmt: skip
    _choose_kernel[(num_rows,)](
        adjusted, params_on_device, masks_on_device, best, index, weights, tokens, vocab, words, chunks,
        COLDEST=COLDEST, CHUNKS_BLOCK=triton.next_power_of_2(chunks), BLOCK=CHUNK, num_warps=16,
    )  # fmt: skip
    chosen = tokens.tolist()
    return [_with_logprobs(logits[i], token, row) for i, (token, row) in enumerate(zip(chosen, rows, strict=True))]


def _with_logprobs(logits: torch.Tensor, token: int, row: SampleRow) -> Sampled:
    """Rows that want logprobs bring their logits over: what is reported is what the CPU would report."""
    if row.num_logprobs is None:
        return Sampled(token)
    return score(logits[None].cpu().numpy(), np.array([token], np.int32), row.num_logprobs)[0]


def _adjusted(logits: torch.Tensor, rows: Sequence[SampleRow]) -> torch.Tensor:
    """Bias and penalties; a copy where anything changes."""
    changed = [i for i, row in enumerate(rows) if changes(row)]
    if not changed:
        return logits
    logits = logits.clone()
    for i in changed:
        values, row = logits[i], rows[i]

        def send(array: np.ndarray) -> torch.Tensor:
            return torch.from_numpy(array).to(logits.device)

        if len(row.bias_ids):
            values[send(row.bias_ids.astype(np.int64))] += send(row.bias_values)
        if row.repetition_penalty != 1.0:
            seen = send(np.unique(np.concatenate([row.prompt_ids, row.output_ids])).astype(np.int64))
            at = values[seen]
            values[seen] = torch.where(at > 0, at / row.repetition_penalty, at * row.repetition_penalty)
        if (row.presence_penalty or row.frequency_penalty) and len(row.output_ids):
            written, counts = np.unique(row.output_ids, return_counts=True)
            values[send(written.astype(np.int64))] -= send(
                row.presence_penalty + row.frequency_penalty * counts.astype(np.float32)
            )
    return logits
