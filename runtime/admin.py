"""Answers `Ask` messages: what people and programs want to know of a backend, or change in it while it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any, TypeVar

import msgspec

from sapwood.errors import InvalidRequest, SapwoodError
from sapwood.radix.outline import outline
from sapwood.runtime.assembly import System
from sapwood.runtime.messages import Ask
from sapwood.runtime.scheduler import stats

Args = TypeVar("Args")


class PrefixArgs(msgspec.Struct, forbid_unknown_fields=True):
    """A prefix of the tree."""

    ids: list[int]
    namespace: str = ""


class TreeArgs(msgspec.Struct, forbid_unknown_fields=True):
    """How many nodes to show."""

    max_nodes: int = 250


class PolicyArgs(msgspec.Struct, forbid_unknown_fields=True):
    """The name of a policy."""

    policy: str


class QuotaArgs(msgspec.Struct, forbid_unknown_fields=True):
    """What a namespace holds up to `num_slots` is never evicted for others; None takes that back."""

    namespace: str
    num_slots: int | None = None


class SnapshotArgs(msgspec.Struct, forbid_unknown_fields=True):
    """A file on the backend's machine, and for `save` what of the tree goes into it: a namespace, or a prefix in it."""

    path: str
    namespace: str = ""
    ids: list[int] | None = None


class NoArgs(msgspec.Struct, forbid_unknown_fields=True):
    """Nothing."""


class Admin:
    """One method an `Ask`. Runs on the scheduler's thread, between two steps. Answers go to the scheduler's outbox: those about
    snapshots when these are done, the others at once.
    """

    def __init__(self, system: System) -> None:
        self._system = system
        self._handlers: dict[str, tuple[type[Any], Callable[[Any], object]]] = {
            "info": (NoArgs, self._info),
            "stats": (NoArgs, self._stats),
            "tree": (TreeArgs, self._tree),
            "flush": (NoArgs, self._flush),
            "pin": (PrefixArgs, self._pin),
            "unpin": (PrefixArgs, self._unpin),
            "policy": (PolicyArgs, self._policy),
            "quota": (QuotaArgs, self._quota),
        }

    def take(self, client: bytes, ask: Ask) -> None:
        """See to one call of a client."""
        outbox = self._system.scheduler.outbox
        try:
            if ask.what in ("save", "load"):
                self._snapshot(client, ask)
                return
            if ask.what not in self._handlers:
                raise InvalidRequest(f"this backend can't answer '{ask.what}'")
            args_type, call = self._handlers[ask.what]
            outbox.answer(client, ask.rid, call(_converted(ask, args_type)))
        except (SapwoodError, OSError, ValueError) as error:  # ValueError: a path that is none
            outbox.fail(client, ask.rid, error)

    def _info(self, args: NoArgs) -> object:
        return msgspec.to_builtins(self._system.info)

    def _stats(self, args: NoArgs) -> object:
        scheduler, engine = self._system.scheduler, self._system.scheduler.engine
        counts = stats.describe(scheduler.stats, self._system.tree, scheduler.running, scheduler.waiting)
        if self._system.tiers is not None:
            tiers = self._system.tiers.stats()
            counts |= {f"tiers_{name}": value for name, value in asdict(tiers).items()}
        return counts | {"run_seconds": engine.run_seconds, "sample_seconds": engine.sample_seconds}

    def _tree(self, args: TreeArgs) -> object:
        return msgspec.to_builtins(outline(self._system.tree, args.max_nodes))

    def _flush(self, args: NoArgs) -> object:
        count = self._system.tree.flush()
        if self._system.tiers is not None:
            self._system.tiers.clear()
        return {"num_evicted": count}

    def _pin(self, args: PrefixArgs) -> object:
        return {"num_pinned": self._system.tree.pin(args.ids, args.namespace)}

    def _unpin(self, args: PrefixArgs) -> object:
        if not self._system.tree.unpin(args.ids, args.namespace):
            raise InvalidRequest("this prefix is not pinned")
        return {}

    def _policy(self, args: PolicyArgs) -> object:
        self._system.scheduler.set_policy(args.policy)
        return args.policy

    def _quota(self, args: QuotaArgs) -> object:
        tree = self._system.tree
        if args.num_slots is not None and not 0 <= args.num_slots <= tree.num_slots:
            raise InvalidRequest(f"num_slots must be between 0 and {tree.num_slots}, not {args.num_slots}")
        tree.set_quota(args.namespace, args.num_slots)
        return {}

    def _snapshot(self, client: bytes, ask: Ask) -> None:
        """Have the tree saved or a file loaded, while requests go on."""
        args, outbox = _converted(ask, SnapshotArgs), self._system.scheduler.outbox
        snapshots, fingerprint = self._system.scheduler.snapshots, self._system.info.fingerprint

        def on_end(result: int | Exception) -> None:
            if isinstance(result, Exception):
                outbox.fail(client, ask.rid, result)
            else:
                outbox.answer(client, ask.rid, {"num_tokens": result})

        if ask.what == "save":
            snapshots.save(args.path, on_end, fingerprint=fingerprint, namespace=args.namespace, ids=args.ids)
        else:
            snapshots.load(args.path, on_end, fingerprint=fingerprint)


def _converted(ask: Ask, args_type: type[Args]) -> Args:
    try:
        return msgspec.convert(ask.args, args_type)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"the arguments of '{ask.what}' are wrong: {error}") from None
