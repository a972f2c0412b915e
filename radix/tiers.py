"""Where keys and values go when the tree evicts them, and how they come back.

    device ──evict──► host memory and, in the background, disk         by pages, see `pages.py`
    device ◄─restore─ host memory ◄─prefetch─ disk

Everything is called by the tree's thread; only the disk has a thread of its own, so that others are computed meanwhile.
The tree knows nothing of it: what comes back is written into slots that a path has taken for it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sapwood.kernels.plan import KVMemory
from sapwood.radix.disk import DiskTier, Page
from sapwood.radix.node import Ids, Node
from sapwood.radix.pages import PAGE, Key, PageKeys
from sapwood.radix.path import Path
from sapwood.radix.tree import RadixTree

AHEAD = 32  # pages stored at once when a leaf begins to be evicted, so that most evictions store nothing


@dataclass(slots=True)
class TierStats:
    """In tokens unless said otherwise."""

    host: int = 0  # kept in host memory
    disk_pages: int = 0
    disk_bytes: int = 0
    demoted: int = 0  # copied out of the device, in all
    restored: int = 0  # copied back
    num_damaged: int = 0  # pages that were found damaged on disk


class Prefetch:
    """Pages on their way from disk."""

    def __init__(self, missing: set[Key]) -> None:
        self._missing = missing

    @property
    def is_done(self) -> bool:
        """Nothing more will come."""
        return not self._missing

    def settle(self, key: Key) -> None:
        """This page is here, or will never be."""
        self._missing.discard(key)


class Tiers:
    """Catches what `tree` evicts. `host_bytes` bounds the host memory; `disk` holds more, and outlives the process.

    What is too much for the disk to write at once is written when it falls out of host memory.
    """

    def __init__(
        self, tree: RadixTree, kv: KVMemory, *, fingerprint: str, host_bytes: int, disk: DiskTier | None = None
    ) -> None:
        self._tree = tree
        self._kv = kv
        self._keys = PageKeys(fingerprint, kv.layout)
        self._host: OrderedDict[Key, Page] = OrderedDict()  # the least lately used first
        self._max_pages = host_bytes // (PAGE * kv.bytes_per_slot)
        self._disk = disk
        self._loading: list[Prefetch] = []
        self._demoted = self._restored = 0
        tree.on_evict = self._demote

    def prefetch(self, ids: Sequence[int] | Ids, namespace: str = "") -> Prefetch | None:
        """Begin to bring the prefix of `ids` from disk into host memory; None if there is nothing to wait for.

        `poll` takes in what has arrived. Never more is asked for than half of the host memory holds.
        """
        if self._disk is None or not len(self._disk):
            return None
        wanted = np.asarray(ids, np.int32)
        present = self._tree.peek(wanted, namespace)
        missing: set[Key] = set()
        for index, key in enumerate(self._keys.of(wanted, namespace)):
            if (index + 1) * PAGE <= present:
                continue
            if key in self._host:
                self._host.move_to_end(key)
            elif key in self._disk and len(missing) < self._max_pages // 2:
                missing.add(key)
            else:
                break
        if not missing:
            return None
        for key in missing:
            self._disk.read(key)
        prefetch = Prefetch(missing)
        self._loading.append(prefetch)
        return prefetch

    def poll(self) -> None:
        """Take in what has arrived from disk."""
        if self._disk is None:
            return
        for key, page in self._disk.arrived():
            if page is not None:
                self._keep(key, page)
            for prefetch in self._loading:
                prefetch.settle(key)
        self._loading = [prefetch for prefetch in self._loading if not prefetch.is_done]

    def restore(self, path: Path) -> int:
        """Fill a path's first uncomputed positions from host memory, as far as it has them; returns how many it filled."""
        start = at = path.num_computed
        if not self._host or start == len(path):
            return 0
        for index, key in enumerate(self._keys.of(path.ids, path.space.name)):
            end = (index + 1) * PAGE
            if end <= start:
                continue
            page = self._host.get(key)
            if page is None:
                break
            self._host.move_to_end(key)
            records = page.reshape(PAGE, self._kv.bytes_per_slot)
            self._kv.write(path.slots[at:end], records[at - end + PAGE :])
            at = end
        self._tree.mark_computed(path.slots[start:at])
        self._restored += at - start
        return at - start

    def clear(self) -> None:
        """Forget every page, on disk too."""
        self._host.clear()
        if self._disk is not None:
            self._disk.clear()

    def stats(self) -> TierStats:
        """Counts as they are now."""
        disk = self._disk
        counted = TierStats(host=len(self._host) * PAGE, demoted=self._demoted, restored=self._restored)
        if disk is not None:
            counted.disk_pages, counted.disk_bytes, counted.num_damaged = len(disk), disk.num_bytes, disk.num_damaged
        return counted

    def close(self) -> None:
        """Stop; what is on disk stays there."""
        self._tree.on_evict = None
        if self._disk is not None:
            self._disk.close()

    def _demote(self, node: Node, index: int) -> None:
        """Keep the whole pages that reach into what `node` loses: its tokens from `index` on."""
        first, last = (node.start + index) // PAGE * PAGE, node.end // PAGE * PAGE
        if first >= last or (node.demoted[0] <= first and last <= node.demoted[1]):
            return
        first = min(first, max(node.start // PAGE * PAGE, last - AHEAD * PAGE))
        ids, slots = node.walk()
        for index, key in enumerate(self._keys.of(ids[:last], node.space.name)):
            begin = index * PAGE
            if begin >= first and not self._has(key):
                page = self._kv.read(slots[begin : begin + PAGE])
                self._keep(key, page)
                if self._disk is not None:
                    self._disk.write(key, page)
                self._demoted += PAGE
        node.demoted = (first, last)

    def _has(self, key: Key) -> bool:
        if key in self._host:
            self._host.move_to_end(key)
            return True
        return self._disk is not None and key in self._disk

    def _keep(self, key: Key, page: Page) -> None:
        self._host[key] = page
        while len(self._host) > self._max_pages:
            oldest, fallen = self._host.popitem(last=False)
            if self._disk is not None:
                self._disk.write(oldest, fallen)
