"""What the tree evicts comes back from host memory and disk, and a bad file is a miss, never a wrong answer."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path as FilePath

import pytest
from fake_memory import FakeKV, cache, compute, verify

from sapwood.radix.disk import DiskTier
from sapwood.radix.pages import PAGE
from sapwood.radix.path import Path
from sapwood.radix.tiers import Tiers
from sapwood.radix.tree import RadixTree

WIDTH = 8
PAGE_BYTES = PAGE * WIDTH
LONG = list(range(100, 100 + 4 * PAGE + 5))


class House:
    """A tree with tiers below."""

    def __init__(self, num_slots: int = 128, host_pages: int = 1000, folder: FilePath | None = None) -> None:
        self.tree = RadixTree(num_slots)
        self.kv = FakeKV(num_slots, WIDTH)
        self.disk = None if folder is None else DiskTier(folder, 1 << 20)
        self.tiers = Tiers(self.tree, self.kv, fingerprint="model", host_bytes=host_pages * PAGE_BYTES, disk=self.disk)

    def begin(self, ids: list[int], namespace: str = "") -> Path:
        """What a scheduler does: prefetch, wait, match, extend, restore."""
        prefetch = self.tiers.prefetch(ids, namespace)
        while prefetch is not None and not prefetch.is_done:
            time.sleep(0.001)
            self.tiers.poll()
        path = self.tree.match(ids, namespace)
        path.extend(ids[len(path) :])
        self.tiers.restore(path)
        verify(self.kv, path)
        self.tree.check()
        return path

    def settle(self) -> None:
        """Wait until the disk has done what it was asked for."""
        assert self.disk is not None
        while self.disk._jobs.qsize():
            time.sleep(0.001)
        time.sleep(0.01)


@pytest.fixture
def folder(tmp_path: FilePath) -> FilePath:
    return tmp_path / "pages"


@pytest.fixture
def stored(folder: FilePath) -> Iterator[FilePath]:
    """A folder with the pages of LONG."""
    house = House(host_pages=0, folder=folder)
    cache(house.tree, house.kv, LONG)
    house.tree.flush(demote=True)
    house.settle()
    house.tiers.close()
    yield folder


def test_whole_pages_come_back_from_host_memory() -> None:
    house = House()
    cache(house.tree, house.kv, LONG)
    house.tree.flush(demote=True)
    house.kv.records[:] = 0
    path = house.begin([*LONG, 1, 2])
    assert path.num_computed == 4 * PAGE
    assert house.tiers.stats().restored == 4 * PAGE


def test_what_is_flushed_is_forgotten() -> None:
    house = House()
    cache(house.tree, house.kv, LONG)
    house.tree.flush()
    assert house.tiers.stats().host == 0 and house.begin(LONG).num_computed == 0


def test_only_what_is_not_on_the_device_is_brought_back() -> None:
    house = House()
    cache(house.tree, house.kv, LONG)
    house.tree.flush(demote=True)
    cache(house.tree, house.kv, LONG[: PAGE + 3])
    assert house.begin(LONG).num_computed == 4 * PAGE
    assert house.tiers.stats().restored == 3 * PAGE - 3


def test_eviction_by_single_tokens_stores_each_page_once() -> None:
    house = House(num_slots=len(LONG) + 1)
    cache(house.tree, house.kv, LONG)
    path = house.tree.match([7])
    for _ in range(len(LONG)):
        path.extend([7])
        compute(house.tree, house.kv, path)
    assert house.tiers.stats().demoted == 4 * PAGE
    path.release()
    assert house.begin(LONG).num_computed == 4 * PAGE


def test_namespaces_and_models_share_no_pages(stored: FilePath) -> None:
    house = House(folder=stored)
    assert house.tiers.prefetch(LONG, "other") is None
    assert Tiers(house.tree, house.kv, fingerprint="x", host_bytes=0, disk=house.disk).prefetch(LONG) is None
    assert house.begin(LONG, "other").num_computed == 0
    house.tiers.close()


def test_pages_on_disk_survive_a_restart(stored: FilePath) -> None:
    house = House(folder=stored)
    assert house.begin(LONG).num_computed == 4 * PAGE
    house.tiers.close()


def test_what_the_host_memory_cannot_hold_comes_from_disk(folder: FilePath) -> None:
    house = House(host_pages=4, folder=folder)
    cache(house.tree, house.kv, LONG)
    house.tree.flush(demote=True)
    other = list(range(1000, 1000 + 4 * PAGE))
    cache(house.tree, house.kv, other)
    house.tree.flush(demote=True)
    assert house.tiers.stats().disk_pages == 8 and house.tiers.stats().host == 4 * PAGE
    # At most half of the host memory is filled from disk for one request.
    assert house.begin(LONG).num_computed == 2 * PAGE
    house.tiers.close()


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "remove", "swap"])
def test_a_bad_file_is_a_miss(stored: FilePath, damage: str) -> None:
    house = House(folder=stored)
    files = sorted(stored.iterdir())
    contents = [file.read_bytes() for file in files]
    for index, (file, content) in enumerate(zip(files, contents, strict=True)):
        if damage == "flip":
            file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        elif damage == "swap":
            file.write_bytes(contents[index - 1])
        elif damage == "remove":
            file.unlink()
        else:
            file.write_bytes(content[: len(content) // 2 if damage == "cut" else 0])
    path = house.begin(LONG)
    assert path.num_computed == 0
    path.release()
    assert house.tiers.stats().disk_pages == 0
    house.settle()
    assert not list(stored.iterdir())
    house.tiers.close()


def test_the_disk_is_bounded(folder: FilePath) -> None:
    disk = DiskTier(folder, 10 * (PAGE_BYTES + 12))
    house = House(folder=None, host_pages=0)
    house.tiers = Tiers(house.tree, house.kv, fingerprint="model", host_bytes=0, disk=disk)
    house.disk = disk
    for start in range(0, 50 * 64, 64):
        cache(house.tree, house.kv, list(range(start, start + 64)))
        house.settle()
    house.tree.flush(demote=True)
    house.settle()
    assert len(list(folder.iterdir())) == 10 == len(disk)
    house.tiers.clear()
    house.tiers.close()
    assert not list(folder.iterdir())


def test_a_full_disk_is_a_miss(folder: FilePath, monkeypatch: pytest.MonkeyPatch) -> None:
    house = House(host_pages=0, folder=folder)

    def full(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("sapwood.radix.disk.os.replace", full)
    cache(house.tree, house.kv, LONG)
    house.tree.flush(demote=True)
    house.settle()
    house.tiers.poll()
    assert house.tiers.stats().disk_pages == 0 and not list(folder.iterdir())
    house.tiers.close()


def test_pages_are_for_the_user_alone(stored: FilePath) -> None:
    assert stored.stat().st_mode & 0o077 == 0
    assert all(file.stat().st_mode & 0o077 == 0 for file in stored.iterdir())


def test_a_long_random_history_over_a_small_device(folder: FilePath) -> None:
    rng = random.Random(5)
    house = House(num_slots=200, host_pages=20, folder=folder)
    stems = [[rng.randrange(50) for _ in range(64)] for _ in range(6)]
    for _ in range(300):
        stem = rng.choice(stems)
        ids = stem[: rng.randrange(1, 64)] + [rng.randrange(3) for _ in range(rng.randrange(40))]
        path = house.begin(ids, rng.choice(["", "tenant"]))
        compute(house.tree, house.kv, path)
        verify(house.kv, path)
        path.release()
    stats = house.tiers.stats()
    assert stats.restored > 500 and stats.host <= 20 * PAGE and stats.num_damaged == 0
    house.tiers.close()
