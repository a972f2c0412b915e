"""What the tree costs: matching, extending, releasing, decoding, choosing, evicting, in a tree of a million tokens; tiers and snapshots.

    python benchmarks/radix.py [--json FILE] [--plot FILE.png]

Only the last figures, of the tree's share in a server's work and of snapshots beside it, load a model: the tree knows none. Times are medians with the
10th and 90th percentile.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path as FilePath

import numpy as np
import radix_share
import radix_snapshots
from numpy.typing import NDArray

from sapwood.radix import snapshot
from sapwood.radix.tiers import Tiers
from sapwood.radix.tree import RadixTree
from sapwood.runtime.messages import Generate, Sampling
from sapwood.runtime.scheduler.policies import policy_maker
from sapwood.runtime.scheduler.queue import WaitingQueue
from sapwood.runtime.scheduler.request import RequestState

NUM_TOKENS, NUM_NODES, REQUEST = 1_000_000, 20_000, 4096
VOCABULARY = 50_000

Ids = NDArray[np.int32]


@dataclass
class Figure:
    """One measured thing."""

    name: str
    unit: str
    median: float
    low: float  # 10th percentile
    high: float  # 90th
    goal: float | None = None

    def __str__(self) -> str:
        goal = "" if self.goal is None else f"   goal: below {self.goal:g}"
        return f"{self.name:<62} {self.median:9.2f} {self.unit:<3} ({self.low:.2f} .. {self.high:.2f}){goal}"


class Timer:
    """Collects times of one thing."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    @contextmanager
    def measure(self, parts: int = 1) -> Iterator[None]:
        """Time the block; it did `parts` equal things."""
        begin = time.perf_counter()
        yield
        self.seconds.append((time.perf_counter() - begin) / parts)

    def figure(self, name: str, unit: str, goal: float | None = None) -> Figure:
        scale = {"us": 1e6, "ms": 1e3, "s": 1.0}[unit]
        return summary(name, unit, [seconds * scale for seconds in self.seconds], goal)


def summary(name: str, unit: str, values: list[float], goal: float | None = None) -> Figure:
    """The median and the 10th and 90th percentile of what was measured."""
    ordered, last = sorted(values), len(values) - 1
    return Figure(name, unit, statistics.median(values), ordered[last // 10], ordered[last - last // 10], goal)


class Memory:
    """A KV memory without a model, `width` bytes a slot."""

    layout = "benchmark"

    def __init__(self, num_slots: int, width: int) -> None:
        self.num_slots, self.bytes_per_slot = num_slots, width
        self._records = np.ones((num_slots, width), np.uint8)  # touched, as a used one is

    def read(self, slots: Ids) -> NDArray[np.uint8]:
        return self._records[slots]

    def write(self, slots: Ids, records: NDArray[np.uint8]) -> None:
        self._records[slots] = records


def random_ids(rng: np.random.Generator, count: int) -> Ids:
    return rng.integers(0, VOCABULARY, count, dtype=np.int32)


def cache(tree: RadixTree, ids: Ids, namespace: str = "") -> None:
    """Leave `ids` in the tree, computed."""
    path = tree.match(ids, namespace)
    path.extend(ids[len(path) :])
    tree.mark_computed(path.slots)
    path.release()


def grown_tree(depth: int) -> tuple[RadixTree, list[Ids]]:
    """NUM_TOKENS in NUM_NODES nodes, `depth` of them from a root to a leaf of REQUEST tokens or fewer; and what its leaves say.

    Stems are cut into nodes by short branches, as conversations and forks do it.
    """
    rng, tree = np.random.default_rng(depth), RadixTree(NUM_TOKENS + 400_000)
    leaves: list[Ids] = []
    size = REQUEST // depth  # tokens between two branches of a stem
    while tree.num_slots - tree.num_free < NUM_TOKENS and tree.num_nodes < NUM_NODES - 2 * depth:
        stem = random_ids(rng, size * depth)
        cache(tree, stem)
        leaves.append(stem)
        stems = max(1, NUM_TOKENS // REQUEST // 2)
        per_cut = max(1, (NUM_NODES // stems - depth) // depth)
        twig = max(1, (NUM_TOKENS - stems * REQUEST) // (stems * depth * per_cut))
        for cut in range(size, size * depth, size):
            for _ in range(per_cut):
                cache(tree, np.concatenate([stem[:cut], random_ids(rng, twig)]))
    return tree, leaves


def requests(depth: int) -> list[Figure]:
    """A request of REQUEST tokens whose first three quarters are cached."""
    tree, leaves = grown_tree(depth)
    counted = tree.stats()
    rng, whole, match = np.random.default_rng(1), Timer(), Timer()
    for turn in range(300):
        stem = leaves[turn % len(leaves)]
        ids = np.concatenate([stem[: REQUEST * 3 // 4], random_ids(rng, REQUEST // 4)])
        with whole.measure():
            with match.measure():
                path = tree.match(ids)
            path.extend(ids[len(path) :])
            tree.mark_computed(path.slots)
            path.release()
    where = f"{tree.num_slots - tree.num_free:,} tokens, {counted.num_nodes:,} nodes, {depth} deep"
    return [
        whole.figure(f"match + extend + release of 4,096; {where}", "us", 100),
        match.figure(f"  of it match, through {depth * 3 // 4} nodes", "us"),
    ]


def decoding() -> list[Figure]:
    """Tokens of 32 requests that decode side by side."""
    tree, extend, step = RadixTree(200_000), Timer(), Timer()
    paths = [tree.match([]) for _ in range(32)]
    for index, path in enumerate(paths):
        path.extend([index] * 500)
        tree.mark_computed(path.slots)
    for token in range(1000):
        with step.measure(32):
            with extend.measure(32):
                for path in paths:
                    path.push(token)
            tree.mark_computed(np.array([path.slots[-1] for path in paths], np.int32))
            for path in paths:
                assert path.num_computed
    return [
        extend.figure("extend by a decoded token, a request", "us", 1),
        step.figure("  and marking it computed, and asking what is missing", "us"),
    ]


def decoding_when_full() -> list[Figure]:
    """The same where every slot is taken, as on a server that has run for a while, by a thousand tenants' cache."""
    rng, tree, extend = np.random.default_rng(4), RadixTree(100_000), Timer()
    for tenant in range(2000):
        cache(tree, random_ids(rng, 50), f"tenant {tenant % 1000}")
    paths = [tree.match([]) for _ in range(32)]
    for token in range(1000):
        with extend.measure(32):
            for index, path in enumerate(paths):
                path.push(index if token == 0 else token)
    return [extend.figure("extend by a decoded token, all slots taken", "us", 1)]


def choosing() -> list[Figure]:
    """Whom longest-prefix-match admits next, of 10,000 that wait, each step one more arriving and its prompt coming into the tree."""
    rng, tree, timer = np.random.default_rng(5), RadixTree(1_000_000), Timer()
    queue = WaitingQueue(policy_maker("lpm", tree.peek))
    beginnings = [random_ids(rng, 500) for _ in range(100)]

    def arrive(order: int) -> None:
        ids = [*beginnings[order % 100].tolist(), *random_ids(rng, 100).tolist()]
        message = Generate(str(order), ids, Sampling())
        queue.add(RequestState(b"", message, order, 0.0, 0, ids, len(ids), len(ids) + 8, len(ids) - 1))

    for order in range(10_000):
        arrive(order)
    for turn in range(500):
        with timer.measure():
            chosen = queue.choose()
            assert chosen is not None
            queue.admit(chosen)
        cache(tree, chosen.array)
        arrive(10_000 + turn)
    return [timer.figure("choose and admit one of 10,000 waiting, longest prefix first", "ms", 2)]


def eviction() -> list[Figure]:
    """10,000 tokens out of a full tree of NUM_NODES nodes."""
    timer, rng = Timer(), np.random.default_rng(2)
    tree = RadixTree(NUM_TOKENS)
    size = NUM_TOKENS // NUM_NODES
    for _ in range(NUM_NODES):
        cache(tree, random_ids(rng, size))
    for _ in range(30):
        ids = random_ids(rng, 10_000)
        path = tree.match(ids)
        with timer.measure():
            path.extend(ids)
        tree.mark_computed(path.slots)
        path.release()
    return [timer.figure(f"evict 10,000 tokens of {size}-token leaves, and take them", "ms", 5)]


def storage(width: int) -> list[Figure]:
    """10,000 tokens of a small model (`width` bytes each) out to host memory and back, and through a snapshot."""
    figures, rng = {name: Timer() for name in ("demote", "restore", "save", "load")}, np.random.default_rng(3)
    with tempfile.TemporaryDirectory() as folder:
        file = FilePath(folder) / "snapshot"
        for _ in range(3):
            tree, memory = RadixTree(10_000), Memory(10_000, width)
            tiers = Tiers(tree, memory, fingerprint="benchmark", host_bytes=20_000 * width)
            parts = [random_ids(rng, 1000) for _ in range(10)]
            for ids in parts:
                cache(tree, ids)
            with figures["save"].measure():
                snapshot.save(tree, memory, file, fingerprint="benchmark")
            with figures["demote"].measure():
                tree.flush(demote=True)
            paths = [tree.match(ids) for ids in parts]
            for path, ids in zip(paths, parts, strict=True):
                path.extend(ids)
            with figures["restore"].measure():
                for path in paths:
                    tiers.restore(path)
            fresh = RadixTree(10_000)
            with figures["load"].measure():
                snapshot.load(fresh, memory, file, fingerprint="benchmark")
    what = f"10,000 tokens of {width / 1024:.1f} KiB"
    return [
        figures["demote"].figure(f"{what} to host memory", "ms"),
        figures["restore"].figure(f"{what} from host memory", "ms"),
        figures["save"].figure(f"{what} to a snapshot", "s"),
        figures["load"].figure(f"{what} from a snapshot", "s", 1),
    ]


def share(model: str) -> list[Figure]:
    """The tree's part of the CPU time of few-shot requests."""
    runs = radix_share.measure(model, 5)
    return [
        summary(
            "tree calls, few-shot, of the backend's CPU time", "%", [100 * run.tree / run.process for run in runs], 0.3
        ),
        summary("  of its scheduler's thread", "%", [100 * run.tree / run.thread for run in runs]),
    ]


def snapshots(model: str) -> list[Figure]:
    """What a request notices of a save and a load, and how long a fresh process takes to be warm."""
    milliseconds = {name: [1e3 * value for value in values] for name, values in radix_snapshots.steps(model).items()}
    return [
        *(summary(f"from token to token, {name}", "ms", values) for name, values in milliseconds.items()),
        summary("10,000 tokens into a process that has just started", "s", radix_snapshots.restart(model), 1),
    ]


def plot(figures: list[Figure], file: str) -> None:
    """Bars of what has a goal, as shares of it."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    shown = [figure for figure in figures if figure.goal]
    names = [f"{figure.name}\n{figure.median:.2f} {figure.unit}" for figure in shown]
    shares = [figure.median / (figure.goal or 1) for figure in shown]
    spread = [[(f.median - f.low) / (f.goal or 1) for f in shown], [(f.high - f.median) / (f.goal or 1) for f in shown]]
    picture, axes = pyplot.subplots(figsize=(10, 1 + 0.7 * len(shown)))
    axes.barh(names, shares, xerr=spread, color="#5b7f4f", ecolor="#999999")
    axes.axvline(1, color="#b5533c", linestyle="--")
    axes.invert_yaxis()
    axes.set_xlabel("share of the goal (10th to 90th percentile)")
    picture.tight_layout()
    picture.savefig(file, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", help="write the figures to this file")
    parser.add_argument("--plot", help="draw them into this file (needs matplotlib)")
    parser.add_argument(
        "--bytes", type=int, default=23_040, help="bytes of keys and values a token (SmolLM2-135M: 23,040)"
    )
    parser.add_argument("--model", default="smollm2-135m", help="whose share is measured (smollm2-135m)")
    args = parser.parse_args()
    parts: list[Callable[[], list[Figure]]] = [
        lambda: requests(8),
        lambda: requests(32),
        lambda: requests(64),
        decoding,
        decoding_when_full,
        choosing,
        eviction,
        lambda: storage(args.bytes),
        lambda: share(args.model),
        lambda: snapshots(args.model),
    ]
    figures: list[Figure] = []
    for part in parts:
        for figure in part():
            print(figure, flush=True)
            figures.append(figure)
    if args.json:
        FilePath(args.json).write_text(json.dumps([asdict(figure) for figure in figures], indent=1))
    if args.plot:
        plot(figures, args.plot)


if __name__ == "__main__":
    main()
