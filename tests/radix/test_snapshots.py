"""Snapshots bring back what was saved, and a wrong file does no harm."""

from __future__ import annotations

import json
import random
import struct
import zlib
from pathlib import Path as FilePath

import pytest
from fake_memory import FakeKV, cache, verify

from sapwood.errors import InvalidRequest
from sapwood.radix import snapshot
from sapwood.radix.snapshot_file import MAGIC
from sapwood.radix.tree import RadixTree


def house(num_slots: int = 300) -> tuple[RadixTree, FakeKV]:
    return RadixTree(num_slots), FakeKV(num_slots)


def saved(tmp_path: FilePath, seed: int = 0) -> tuple[FilePath, list[list[int]]]:
    """A file with branches that share prefixes, and their ids."""
    rng = random.Random(seed)
    tree, kv = house(1000)
    branches = [[rng.randrange(2) for _ in range(rng.randrange(1, 40))] for _ in range(20)]
    for ids in branches:
        cache(tree, kv, ids, "mine")
    cache(tree, kv, [9, 9, 9], "other")
    num_saved = snapshot.save(tree, kv, tmp_path / "file", fingerprint="m", namespace="mine")
    assert num_saved == tree.stats().spaces["mine"].held
    return tmp_path / "file", branches


@pytest.mark.parametrize("seed", range(5))
def test_every_branch_comes_back(tmp_path: FilePath, seed: int) -> None:
    file, branches = saved(tmp_path, seed)
    tree, kv = house(1000)
    loaded = snapshot.load(tree, kv, file, fingerprint="m")
    tree.check()
    assert loaded == tree.num_slots - tree.num_free and list(tree.spaces) == ["mine"]
    for ids in branches:
        path = tree.match(ids, "mine")
        assert path.num_computed == len(ids)
        verify(kv, path)
        path.release()
    assert snapshot.load(tree, kv, file, fingerprint="m") == 0


def test_what_is_loaded_never_evicts_what_was_loaded_before(tmp_path: FilePath) -> None:
    file, _ = saved(tmp_path)
    tree, kv = house(50)
    cache(tree, kv, [7] * 50)
    assert snapshot.load(tree, kv, file, fingerprint="m") == 50
    tree.check()
    assert tree.stats().spaces["mine"].held == 50


def test_loading_leaves_what_quotas_guard_and_paths_hold(tmp_path: FilePath) -> None:
    file, _ = saved(tmp_path)
    tree, kv = house(50)
    tree.set_quota("guarded", 20)
    cache(tree, kv, [1] * 20, "guarded")
    path = tree.match([2])
    path.extend([2] * 10)
    assert snapshot.load(tree, kv, file, fingerprint="m") == 20
    assert tree.peek([1] * 20, "guarded") == 20 and len(path) == 10
    tree.check()


def test_another_model_is_refused(tmp_path: FilePath) -> None:
    file, _ = saved(tmp_path)
    tree, kv = house()
    with pytest.raises(InvalidRequest, match="another model"):
        snapshot.load(tree, kv, file, fingerprint="n")
    assert tree.num_free == tree.num_slots


def test_a_changed_byte_anywhere_is_noticed(tmp_path: FilePath) -> None:
    file, _ = saved(tmp_path)
    content = file.read_bytes()
    tree, kv = house()
    for position in [0, 5, 12, 20, len(content) // 2, len(content) - 1]:
        file.write_bytes(content[:position] + bytes([content[position] ^ 4]) + content[position + 1 :])
        with pytest.raises(InvalidRequest, match="damaged"):
            snapshot.load(tree, kv, file, fingerprint="m")
    for length in (0, 3, 15, len(content) - 8):
        file.write_bytes(content[:length])
        with pytest.raises(InvalidRequest, match="damaged"):
            snapshot.load(tree, kv, file, fingerprint="m")
    assert tree.num_free == tree.num_slots


@pytest.mark.parametrize(
    "change", [{"nodes": [[3, 5]]}, {"nodes": [[-1, -5]]}, {"nodes": "x"}, {"bytes_per_slot": 3}, {"version": 2}]
)
def test_a_header_that_makes_no_sense_is_refused_even_with_a_good_checksum(
    tmp_path: FilePath, change: dict[str, object]
) -> None:
    file, _ = saved(tmp_path)
    content = file.read_bytes()[:-4]
    at = len(MAGIC) + 4
    size = struct.unpack("<I", content[at - 4 : at])[0]
    header = json.dumps(json.loads(content[at : at + size]) | change).encode()
    forged = content[: at - 4] + struct.pack("<I", len(header)) + header + content[at + size :]
    file.write_bytes(forged + struct.pack("<I", zlib.crc32(forged)))
    tree, kv = house()
    with pytest.raises(InvalidRequest):
        snapshot.load(tree, kv, file, fingerprint="m")
    assert tree.num_free == tree.num_slots


def test_nothing_half_written_stays_when_the_disk_is_full(tmp_path: FilePath, monkeypatch: pytest.MonkeyPatch) -> None:
    file, _ = saved(tmp_path)
    before = file.read_bytes()
    tree, kv = house()
    cache(tree, kv, [1, 2, 3])

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("sapwood.radix.snapshot_file.os.replace", full)
    with pytest.raises(InvalidRequest, match="No space left"):
        snapshot.save(tree, kv, file, fingerprint="m")
    assert [found.name for found in tmp_path.iterdir()] == ["file"] and file.read_bytes() == before
