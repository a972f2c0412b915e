"""The radix tree. One thread (the scheduler's) uses it.

    match ─► Path (locked)  ─► extend ─► extend ... ─► release (unlocked, stays as cache)
                 └► fork ─► a second path on the same nodes

Invariant, after every operation: every slot is on the free list or belongs to exactly one node; a node's `locks` are the
paths that pass through it; a node without locks holds only computed slots. `check.py` verifies it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sapwood.errors import OutOfSlots
from sapwood.radix.check import check_tree
from sapwood.radix.eviction import POLICIES, EvictionQueue, Expiry
from sapwood.radix.node import Ids, Node
from sapwood.radix.path import Path
from sapwood.radix.pool import SlotPool, Slots
from sapwood.radix.space import Space
from sapwood.radix.stats import SpaceStats, TreeStats

SPARE = 256  # slots evicted beyond what is needed, so that not every decoded token evicts
FEW = 64  # slots up to which a loop is faster than numpy


@dataclass(slots=True)
class _Pin:
    path: Path
    count: int = 1


class RadixTree:
    """Owns `num_slots` KV slots. `eviction`: "lru", "lfu" or "priority". `ttl`: seconds after which `expire` forgets what
    nobody uses; lower tiers don't get it.
    """

    def __init__(self, num_slots: int, *, eviction: str = "lru", ttl: float | None = None) -> None:
        self.pool = SlotPool(num_slots)
        self.marks = bytearray(num_slots)  # by slot: 1 where its keys and values are in memory
        self.computed: NDArray[np.bool_] = np.frombuffer(self.marks, bool)  # the same
        self.num_locked = 0  # slots of locked nodes
        self.num_paths = 0
        self.num_nodes = 0
        self.spaces: dict[str, Space] = {}  # by namespace; those that hold or keep anything
        self.on_evict: Callable[[Node, int], None] | None = None  # the node's tokens from this index on go; still there
        self.on_free: Callable[[Slots], None] | None = None  # before slots go back to the free list
        self._guarded: dict[str, Space] = {}  # those with a quota
        self._spare = min(SPARE, num_slots // 256)
        self._policy = POLICIES[eviction]
        self._shared_queue = EvictionQueue(self._policy)
        self._expiry = None if ttl is None else Expiry(ttl)
        self.clock = 0  # matches and releases so far
        self._requested = self._matched = self._evicted = 0
        self._pins: dict[tuple[str, bytes], _Pin] = {}

    @property
    def num_slots(self) -> int:
        return self.pool.num_slots

    @property
    def num_free(self) -> int:
        return self.pool.num_free

    @property
    def num_evictable(self) -> int:
        """Slots that eviction could free now, were there no quotas."""
        return self.num_slots - self.num_free - self.num_locked

    def match(self, ids: Sequence[int] | Ids, namespace: str = "", *, priority: int = 0) -> Path:
        """The longest prefix of `ids` that the tree holds, computed or not, as a locked path. Namespaces share nothing."""
        wanted = np.asarray(ids, np.int32)
        space = self._space(namespace)
        self._tick()
        nodes = self._descend(space.root, wanted)
        known = 0  # up to here everything is computed
        for node in nodes:
            node.hits += 1
            if priority > node.priority:
                node.priority = priority
            if known == node.start and (not node.locks or self._ends_computed(node)):
                known = node.end
        self._hold(space, nodes)
        space.root.locks += 1
        tip = nodes[-1] if nodes else space.root
        slots = np.concatenate([node.slots for node in nodes]) if nodes else np.empty(0, np.int32)
        self.num_paths += 1
        path = Path(self, space, tip, slots, priority)
        path.computed_until = known
        self._count_match(space, len(wanted), path.num_computed)
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
        if len(slots) > FEW:
            self.computed[slots] = True
            return
        for slot in slots.tolist():
            self.marks[slot] = 1

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

    def set_quota(self, namespace: str, num_slots: int | None) -> None:
        """What `namespace` holds up to `num_slots` is not evicted for others any more; None: as everybody's is."""
        space = self._space(namespace)
        space.quota = num_slots
        if num_slots is None:
            self._guarded.pop(namespace, None)
            space.queue = self._shared_queue
        else:
            self._guarded[namespace] = space
            space.queue = EvictionQueue(self._policy)
        for node in _below(space.root):
            node.is_queued = False
            if not node.locks and not node.children:
                space.queue.push(node)
        self.forget_if_idle(space)

    def available(self, namespace: str = "") -> int:
        """Slots that a path of `namespace` could take now: free ones, and those evictable for it."""
        whom = self._guarded.get(namespace)
        return self.num_free + self.num_evictable - self._kept_from(whom)

    def flush(self, *, demote: bool = False) -> int:
        """Evict everything that no path holds, whatever the quotas; returns the number of tokens. `demote`: to lower tiers."""
        return self._evict_unused(self.clock, demote)

    @property
    def next_expiry(self) -> float | None:
        """The time.monotonic() from which on `expire` would find something; None while nothing ages."""
        return None if self._expiry is None else self._expiry.due

    def expire(self) -> int:
        """Forget what has been used by nobody for `ttl` seconds, whatever the quotas; returns the number of tokens."""
        deadline = None if self._expiry is None else self._expiry.deadline()
        return 0 if deadline is None else self._evict_unused(deadline, demote=False)

    def stats(self) -> TreeStats:
        """Counts as they are now. Walks all nodes once, for the depth."""
        return TreeStats(
            requested=self._requested,
            matched=self._matched,
            extended=self.pool.num_taken,
            evicted=self._evicted,
            num_nodes=self.num_nodes,
            num_paths=self.num_paths,
            depth=self._depth(),
            num_free=self.num_free,
            num_evictable=self.num_evictable,
            spaces={
                name: SpaceStats(s.held, s.locked, s.quota, s.requested, s.matched, s.evicted)
                for name, s in self.spaces.items()
            },
        )

    def roots(self) -> dict[str, Node]:
        """The root of each namespace."""
        return {name: space.root for name, space in self.spaces.items()}

    def nodes(self) -> Iterator[Node]:
        """All nodes but the roots, parents first."""
        for space in self.spaces.values():
            yield from _below(space.root)

    def check(self) -> None:
        """AssertionError where the invariant is broken."""
        check_tree(self)

    def _depth(self) -> int:
        """Nodes of the longest walk from a root."""
        depth, level = 0, list(self.roots().values())
        while level := [child for node in level for child in node.children.values()]:
            depth += 1
        return depth

    def _space(self, namespace: str) -> Space:
        space = self.spaces.get(namespace)
        if space is None:
            self.spaces[namespace] = space = Space(namespace, self._shared_queue)
        return space

    def forget_if_idle(self, space: Space) -> None:
        """Namespaces are named by clients: empty ones must not pile up."""
        if space.is_idle:
            self.spaces.pop(space.name, None)

    def _count_match(self, space: Space, requested: int, matched: int) -> None:
        self._requested += requested
        self._matched += matched
        space.requested += requested
        space.matched += matched

    def _walk(self, ids: Sequence[int] | Ids, namespace: str) -> Iterator[tuple[Node, int]]:
        """The nodes along `ids`, and how many tokens of each match."""
        wanted = np.asarray(ids, np.int32)
        content = wanted.tobytes()
        space = self.spaces.get(namespace)
        node: Node | None = None if space is None else space.root
        done = 0
        while node is not None and done < len(wanted):
            node = node.children.get(wanted.item(done))
            if node is None:
                return
            if not node.stands_in(content, done):
                yield node, node.common(wanted[done:])
                return
            yield node, node.size
            done += node.size

    def _descend(self, tip: Node, ids: Ids) -> list[Node]:
        """The nodes below `tip` along `ids`; the last one is cut so that all of it matches."""
        nodes: list[Node] = []
        if not tip.children:
            return nodes
        content, total, done = ids.tobytes(), len(ids), 0
        while done < total and (child := tip.children.get(ids.item(done))) is not None:
            if not child.stands_in(content, done):
                nodes.append(child.split(child.common(ids[done:])))
                self.num_nodes += 1
                break
            nodes.append(child)
            done += child.size
            tip = child
        return nodes

    def extend(self, path: Path, ids: Ids) -> Slots:
        """For `Path.extend`."""
        begin, tip = len(path), path.tip
        nodes = self._descend(tip, ids)
        if nodes:
            self._hold(path.space, nodes)
            tip = nodes[-1]
        done = tip.end - begin
        missing = len(ids) - done
        if missing > self.num_free and missing > self._evict(missing, path.space):
            for node in reversed(nodes):
                self._unlock(node)
            raise OutOfSlots(
                f"{missing} more KV slots are needed; {self.num_free} are free and none of the others can be evicted now"
            )
        for node in nodes:
            path.append(node.slots)
        if missing:
            slots = self.pool.take(missing)
            if tip.parent is not None and tip.locks == 1 and not tip.children:
                tip.append(ids[done:], slots)
            else:
                child = Node(path.space, tip, tip.end, ids[done:].copy(), slots.copy())
                child.locks, child.last_use, child.priority = 1, self.clock, path.priority
                tip.children[int(ids[done])] = child
                tip = child
                self.num_nodes += 1
            path.space.held += missing
            self._count_locked(path.space, missing)
            path.append(slots)
        path.tip = tip
        return path.slots[begin:]

    def truncate(self, path: Path, length: int, discard: bool) -> None:
        """For `Path.truncate`: moves the tip back."""
        self._tick()
        while path.tip.start >= length and (parent := path.tip.parent) is not None:
            tip = path.tip
            path.tip = parent
            self._unlock(tip)
            self._leave(tip, discard)
        if path.tip.end > length:
            tip = path.tip
            if discard and tip.locks == 1 and not tip.children:
                gone = tip.cut(length - tip.start)
                self._count_locked(path.space, -len(gone))
                self._free(path.space, gone)
            else:
                path.tip = tip.split(length - tip.start)
                self.num_nodes += 1
                self._unlock(tip)
                self._leave(tip, discard)

    def _leave(self, node: Node, discard: bool) -> None:
        """A path went away from the end of `node`."""
        if node.locks:
            return
        if discard and not node.children:
            self._remove(node)
        else:
            self.trim(node)

    def lock(self, tip: Node) -> None:
        """For paths: one more passes through all nodes from the root to `tip`, which are locked already."""
        node: Node | None = tip
        while node is not None:
            node.locks += 1
            node = node.parent

    def unlock(self, tip: Node) -> None:
        """For paths: one less passes through all nodes from the root to `tip`."""
        self._tick()
        node: Node | None = tip
        while node is not None:
            self._unlock(node)
            node = node.parent

    def _tick(self) -> None:
        """Something is used now."""
        self.clock += 1
        if self._expiry is not None:
            self._expiry.used(self.clock)

    def _hold(self, space: Space, nodes: list[Node]) -> None:
        """One more path passes through these."""
        fresh = 0
        for node in nodes:
            if not node.locks:
                fresh += node.size
            node.locks += 1
            node.last_use = self.clock
        self._count_locked(space, fresh)

    def _unlock(self, node: Node) -> None:
        node.locks -= 1
        if not node.locks:
            self._count_locked(node.space, -node.size)
            node.last_use = self.clock
            if not node.children and node.parent is not None:
                node.space.queue.push(node)

    def _count_locked(self, space: Space, delta: int) -> None:
        space.locked += delta
        self.num_locked += delta

    def trim(self, node: Node) -> None:
        """Free what was never computed at the end of an unlocked branch."""
        while node.parent is not None and not node.locks and not node.children:
            if self._ends_computed(node):
                return
            computed = int(np.count_nonzero(self.computed[node.slots]))
            if computed:
                self._free(node.space, node.cut(computed))
                return
            parent = node.parent
            self._remove(node)
            node = parent

    def _ends_computed(self, node: Node) -> bool:
        """Whether its last slot, and so every one, is computed."""
        return bool(self.computed[node.slots[-1]])

    def _remove(self, node: Node) -> None:
        """Take an unlocked leaf out of the tree."""
        assert node.parent is not None and not node.locks and not node.children
        parent = node.parent
        del parent.children[int(node.ids[0])]
        self._free(node.space, node.slots)
        node.parent = None
        node.space.queue.forget(node)
        self.num_nodes -= 1
        if parent.parent is None:
            self.forget_if_idle(node.space)
        elif not parent.locks and not parent.children:
            node.space.queue.push(parent)

    def _free(self, space: Space, slots: Slots) -> None:
        if self.on_free is not None:
            self.on_free(slots)
        self.computed[slots] = False
        self.pool.give(slots)
        space.held -= len(slots)

    def _evict(self, wanted: int, whom: Space) -> int:
        """Evict unlocked leaves, ends first, until `wanted` slots or some more are free for `whom`; returns how many are. All or nothing."""
        possible = self.num_free + self.num_evictable - self._kept_from(whom)
        if possible < wanted:
            return self.num_free
        wanted = min(wanted + self._spare, possible)
        guarded = self._guarded.values()
        while self.num_free < wanted:
            queues = [self._shared_queue, *(space.queue for space in guarded if space.evictable(whom))]
            candidates = [first for queue in queues if (first := queue.first()) is not None]
            _, node = min(candidates, key=lambda first: first[0])
            self._shrink(node, min(wanted - self.num_free, node.space.evictable(whom)), demote=True)
        return self.num_free

    def _kept_from(self, whom: Space | None) -> int:
        """Unlocked slots that quotas guard against `whom`; None: any space without a quota."""
        return sum(space.held - space.locked - space.evictable(whom) for space in self._guarded.values())

    def _evict_unused(self, deadline: int, demote: bool) -> int:
        """Evict what nobody holds and was last used when the clock said `deadline`, or before; returns the number of tokens."""
        before = self.num_free
        for node in reversed(list(self.nodes())):
            if not node.locks and not node.children and node.last_use <= deadline:
                self._shrink(node, node.size, demote)
        return self.num_free - before

    def _shrink(self, node: Node, most: int, demote: bool) -> None:
        """Evict up to `most` tokens at the end of an unlocked leaf."""
        size = max(0, node.size - most)
        gone = node.size - size
        if demote and self.on_evict is not None:
            self.on_evict(node, size)
        self._evicted += gone
        node.space.evicted += gone
        if size:
            self._free(node.space, node.cut(size))
        else:
            self._remove(node)


def _below(root: Node) -> Iterator[Node]:
    """All nodes under a root, parents first."""
    stack = list(root.children.values())
    while stack:
        node = stack.pop()
        yield node
        stack.extend(node.children.values())
