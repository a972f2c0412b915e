"""Saves and loads that others interrupt at every step end with what was there when they began."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path as FilePath

import pytest
from fake_memory import FakeKV, cache, compute, verify

from sapwood.errors import InvalidRequest, OutOfSlots
from sapwood.radix import snapshot
from sapwood.radix.snapshot import Background, Job, Loading, Saving
from sapwood.radix.tree import RadixTree

WIDTH = 8  # bytes a slot


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 16 tokens, the least."""
    monkeypatch.setattr("sapwood.radix.snapshot.PIECE", 0)


@pytest.fixture
def background() -> Iterator[Background]:
    background = Background(lambda: None)
    yield background
    background.close()


def branches(rng: random.Random, count: int) -> list[list[int]]:
    return [[rng.randrange(2) for _ in range(rng.randrange(1, 40))] for _ in range(count)]


def disturb(rng: random.Random, tree: RadixTree, kv: FakeKV) -> None:
    """Somebody else comes, and others are evicted for it, or everything is."""
    if rng.random() < 0.1:
        tree.flush()
        return
    path = tree.match([rng.randrange(3) for _ in range(rng.randrange(1, 40))], rng.choice(["mine", "other"]))
    try:
        path.extend([rng.randrange(3) for _ in range(rng.randrange(1, 60))])
        if rng.random() < 0.5:
            compute(tree, kv, path)
        path.truncate(rng.randint(0, len(path)), discard=True)
    except OutOfSlots:
        pass
    path.release()


def run(job: Job, rng: random.Random, tree: RadixTree, kv: FakeKV) -> None:
    while not job.advance():
        disturb(rng, tree, kv)
        tree.check()


@pytest.mark.parametrize("seed", range(8))
def test_a_save_holds_what_was_there_when_it_began(tmp_path: FilePath, background: Background, seed: int) -> None:
    rng = random.Random(seed)
    tree, kv = RadixTree(200), FakeKV(200, WIDTH)
    held = branches(rng, 6)
    for ids in held:
        cache(tree, kv, ids, "mine")
    job = Saving(background, tree, kv, tmp_path / "file", fingerprint="m", namespace="mine")
    run(job, rng, tree, kv)
    fresh, memory = RadixTree(200), FakeKV(200, WIDTH)
    assert snapshot.load(fresh, memory, tmp_path / "file", fingerprint="m") == job.num_tokens
    for ids in held:
        path = fresh.match(ids, "mine")
        assert path.num_computed == len(ids)
        verify(memory, path)
        path.release()


@pytest.mark.parametrize("num_slots", [60, 200])
@pytest.mark.parametrize("seed", range(4))
def test_a_load_among_others_never_leaves_a_wrong_record(
    tmp_path: FilePath, background: Background, seed: int, num_slots: int
) -> None:
    rng = random.Random(seed)
    tree, kv = RadixTree(400), FakeKV(400, WIDTH)
    held = branches(rng, 8)
    for ids in held:
        cache(tree, kv, ids, "mine")
    snapshot.save(tree, kv, tmp_path / "file", fingerprint="m", namespace="mine")
    tree, kv = RadixTree(num_slots), FakeKV(num_slots, WIDTH)
    job = Loading(background, tree, kv, tmp_path / "file", fingerprint="m")
    run(job, rng, tree, kv)
    tree.check()
    assert job.num_tokens > 0 and tree.num_paths == 0
    for ids in held:
        path = tree.match(ids, "mine")
        assert num_slots == 60 or path.num_computed == len(ids)
        verify(kv, path)
        path.release()


def test_a_save_ends_when_it_would_keep_too_much(
    tmp_path: FilePath, background: Background, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sapwood.radix.snapshot.MOST_KEPT", 20 * WIDTH)
    tree, kv = RadixTree(100), FakeKV(100, WIDTH)
    cache(tree, kv, [1] * 100)
    job = Saving(background, tree, kv, tmp_path / "file", fingerprint="m")
    tree.flush()
    with pytest.raises(InvalidRequest, match="too much was evicted"):
        job.advance()
    background.close()
    assert tree.on_free is None and not list(tmp_path.iterdir())


def test_a_file_that_is_cut_while_it_is_read_ends_the_load(tmp_path: FilePath, background: Background) -> None:
    wide = 2**16  # more than is buffered
    tree, kv = RadixTree(200), FakeKV(200, wide)
    cache(tree, kv, [1] * 100)
    file = tmp_path / "file"
    snapshot.save(tree, kv, file, fingerprint="m")
    tree.flush()
    job = Loading(background, tree, kv, file, fingerprint="m")
    while not job.num_tokens:
        job.advance()
    with open(file, "r+b") as stream:
        stream.truncate(60 * wide)
    with pytest.raises(InvalidRequest, match="damaged"):
        while not job.advance():
            pass
    tree.check()
    assert tree.num_paths == 0 and 0 < tree.peek([1] * 100) == job.num_tokens < 100
