"""Names of pages. A page is the keys and values of PAGE tokens at positions that are multiples of it.

    key of page i = hash(key of page i - 1, ids of page i)        key before the first = hash(model, layout, namespace)

So equal keys mean: same model, same namespace, same ids from position 0 on, hence the same keys and values.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from sapwood.radix.node import Ids

PAGE = 16  # tokens

Key = bytes  # 16 of them


class PageKeys:
    """Makes keys for one model and memory layout."""

    def __init__(self, fingerprint: str, layout: str) -> None:
        self._seed = repr((fingerprint, layout, PAGE)).encode()

    def of(self, ids: Ids, namespace: str) -> Iterator[Key]:
        """The keys of the whole pages of `ids`, from the first on."""
        key = _hash(self._seed + namespace.encode("utf-8", "surrogatepass"))
        content = ids.astype("<i4", copy=False).tobytes()
        for begin in range(0, len(ids) // PAGE * PAGE * 4, PAGE * 4):
            key = _hash(key + content[begin : begin + PAGE * 4])
            yield key


def _hash(content: bytes) -> Key:
    return hashlib.blake2b(content, digest_size=16).digest()
