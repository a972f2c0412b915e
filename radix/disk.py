"""Pages on disk: one file each, checksummed, bounded in all. A missing or damaged file is a miss.

    KEY.kv = magic · CRC-32 of key and page · page

One thread does all reading and writing, in order; everything else is called by the tree's thread. Files are written under
another name first, so several processes may share a folder. Files are for the user alone: they hold what prompts said.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
import zlib
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sapwood.radix.pages import Key

MAGIC = b"SAPPAGE1"
ABANDONED = 60.0  # seconds after which nobody is writing a file any more
MAX_WRITING = 256  # pages that wait to be written; more are dropped rather than fill the memory

Page = NDArray[np.uint8]  # [PAGE, bytes_per_slot]


class DiskTier:
    """At most `max_bytes` of pages in `folder`; the least lately used go first. `wake`: called when a page has arrived."""

    def __init__(self, folder: str | Path, max_bytes: int, wake: Callable[[], None] = lambda: None) -> None:
        self._folder = Path(folder)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._max_bytes = max_bytes
        self._wake = wake
        self._sizes: OrderedDict[Key, int] = OrderedDict()  # bytes of each file, the least lately used first
        self.num_bytes = 0
        self.num_damaged = 0
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._arrived: queue.SimpleQueue[tuple[Key, Page | None]] = queue.SimpleQueue()
        self._index()
        self._thread = threading.Thread(target=self._work, name="sapwood-disk", daemon=True)
        self._thread.start()

    def __contains__(self, key: Key) -> bool:
        return key in self._sizes

    def __len__(self) -> int:
        return len(self._sizes)

    def write(self, key: Key, page: Page) -> None:
        """Keep a page, some time soon."""
        if key in self._sizes or self._jobs.qsize() >= MAX_WRITING:
            return
        self._add(key, len(MAGIC) + 4 + page.nbytes)
        self._jobs.put(lambda: self._write(key, page))

    def read(self, key: Key) -> None:
        """Ask for a page; `arrived` will have it."""
        self._sizes.move_to_end(key)
        self._jobs.put(lambda: self._read(key))

    def arrived(self) -> list[tuple[Key, Page | None]]:
        """What was read since the last call, flat uint8; None for a page that turned out to be missing or damaged."""
        found = []
        with contextlib.suppress(queue.Empty):
            while True:
                key, page = self._arrived.get_nowait()
                if page is None:
                    self._drop(key)
                found.append((key, page))
        return found

    def clear(self) -> None:
        """Remove every page."""
        while self._sizes:
            self._remove(next(iter(self._sizes)))

    def close(self) -> None:
        """Finish what is under way and stop the thread."""
        self._jobs.put(None)
        self._thread.join()

    def _index(self) -> None:
        """Find the pages that are there; remove what an earlier process left half-written."""
        found = []
        for entry in os.scandir(self._folder):
            with contextlib.suppress(OSError, ValueError):
                if entry.name.endswith(".kv"):
                    found.append((entry.stat().st_mtime, bytes.fromhex(entry.name[:-3]), entry.stat().st_size))
                elif entry.name.endswith(".partial") and time.time() - entry.stat().st_mtime > ABANDONED:
                    os.unlink(entry.path)
        for _, key, size in sorted(found):
            self._add(key, size)

    def _add(self, key: Key, size: int) -> None:
        self._sizes[key] = size
        self.num_bytes += size
        while self.num_bytes > self._max_bytes:
            self._remove(next(iter(self._sizes)))

    def _remove(self, key: Key) -> None:
        self._drop(key)
        self._jobs.put(lambda: self._file(key).unlink(missing_ok=True))

    def _drop(self, key: Key) -> None:
        self.num_bytes -= self._sizes.pop(key, 0)

    def _file(self, key: Key) -> Path:
        return self._folder / f"{key.hex()}.kv"

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            # A page is a convenience: whatever the disk does, the worst is a miss.
            with contextlib.suppress(OSError, MemoryError):
                job()

    def _write(self, key: Key, page: Page) -> None:
        partial = self._folder / f"{key.hex()}.{os.getpid()}.partial"
        try:
            with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as stream:
                stream.write(MAGIC + _checksum(key, page.data))
                stream.write(page.data)
            os.replace(partial, self._file(key))
        except OSError:
            partial.unlink(missing_ok=True)
            self._arrived.put((key, None))

    def _read(self, key: Key) -> None:
        page = None
        try:
            content = self._file(key).read_bytes()
            begin = len(MAGIC) + 4
            if len(content) > begin and content[:begin] == MAGIC + _checksum(key, memoryview(content)[begin:]):
                page = np.frombuffer(content, np.uint8, offset=begin)
                os.utime(self._file(key))
            else:
                self.num_damaged += 1
                self._file(key).unlink(missing_ok=True)
        finally:
            # Somebody waits for it, whatever happened.
            self._arrived.put((key, page))
            self._wake()


def _checksum(key: Key, page: memoryview) -> bytes:
    return zlib.crc32(page, zlib.crc32(key)).to_bytes(4, "little")
