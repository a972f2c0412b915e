"""The radix tree. One thread (the scheduler's) uses it.

    match ─► Path (locked)  ─► extend ─► extend ... ─► release (unlocked, stays as cache)
                 └► fork ─► a second path on the same nodes

Invariant, after every operation: every slot is on the free list or belongs to exactly one node; a node's `locks` are the
paths that pass through it; a node without locks holds only computed slots. `check()` verifies it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sapwood.errors import OutOfSlots
from sapwood.radix.eviction import POLICIES, EvictionQueue
from sapwood.radix.node import Ids, Node, grown
from sapwood.radix.pool import SlotPool, Slots


@dataclass(slots=True)
class TreeStats:
    """Counts since the tree was made, in tokens unless said otherwise."""

    requested: int = 0  # asked of match
    matched: int = 0  # of these, found with their keys and values computed
    extended: int = 0  # slots taken
    evicted: int = 0
    num_nodes: int = 0
    num_paths: int = 0
    depth: int = 0  # nodes of the longest walk from a root

    @property
    def hit_rate(self) -> float:
        return self.matched / self.requested if self.requested else 0.0


@dataclass(slots=True)
class _Pin:
    path: Path
    count: int = 1


class Path:
    """A locked walk from the root to a tip. Owns its lock; releasing it keeps the KV as cache."""

    __slots__ = ("_ids", "_len", "_slots", "_tip", "_tree", "computed_until", "namespace")

    def __init__(self, tree: RadixTree, namespace: str, tip: Node, ids: Ids, slots: Slots) -> None:
        self._tree = tree
        self._tip = tip
        self._ids = ids
        self._slots = slots
        self._len = len(ids)
        self.namespace = namespace
        self.computed_until = 0  # a position up to which everything is known to be computed

    def __len__(self) -> int:
        return self._len

    @property
    def ids(self) -> Ids:
        """Its token ids, int32 [len]; a view, valid until the path changes."""
        return self._ids[: self._len]

    @property
    def slots(self) -> Slots:
        """The slot of each position, int32 [len]; a contiguous view, valid until the path changes."""
        return self._slots[: self._len]

    @property
    def num_computed(self) -> int:
        """Leading positions whose keys and values are in memory."""
        rest = self._tree.computed[self._slots[self.computed_until : self._len]]
        if rest.all():
            self.computed_until = self._len
        else:
            self.computed_until += int(rest.argmin())
        return self.computed_until

    def extend(self, ids: Sequence[int] | Ids) -> Slots:
        """Append `ids`, sharing what the tree holds already (also what is not computed yet), taking slots for the rest.

        Slots come from the free list and, when that is empty, from unlocked leaves. Returns the slots of the new
        positions, int32 [len(ids)]. Raises OutOfSlots (nothing changed) when even eviction can't free enough.
        """
        return self._tree._extend(self, np.asarray(ids, np.int32))

    def fork(self) -> Path:
        """A second path on the same nodes; nothing is copied but the walk."""
        tree = self._tree
        tree._lock(self._tip, 1)
        tree.stats_.num_paths += 1
        twin = Path(tree, self.namespace, self._tip, self.ids.copy(), self.slots.copy())
        twin.computed_until = self.computed_until
        return twin

    def truncate(self, length: int, *, discard: bool = False) -> None:
        """Go back to the first `length` positions. What is left behind stays as cache, or with `discard` is freed where
        nobody else holds it (rejected drafts)."""
        self._tree._truncate(self, length, discard)

    def release(self) -> None:
        """Unlock. Computed KV stays as cache; slots that were never computed are free again, unless others wait for them."""
        tree, tip = self._tree, self._tip
        tree._lock(tip, -1)
        tree._trim(tip)
        tree.stats_.num_paths -= 1
        self._len = 0
        self._tip = tree._root(self.namespace)

    def _append(self, ids: Ids, slots: Slots) -> None:
        need = self._len + len(ids)
        if need > len(self._ids):
            self._ids = grown(self._ids, self._len, need)
            self._slots = grown(self._slots, self._len, need)
        self._ids[self._len : need] = ids
        self._slots[self._len : need] = slots
        self._len = need


class RadixTree:
    """Owns `num_slots` KV slots. `eviction`: "lru", "lfu" or "priority"."""

    def __init__(self, num_slots: int, *, eviction: str = "lru") -> None:
        self.pool = SlotPool(num_slots)
        self.computed: NDArray[np.bool_] = np.zeros(num_slots, bool)  # by slot: keys and values are in memory
        self.stats_ = TreeStats()
        self._roots: dict[str, Node] = {}
        self._queue = EvictionQueue(POLICIES[eviction])
        self._num_locked = 0  # slots of locked nodes
        self._clock = 0
        self._pins: dict[tuple[str, bytes], _Pin] = {}

    @property
    def num_slots(self) -> int:
        return self.pool.num_slots

    @property
    def num_free(self) -> int:
        return self.pool.num_free

    @property
    def num_evictable(self) -> int:
        """Slots that eviction could free now."""
        return self.num_slots - self.num_free - self._num_locked

    def match(self, ids: Sequence[int] | Ids, namespace: str = "") -> Path:
        """The longest prefix of `ids` that the tree holds, computed or not, as a locked path. Namespaces share nothing."""
        wanted = np.asarray(ids, np.int32)
        tip = root = self._root(namespace)
        self._clock += 1
        done = 0
        while done < len(wanted):
            child, shared = self._step(tip, wanted[done:])
            if child is None:
                break
            child.hits += 1
            tip, done = child, done + shared
        slots = np.empty(done, np.int32)
        self._lock(tip, 1)
        node = tip
        while node is not root:
            node.last_use = self._clock
            slots[node.start : node.end] = node.slots
            assert node.parent is not None
            node = node.parent
        self.stats_.num_paths += 1
        path = Path(self, namespace, tip, wanted[:done].copy(), slots)
        self.stats_.requested += len(wanted)
        self.stats_.matched += path.num_computed
        return path

    def peek(self, ids: Sequence[int] | Ids, namespace: str = "") -> int:
        """How many leading tokens of `ids` a match would find; nothing is locked, split or counted."""
        return sum(shared for _, shared in self._walk(ids, namespace))

    def weight(self, ids: Sequence[int] | Ids, namespace: str = "") -> float:
        """How busy the branch of `ids` is: the paths that hold the nodes of its cached prefix, per token of it."""
        held = [(node.locks, shared) for node, shared in self._walk(ids, namespace)]
        return sum(locks * shared for locks, shared in held) / max(1, len(ids))

    def mark_computed(self, slots: Slots) -> None:
        """The keys and values of these slots are in memory now."""
        self.computed[slots] = True

    def pin(self, ids: Sequence[int] | Ids, namespace: str = "") -> int:
        """Keep the cached prefix of `ids` until unpin; returns its length. Pins of the same prefix are counted."""
        key = (namespace, np.asarray(ids, np.int32).tobytes())
        if key in self._pins:
            self._pins[key].count += 1
            return len(self._pins[key].path)
        path = self.match(ids, namespace)
        path.truncate(path.num_computed)
        self._pins[key] = _Pin(path)
        return len(path)

    def unpin(self, ids: Sequence[int] | Ids, namespace: str = "") -> bool:
        """Take one pin back; False when there was none."""
        key = (namespace, np.asarray(ids, np.int32).tobytes())
        pin = self._pins.get(key)
        if pin is None:
            return False
        pin.count -= 1
        if not pin.count:
            self._pins.pop(key).path.release()
        return True

    def flush(self) -> int:
        """Evict everything that no path holds; returns the number of tokens."""
        before = self.num_free
        self._evict(self.num_slots)
        return self.num_free - before

    def stats(self) -> TreeStats:
        nodes = list(self.nodes())
        self.stats_.num_nodes = len(nodes)
        self.stats_.depth = max((self._depth(node) for node in nodes if not node.children), default=0)
        return self.stats_

    def roots(self) -> dict[str, Node]:
        """The root of each namespace."""
        return dict(self._roots)

    def nodes(self) -> Iterator[Node]:
        """All nodes but the roots, parents first."""
        stack = list(self._roots.values())
        while stack:
            node = stack.pop()
            if node.parent is not None:
                yield node
            stack.extend(node.children.values())

    def check(self) -> None:
        """AssertionError where the invariant is broken."""
        nodes = list(self.nodes())
        owned = [node.slots for node in nodes] + [self.pool.free_slots()]
        everything = np.sort(np.concatenate(owned))
        assert np.array_equal(everything, np.arange(self.num_slots)), "a slot is lost or owned twice"
        assert not self.computed[self.pool.free_slots()].any(), "a free slot is marked computed"
        assert self._num_locked == sum(node.size for node in nodes if node.locks), "locked slots are miscounted"
        ends: dict[int, int] = {}
        for node in nodes:
            parent = node.parent
            assert parent is not None and parent.children[int(node.ids[0])] is node and node.start == parent.end
            assert node.size > 0 and node.locks >= sum(child.locks for child in node.children.values())
            marks = self.computed[node.slots]
            assert not (np.diff(marks.astype(np.int8)) > 0).any(), "computed marks have a hole"
            assert node.locks or marks.all(), "an unlocked node holds slots that were never computed"
            ends[id(node)] = node.locks - sum(child.locks for child in node.children.values())
        at_roots = sum(r.locks - sum(c.locks for c in r.children.values()) for r in self._roots.values())
        assert sum(ends.values()) + at_roots == self.stats_.num_paths, "locks differ from the live paths"

    def _root(self, namespace: str) -> Node:
        root = self._roots.get(namespace)
        if root is None:
            empty = np.empty(0, np.int32)
            self._roots[namespace] = root = Node(None, 0, empty, empty)
        return root

    def _walk(self, ids: Sequence[int] | Ids, namespace: str) -> Iterator[tuple[Node, int]]:
        """The nodes along `ids`, and how many tokens of each match."""
        wanted = np.asarray(ids, np.int32)
        node: Node | None = self._roots.get(namespace)
        done = 0
        while node is not None and done < len(wanted):
            node = node.children.get(int(wanted[done]))
            if node is None:
                return
            shared = node.common(wanted[done:])
            yield node, shared
            if shared < node.size:
                return
            done += shared

    def _step(self, tip: Node, ids: Ids) -> tuple[Node | None, int]:
        """The child of `tip` on the way along `ids`, cut so that all of it matches, and its length."""
        child = tip.children.get(int(ids[0]))
        if child is None:
            return None, 0
        shared = child.common(ids)
        if shared < child.size:
            upper = child.split(shared)
            if not upper.locks and not child.children:
                self._queue.push(child)
            return upper, shared
        return child, shared

    def _extend(self, path: Path, ids: Ids) -> Slots:
        begin, tip, done = len(path), path._tip, 0
        walked: list[Node] = []
        while done < len(ids) and tip.children:
            child, shared = self._step(tip, ids[done:])
            if child is None:
                break
            walked.append(child)
            tip, done = child, done + shared
        for node in walked:
            self._lock_one(node, 1)
        missing = len(ids) - done
        if missing > self.num_free and missing > self._evict(missing):
            for node in reversed(walked):
                self._lock_one(node, -1)
            raise OutOfSlots(
                f"{missing} more KV slots are needed; {self.num_free} are free and none of the others can be evicted now"
            )
        for node in walked:
            node.last_use = self._clock
            path._append(node.ids, node.slots)
        if missing:
            slots = self.pool.take(missing)
            if tip.parent is not None and tip.locks == 1 and not tip.children:
                tip.append(ids[done:], slots)
            else:
                child = Node(tip, tip.end, ids[done:].copy(), slots.copy())
                child.locks, child.last_use = 1, self._clock
                tip.children[int(ids[done])] = child
                tip = child
            self._num_locked += missing
            self.stats_.extended += missing
            path._append(ids[done:], slots)
        path._tip = tip
        return path.slots[begin:]

    def _truncate(self, path: Path, length: int, discard: bool) -> None:
        assert 0 <= length <= len(path)
        while path._tip.start >= length and (parent := path._tip.parent) is not None:
            tip = path._tip
            path._tip = parent
            self._lock_one(tip, -1)
            self._leave(tip, discard)
        if path._tip.end > length:
            tip = path._tip
            if discard and tip.locks == 1 and not tip.children:
                gone = tip.cut(length - tip.start)
                self._num_locked -= len(gone)
                self._free(gone)
            else:
                path._tip = tip.split(length - tip.start)
                self._lock_one(tip, -1)
                self._leave(tip, discard)
        path._len = length
        path.computed_until = min(path.computed_until, length)

    def _leave(self, node: Node, discard: bool) -> None:
        """A path went away from the end of `node`."""
        if node.locks:
            return
        if discard and not node.children:
            self._remove(node)
        else:
            self._trim(node)

    def _lock(self, tip: Node, delta: int) -> None:
        node: Node | None = tip
        while node is not None:
            self._lock_one(node, delta)
            node = node.parent

    def _lock_one(self, node: Node, delta: int) -> None:
        before = node.locks
        node.locks = before + delta
        if before == 0:
            self._num_locked += node.size
        elif node.locks == 0:
            self._num_locked -= node.size
            node.last_use = self._clock
            if not node.children and node.parent is not None:
                self._queue.push(node)

    def _trim(self, node: Node) -> None:
        """Free what was never computed at the end of an unlocked branch."""
        while node.parent is not None and not node.locks and not node.children:
            computed = int(np.count_nonzero(self.computed[node.slots]))
            if computed == node.size:
                return
            if computed:
                self._free(node.cut(computed))
                self._queue.push(node)
                return
            parent = node.parent
            self._remove(node)
            node = parent

    def _remove(self, node: Node) -> None:
        """Take an unlocked leaf out of the tree."""
        assert node.parent is not None and not node.locks and not node.children
        parent = node.parent
        del parent.children[int(node.ids[0])]
        self._free(node.slots)
        node.parent = None
        if parent.parent is not None and not parent.locks and not parent.children:
            self._queue.push(parent)

    def _free(self, slots: Slots) -> None:
        self.computed[slots] = False
        self.pool.give(slots)

    def _evict(self, wanted: int) -> int:
        """Evict unlocked leaves, ends first, until `wanted` slots are free; returns how many are. All or nothing."""
        if self.num_free + self.num_evictable < wanted and wanted < self.num_slots:
            return self.num_free
        before = self.num_free
        while self.num_free < wanted and (node := self._queue.pop()) is not None:
            need = wanted - self.num_free
            if need < node.size:
                self._free(node.cut(node.size - need))
                self._queue.push(node)
            else:
                self._remove(node)
        self.stats_.evicted += self.num_free - before
        self._queue.compact(len(self._roots) + self.num_slots // 16)
        return self.num_free

    def _depth(self, node: Node) -> int:
        depth = 0
        at: Node = node
        while at.parent is not None:
            depth, at = depth + 1, at.parent
        return depth
