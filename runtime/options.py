"""What can be set when a backend is started. Everything else it chooses itself."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

Count = Annotated[int, msgspec.Meta(ge=1)]
Rows = Annotated[int, msgspec.Meta(ge=1, le=2**16)]  # each takes memory for all that a layer computes
Workers = Annotated[int, msgspec.Meta(ge=1, le=1024)]
Bytes = Annotated[int, msgspec.Meta(ge=0)]
Seconds = Annotated[float, msgspec.Meta(gt=0)]


class BackendOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Few options; None leaves the choice to the backend."""

    model: str = "smollm2-135m"  # a pulled model's name, a .gguf, a folder, or "fake"
    address: str | None = None  # ipc://... or tcp://...; None: a private ipc socket
    backend: Literal["cpu", "reference", "cuda"] = "cpu"
    num_slots: Count | None = None  # tokens of KV memory; None: from the memory that is free
    max_rows: Rows | None = None  # tokens computed in one step
    threads: Workers | None = None
    context_length: Count | None = None  # longest prompt and answer together; None: the model's
    max_running: Count | None = None  # requests that share a batch
    max_queue: Count | None = None  # requests that may wait
    policy: str = "lpm"  # who of those that wait goes first: fcfs, lpm, dfs-weight
    eviction: Literal["lru", "lfu", "priority"] = "lru"  # what of the cache goes first when room is needed
    ttl: Seconds | None = None  # seconds after which cache that nobody uses is forgotten
    # auto: repetition and the head that comes with the model, on the cpu; ngram; lookahead; eagle[:FOLDER]; draft:MODEL; off
    speculative: str = "auto"
    host_cache: Bytes = 0  # bytes of memory that catch what is evicted
    disk_cache: str | None = None  # a folder that catches what falls out of there, also for the next start
    disk_bytes: Bytes = 10 * 2**30  # most bytes in it
    check: bool = False  # verify the tree after each step (slow)
