"""Parts of the tree into a file and back, a little at a time, so that the tree's thread can do other things in between.

    save    tree's thread  copies records ─► another thread  checksums and writes them          the file: `snapshot_file.py`
    load    another thread  verifies, reads ─► tree's thread  puts records into slots of paths

A save is of the moment when it began, and holds nothing: what is evicted before its turn is copied on the way out. A load
holds what it brought until its end, so that the one part doesn't push out the other, unless somebody needs the room.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path as FilePath
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sapwood.errors import InvalidRequest
from sapwood.kernels.plan import KVMemory
from sapwood.radix.node import Ids, Node
from sapwood.radix.path import Path
from sapwood.radix.pool import Slots
from sapwood.radix.snapshot_file import ROOT, Branch, Header, Records, SnapshotReader, SnapshotWriter
from sapwood.radix.tree import RadixTree

PIECE = 2**20  # bytes of records that are copied at once, by the tree's thread
AHEAD = 4  # pieces that may lie between the two threads
MOST_KEPT = 2**30  # bytes of evicted records that a save keeps until their turn
RELEASED = 32  # paths released at once

OnEnd = Callable[[int | Exception], None]  # given the number of tokens, or what went wrong


class Background:
    """A thread that does one call after the other; `wake` is called after each, from there."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._executor = ThreadPoolExecutor(1, "sapwood-snapshot")  # begins its thread at the first call

    def submit(self, call: Callable[..., Any], *args: Any) -> Future[Any]:
        """Have it done after what was submitted before."""
        future = self._executor.submit(call, *args)
        future.add_done_callback(lambda _: self._wake())
        return future

    def close(self) -> None:
        """Finish what was submitted, and end the thread."""
        self._executor.shutdown()


class Job(Protocol):
    """A save or a load under way."""

    num_tokens: int  # saved, or in memory because of it

    @property
    def is_due(self) -> bool:
        """Whether `advance` could get on now; else the other thread is at it."""
        ...

    def advance(self) -> bool:
        """Do a little, by the tree's thread; whether that was all. InvalidRequest ends it, and leaves nothing behind."""
        ...

    def let_go(self) -> bool:
        """Give back the slots that it keeps from others, and end; False where it keeps none."""
        ...

    def abandon(self) -> None:
        """End before the end."""
        ...


class Saving:
    """Writes what a namespace holds, or only the cached prefix of `ids` in it. Raises InvalidRequest."""

    def __init__(
        self,
        background: Background,
        tree: RadixTree,
        kv: KVMemory,
        file: str | FilePath,
        *,
        fingerprint: str,
        namespace: str = "",
        ids: Sequence[int] | Ids | None = None,
    ) -> None:
        nodes = _nodes(tree, namespace) if ids is None else _prefix(tree, namespace, ids)
        self._background, self._tree, self._kv = background, tree, kv
        self._target = FilePath(file)
        self._writer = SnapshotWriter(self._target)
        self._slots = np.concatenate([*(slots for *_, slots in nodes), np.empty(0, np.int32)])
        self._rows = np.full(tree.num_slots, -1, np.int32)  # by slot: which row of the file its record is to be
        self._rows[self._slots] = np.arange(len(self._slots), dtype=np.int32)
        self._kept: dict[int, Records] = {}  # by row: records of slots that are somebody else's by now
        self._num_read = 0
        self._is_closing = False
        self._error: InvalidRequest | None = None
        self.num_tokens = len(self._slots)
        sizes = [(parent, len(part)) for parent, part, _ in nodes]
        header = Header(fingerprint, kv.layout, kv.bytes_per_slot, namespace, sizes)
        content = np.concatenate([*(part for _, part, _ in nodes), np.empty(0, np.int32)]).astype("<i4").tobytes()
        self._pending: deque[Future[Any]] = deque([background.submit(self._writer.begin, header, content)])
        tree.on_free = self._keep

    @property
    def is_due(self) -> bool:
        return self._pending[0].done() or (len(self._pending) < AHEAD and not self._is_closing)

    def advance(self) -> bool:
        try:
            if self._error is not None:
                raise self._error
            while self._pending and self._pending[0].done():
                self._pending.popleft().result()
        except OSError as error:
            self.abandon()
            raise InvalidRequest(f"the snapshot can't be written to {self._target}: {error.strerror}") from None
        except Exception:
            self.abandon()
            raise
        if self._is_closing:
            return not self._pending
        if self._num_read == len(self._slots):
            self._is_closing = True
            self._tree.on_free = None
            self._pending.append(self._background.submit(self._writer.finish))
        elif len(self._pending) < AHEAD:
            self._pending.append(self._background.submit(self._writer.put, self._read()))
        return False

    def let_go(self) -> bool:
        return False

    def abandon(self) -> None:
        self._tree.on_free = None
        self._kept.clear()
        self._background.submit(self._writer.abandon)

    def _read(self) -> Records:
        """The next records."""
        first, last = self._num_read, min(self._num_read + _piece_len(self._kv), len(self._slots))
        records = self._kv.read(self._slots[first:last])
        if self._kept:
            for row in range(first, last):
                if (record := self._kept.pop(row, None)) is not None:
                    records[row - first] = record
        self._num_read = last
        return records

    def _keep(self, slots: Slots) -> None:
        """These slots are about to be somebody else's: copy what is still to be written."""
        rows = self._rows[slots]
        due = rows >= self._num_read
        if not due.any():
            return
        for row, record in zip(rows[due].tolist(), self._kv.read(slots[due]), strict=True):
            self._kept[row] = record
        self._rows[slots] = -1
        if len(self._kept) * self._kv.bytes_per_slot > MOST_KEPT:
            self._tree.on_free = None
            self._error = InvalidRequest(
                f"too much was evicted while it was saved to {self._target}; save less, or when less is going on"
            )


class Loading:
    """Brings a file back as cache. What doesn't fit is left out. Raises InvalidRequest, and changes nothing, for a file that is
    damaged, or of another model.
    """

    def __init__(
        self, background: Background, tree: RadixTree, kv: KVMemory, file: str | FilePath, *, fingerprint: str
    ) -> None:
        self._background, self._tree, self._kv = background, tree, kv
        self._opening = background.submit(SnapshotReader, FilePath(file), fingerprint, kv.layout)
        self._reader: SnapshotReader | None = None
        self._pending: deque[Future[Records]] = deque()
        self._num_asked = self._num_taken = 0  # rows
        self._num_begun = 0  # branches
        self._line = np.empty(0, np.int32)  # ids from the root to the end of the current branch
        self._path: Path | None = None  # of the current branch; None where what it goes on from isn't there
        self._held: list[Path] = []
        self.num_tokens = 0

    @property
    def is_due(self) -> bool:
        if self._reader is None:
            return self._opening.done()
        if self._num_taken == len(self._reader):
            return True
        return self._can_ask or self._pending[0].done()

    @property
    def _can_ask(self) -> bool:
        return self._reader is not None and self._num_asked < len(self._reader) and len(self._pending) < AHEAD

    def advance(self) -> bool:
        if self._reader is None:
            if not self._opening.done():
                return False
            self._reader = self._opening.result()
        while self._can_ask:
            last = min(self._num_asked + _piece_len(self._kv), len(self._reader))
            self._pending.append(self._background.submit(self._reader.read, self._num_asked, last))
            self._num_asked = last
        if self._pending and self._pending[0].done():
            try:
                records = self._pending.popleft().result()
            except Exception:
                self.abandon()
                raise
            self._take(self._reader, records)
        elif self._num_taken == len(self._reader):
            self._release(RELEASED)
            if not self._held:
                self._background.submit(_close, self._opening)
                return True
        return False

    def let_go(self) -> bool:
        if not self._held:
            return False
        self.abandon()
        return True

    def abandon(self) -> None:
        self._path = None
        self._release(len(self._held))
        if self._reader is not None:
            self._num_asked = self._num_taken = len(self._reader)
        self._pending.clear()
        self._background.submit(_close, self._opening)

    def _take(self, reader: SnapshotReader, records: Records) -> None:
        """Put the next records into the slots that they belong to."""
        row, last = self._num_taken, self._num_taken + len(records)
        while row < last:
            if self._num_begun < len(reader.branches) and row == reader.branches[self._num_begun].first:
                self._begin(reader, reader.branches[self._num_begun])
                self._num_begun += 1
            branch = reader.branches[self._num_begun - 1]
            stop = min(last, branch.last)
            self._fill(branch.start + row - branch.first, records[row - self._num_taken : stop - self._num_taken])
            row = stop
        self._num_taken = last

    def _begin(self, reader: SnapshotReader, branch: Branch) -> None:
        """Take slots for a branch, as far as there is room."""
        tree, namespace = self._tree, reader.header.namespace
        self._line = np.concatenate([self._line[: branch.start], reader.ids[branch.first : branch.last]])
        path = tree.match(self._line, namespace)
        self._held.append(path)
        self._path = None
        if path.num_computed >= branch.start:
            path.extend(self._line[len(path) : len(path) + tree.available(namespace)])
            self._path = path

    def _fill(self, start: int, records: Records) -> None:
        """Write the records of positions from `start` on, except where others have computed them, or there is no room."""
        path = self._path
        if path is None:
            return
        at, end = path.num_computed, min(start + len(records), len(path))
        if start <= at < end:
            slots = path.slots[at:end]
            self._kv.write(slots, records[at - start : end - start])
            self._tree.mark_computed(slots)
            self.num_tokens += end - at

    def _release(self, count: int) -> None:
        for path in self._held[:count]:
            path.release()
        del self._held[:count]


class Snapshots:
    """Saves and loads of one tree, one after the other. The tree's thread calls `advance` after `wake`, and between other things."""

    def __init__(self, tree: RadixTree, kv: KVMemory, wake: Callable[[], None] = lambda: None) -> None:
        self._tree, self._kv = tree, kv
        self._background = Background(wake)
        self._waiting: deque[tuple[Callable[[], Job], OnEnd]] = deque()
        self._job: Job | None = None

    @property
    def is_due(self) -> bool:
        """Whether `advance` could get on now."""
        return bool(self._waiting) if self._job is None else self._job.is_due

    def save(
        self,
        file: str,
        on_end: OnEnd,
        *,
        fingerprint: str,
        namespace: str = "",
        ids: Sequence[int] | Ids | None = None,
    ) -> None:
        """Have a `Saving` done."""

        def begin() -> Job:
            return Saving(
                self._background, self._tree, self._kv, file, fingerprint=fingerprint, namespace=namespace, ids=ids
            )

        self._waiting.append((begin, on_end))

    def load(self, file: str, on_end: OnEnd, *, fingerprint: str) -> None:
        """Have a `Loading` done."""

        def begin() -> Job:
            return Loading(self._background, self._tree, self._kv, file, fingerprint=fingerprint)

        self._waiting.append((begin, on_end))

    def advance(self) -> bool:
        """Do a little of what is due; whether something has ended, so that there may be more room than before."""
        if not self.is_due:
            return False
        begin, on_end = self._waiting[0]
        try:
            if self._job is None:
                self._job = begin()
            if not self._job.advance():
                return False
            self._end(on_end, self._job.num_tokens)
        except Exception as error:
            self._end(on_end, error)
        return True

    def let_go(self) -> bool:
        """Have slots given back that a load keeps from others; False if there are none."""
        return self._job is not None and self._job.let_go()

    def close(self) -> None:
        """Give up what is under way, and end the thread."""
        if self._job is not None:
            self._job.abandon()
        self._waiting.clear()
        self._background.close()

    def _end(self, on_end: OnEnd, result: int | Exception) -> None:
        self._job = None
        self._waiting.popleft()
        on_end(result)


def save(
    tree: RadixTree,
    kv: KVMemory,
    file: str | FilePath,
    *,
    fingerprint: str,
    namespace: str = "",
    ids: Sequence[int] | Ids | None = None,
) -> int:
    """Do a `Saving` from beginning to end; returns the number of tokens."""
    return _at_once(
        lambda background: Saving(background, tree, kv, file, fingerprint=fingerprint, namespace=namespace, ids=ids)
    )


def load(tree: RadixTree, kv: KVMemory, file: str | FilePath, *, fingerprint: str) -> int:
    """Do a `Loading` from beginning to end; returns the number of tokens that are in memory now because of it."""
    return _at_once(lambda background: Loading(background, tree, kv, file, fingerprint=fingerprint))


def _at_once(begin: Callable[[Background], Job]) -> int:
    woken = threading.Event()
    background = Background(woken.set)
    try:
        job = begin(background)
        while not job.advance():
            if not job.is_due:
                woken.wait()
            woken.clear()
        return job.num_tokens
    finally:
        background.close()


def _close(opening: Future[SnapshotReader]) -> None:
    """By the other thread, after all that it was to read."""
    if opening.exception() is None:
        opening.result().close()


def _piece_len(kv: KVMemory) -> int:
    """Tokens whose records are copied at once."""
    return max(16, min(512, PIECE // kv.bytes_per_slot))


def _prefix(tree: RadixTree, namespace: str, ids: Sequence[int] | Ids) -> list[tuple[int, Ids, NDArray[np.int32]]]:
    """(parent, ids, slots) of a cached prefix, as one node."""
    path = tree.match(ids, namespace)
    count = path.num_computed
    found = [(ROOT, path.ids[:count], path.slots[:count].copy())] if count else []
    path.release()
    return found


def _nodes(tree: RadixTree, namespace: str) -> list[tuple[int, Ids, NDArray[np.int32]]]:
    """(parent, ids, slots) of a namespace's computed nodes, each followed by what is below it. Views: the tree may change them."""
    root = tree.roots().get(namespace)
    found: list[tuple[int, Ids, NDArray[np.int32]]] = []
    stack: list[tuple[int, Node]] = [(ROOT, child) for child in root.children.values()] if root else []
    while stack:
        parent, node = stack.pop()
        ids, slots = node.ids, node.slots
        if node.locks and (count := int(np.count_nonzero(tree.computed[slots]))) < node.size:
            if count:
                found.append((parent, ids[:count], slots[:count]))
            continue
        number = len(found)
        found.append((parent, ids, slots))
        for child in node.children.values():
            stack.append((number, child))
    return found
