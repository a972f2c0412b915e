"""Puts one system together in this process: model, plan, tree, scheduler. What `backend.py` serves, and tests drive by hand."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sapwood.errors import InvalidRequest
from sapwood.kernels import open_plan
from sapwood.kernels.cpu_backend import CpuPlan
from sapwood.kernels.cpu_eagle import CpuEagle
from sapwood.kernels.decoder import Decoder
from sapwood.kernels.eagle import EagleHead
from sapwood.kernels.plan import Plan
from sapwood.radix.disk import DiskTier
from sapwood.radix.tiers import Tiers
from sapwood.radix.tree import RadixTree
from sapwood.runtime import fake
from sapwood.runtime.engine.engine import Engine
from sapwood.runtime.messages import ModelInfo
from sapwood.runtime.models.eagle import load_eagle, packaged_head
from sapwood.runtime.models.load import Model, load_model
from sapwood.runtime.options import BackendOptions
from sapwood.runtime.scheduler.grammars import GrammarJobs
from sapwood.runtime.scheduler.scheduler import Capacity, Scheduler
from sapwood.runtime.scheduler.validate import Limits
from sapwood.runtime.speculative.draft_model import ModelDrafter
from sapwood.runtime.speculative.drafter import Drafter
from sapwood.runtime.speculative.eagle import EagleDrafter
from sapwood.runtime.speculative.lookahead import LookaheadDrafter
from sapwood.runtime.speculative.mixed import MixedDrafter
from sapwood.runtime.speculative.ngram import NgramDrafter
from sapwood.runtime.tokenizer import Tokenizer, load_tokenizer

MAX_ROWS = 512
SPECULATIVE = ("auto", "off", "ngram", "lookahead", "eagle", "draft")
LEAST_SLOTS = 32768  # if memory allows
HOST_BUFFER = 256 * 2**20  # bytes of host memory through which the disk is used when none are asked for
MAX_SLOTS = 2**31 - 1  # their numbers are int32
MEMORY_SHARE = 1 / 3  # of what is available, for KV


@dataclass(slots=True)
class System:
    """Everything that a backend runs."""

    info: ModelInfo
    plan: Plan
    tree: RadixTree
    scheduler: Scheduler
    grammars: GrammarJobs
    tokenizer: Tokenizer
    tiers: Tiers | None

    def close(self) -> None:
        """Stop its threads and give its memory back."""
        self.grammars.close()
        self.scheduler.snapshots.close()
        if self.tiers is not None:
            self.tiers.close()
        self.plan.close()


def open_model(name: str) -> Model:
    """A model by name or path; "fake" is the built-in one."""
    return fake.fake_model() if name == fake.NAME else load_model(name)


def open_tokenizer(name: str) -> Tokenizer:
    """The tokenizer that belongs to a model's name or path."""
    return fake.fake_tokenizer() if name == fake.NAME else load_tokenizer(name)


def assemble(
    options: BackendOptions,
    *,
    progress: Callable[[str], None] = lambda text: None,
    wake: Callable[[], None] = lambda: None,
) -> System:
    """Load the model and build all that serves it. `wake`: called from other threads when a step has become due."""
    progress(f"reading {options.model}")
    model = open_model(options.model)
    tokenizer = open_tokenizer(str(model.path))
    context_length = min(options.context_length or model.context_length, model.context_length)
    num_slots = options.num_slots or default_slots(model.decoder, context_length)
    if num_slots < 1:
        raise InvalidRequest(f"num_slots must be at least 1, not {num_slots}")
    if num_slots > (most := most_slots(model.decoder, options.backend)):
        raise InvalidRequest(f"num_slots is {num_slots}, but {most} is what fits in the memory that is free; lower it")
    context_length = min(context_length, num_slots)
    head = choose_head(options, model)
    progress("preparing the weights")
    plan = open_plan(
        model.decoder,
        backend=options.backend,
        num_slots=num_slots,
        max_rows=options.max_rows or MAX_ROWS,
        threads=options.threads,
        captures=() if head is None else head.captures,
        packed=model.packed,
    )
    tree = RadixTree(num_slots, eviction=options.eviction, ttl=options.ttl)
    grammars = GrammarJobs(tokenizer, wake)
    tiers = make_tiers(options, tree, plan, model.fingerprint, wake)
    given = {"max_running": options.max_running, "max_waiting": options.max_queue}
    scheduler = Scheduler(
        Engine(plan),
        tree,
        tokenizer,
        grammars,
        Limits(context_length, model.decoder.vocab_size, tokenizer.bos_id),
        Capacity(**{name: value for name, value in given.items() if value is not None}),
        options.policy,
        drafter=make_drafter(options, plan, head, model, tokenizer),
        tiers=tiers,
        wake=wake,
        check=options.check,
    )
    info = ModelInfo(
        name=model.name,
        path=str(model.path),
        architecture=model.architecture,
        context_length=context_length,
        vocab_size=model.decoder.vocab_size,
        fingerprint=model.fingerprint,
        backend=options.backend,
        num_slots=num_slots,
    )
    return System(info, plan, tree, scheduler, grammars, tokenizer, tiers)


def make_tiers(
    options: BackendOptions, tree: RadixTree, plan: Plan, fingerprint: str, wake: Callable[[], None]
) -> Tiers | None:
    """What catches evicted keys and values, if anything does."""
    if not options.host_cache and options.disk_cache is None:
        return None
    try:
        disk = None if options.disk_cache is None else DiskTier(options.disk_cache, options.disk_bytes, wake)
    except OSError as error:
        raise InvalidRequest(f"the folder {options.disk_cache} can't be used as a cache: {error.strerror}") from None
    return Tiers(tree, plan.kv, fingerprint=fingerprint, host_bytes=options.host_cache or HOST_BUFFER, disk=disk)


def choose_head(options: BackendOptions, model: Model) -> EagleHead | None:
    """The EAGLE head to draft with, if one is to be used. InvalidRequest where `speculative` names nothing that works."""
    kind, _, path = options.speculative.partition(":")
    if kind not in SPECULATIVE or (path and kind not in ("eagle", "draft")) or (kind == "draft" and not path):
        raise InvalidRequest(
            f"there is no way of drafting called '{options.speculative}'; choose auto, off, ngram, lookahead, eagle, "
            "eagle:FOLDER or draft:MODEL"
        )
    if kind in ("eagle", "draft") and options.backend != "cpu":
        raise InvalidRequest(f"{kind} drafts on the cpu backend only; leave --speculative out, or take --backend cpu")
    if kind not in ("auto", "eagle") or options.backend != "cpu":
        return None
    folder = Path(path) if path else packaged_head(model.decoder)
    if folder is None and kind == "eagle":
        raise InvalidRequest(
            f"no EAGLE head comes with {model.name}; name a folder: --speculative eagle:FOLDER (docs/train-eagle.md)"
        )
    return None if folder is None else load_eagle(folder, model.decoder)


def make_drafter(
    options: BackendOptions, plan: Plan, head: EagleHead | None, model: Model, tokenizer: Tokenizer
) -> Drafter | None:
    """What guesses tokens ahead, if anything does."""
    kind, _, name = options.speculative.partition(":")
    if kind == "draft":
        small = open_model(name)
        if open_tokenizer(str(small.path)).token_bytes != tokenizer.token_bytes:
            raise InvalidRequest(f"{name} can't draft for {model.name}: their vocabularies differ")
        return ModelDrafter(small.decoder, plan.kv.num_slots, plan.max_rows, options.threads)
    if kind == "lookahead":
        return LookaheadDrafter()
    if head is not None:
        assert isinstance(plan, CpuPlan)
        eagle = EagleDrafter(CpuEagle(plan, head))
        return MixedDrafter(NgramDrafter(), eagle) if kind == "auto" else eagle
    return NgramDrafter() if kind == "ngram" or (kind == "auto" and options.backend == "cpu") else None


def default_slots(decoder: Decoder, context_length: int) -> int:
    """Room for four full contexts or LEAST_SLOTS, as far as a share of the free memory holds them at 4 bytes a value."""
    bytes_per_slot = len(decoder.layers) * 2 * decoder.kv_size * 4
    affordable = int(available_memory() * MEMORY_SHARE) // bytes_per_slot
    return max(256, min(max(LEAST_SLOTS, 4 * context_length), affordable))


def most_slots(decoder: Decoder, backend: str) -> int:
    """Slots that the free memory holds, with what is kept for each beside its keys and values; of a GPU it isn't known here."""
    if backend == "cuda":
        return MAX_SLOTS
    bytes_per_slot = len(decoder.layers) * 2 * decoder.kv_size * (2 if backend == "cpu" else 4) + 32
    return min(available_memory() // bytes_per_slot, MAX_SLOTS)


def available_memory() -> int:
    """Bytes that can be used without swapping."""
    try:
        with open("/proc/meminfo") as lines:
            return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
