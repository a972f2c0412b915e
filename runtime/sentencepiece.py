"""SentencePiece's BPE (arXiv 1808.06226) from pieces and scores: the tokenizer of Gemma and Llama 2.

A piece may be put together from any two pieces; the pair whose whole has the best score comes first. Finding those pairs
among 262,144 pieces takes a second, so they are kept in the cache folder: <cache>/tokenizers/<digest>.npy, int32 [pairs, 2].
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from numpy.typing import NDArray
from tokenizers import models, normalizers

from sapwood.runtime.store import home

SPACE = "\u2581"  # what SentencePiece writes for a space

# Smaller vocabularies are quicker derived than looked up.
WORTH_KEEPING = 100_000


def build(tokens: list[str], normal: list[int], scores: Any, unknown: str | None, prefix: bool) -> tokenizers.Tokenizer:
    """`normal`: the ids of the pieces that merges make; the others are bytes and special. `prefix`: a space before a text."""
    pairs = _kept(tokens, normal, scores) if len(tokens) >= WORTH_KEEPING else derive(tokens, normal, scores)
    merges = [(tokens[left], tokens[right]) for left, right in pairs.tolist()]
    ids = {token: i for i, token in enumerate(tokens)}
    made = tokenizers.Tokenizer(models.BPE(ids, merges, byte_fallback=True, fuse_unk=True, unk_token=unknown))
    steps = [normalizers.Prepend(SPACE)] if prefix else []
    made.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", SPACE)])
    return made


def derive(tokens: Sequence[str], normal: Sequence[int], scores: Any) -> NDArray[np.int32]:
    """Every way to put a piece together from two, best piece first; ids, [pairs, 2]."""
    ids = {tokens[i]: i for i in normal}
    score = [float(value) for value in scores]
    pairs: list[tuple[int, int]] = []
    for i in sorted(ids.values(), key=score.__getitem__, reverse=True):
        piece = tokens[i]
        cuts = [
            (ids[left], ids[piece[cut:]])
            for cut in range(1, len(piece))
            if (left := piece[:cut]) in ids and piece[cut:] in ids
        ]
        pairs += sorted(cuts)
    return np.asarray(pairs, np.int32).reshape(-1, 2)


def _kept(tokens: list[str], normal: list[int], scores: Any) -> NDArray[np.int32]:
    """`derive`, from the cache folder where it is there already."""
    digest = hashlib.sha256("\0".join(tokens).encode())
    digest.update(np.asarray(normal, np.int32).tobytes() + np.asarray(scores, np.float32).tobytes())
    file = home() / "tokenizers" / f"{digest.hexdigest()[:32]}.npy"
    try:
        pairs = np.load(file, allow_pickle=False)
        if pairs.dtype == np.int32 and pairs.ndim == 2 and pairs.min() >= 0 and pairs.max() < len(tokens):
            return pairs  # type: ignore[no-any-return]
    except (OSError, ValueError, EOFError):
        pass  # not there yet, or damaged: it is derived again and written over
    pairs = derive(tokens, normal, scores)
    _write(file, pairs)
    return pairs


def _write(file: Path, pairs: NDArray[np.int32]) -> None:
    """At once or not at all; where the folder can't be written, the next start is as slow as this one."""
    unfinished = file.with_suffix(f".{os.getpid()}")
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            with open(unfinished, "wb") as stream:
                np.save(stream, pairs)
            os.replace(unfinished, file)
        finally:
            unfinished.unlink(missing_ok=True)
