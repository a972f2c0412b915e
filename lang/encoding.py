"""Pieces of text to token ids. What the chat template wrote may hold special tokens; what a program appended may not.

Only special tokens part the text: everything between two of them is encoded together, whoever wrote it, so that the ids
are those of the whole text and tokens don't break where pieces meet.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sapwood.lang.backends import TextTokenizer

Piece = tuple[str, bool]  # text; whether special tokens written out in it count


def encode(tokenizer: TextTokenizer, pieces: Sequence[Piece], *, first: bool) -> list[int]:
    """The ids of these pieces, one after the other; `first`: they begin the text, so the model's first token belongs there."""
    ids: list[int] = []
    run = ""
    for text, special in pieces:
        if not special:
            run += text
            continue
        for index, part in enumerate(_parting(tokenizer).split(text)):
            if index % 2:  # a special token's name
                ids += tokenizer.encode(run) if run else []
                ids.append(tokenizer.special[part])
                run = ""
            else:
                run += part
    if run:
        ids += tokenizer.encode(run)
    if first and tokenizer.bos_id is not None and (tokenizer.add_bos or not ids) and ids[:1] != [tokenizer.bos_id]:
        ids.insert(0, tokenizer.bos_id)
    return ids


@lru_cache(maxsize=16)
def _parting(tokenizer: TextTokenizer) -> re.Pattern[str]:
    names = sorted(tokenizer.special, key=len, reverse=True)
    return re.compile(f"({'|'.join(map(re.escape, names))})" if names else r"(\Z\A)")
