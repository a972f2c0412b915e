"""Counts of what the scheduler did, for people and for /metrics."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from sapwood.radix.tree import RadixTree
from sapwood.runtime.scheduler.request import RequestState

DEEPEST = 8  # tokens of a draft
WINDOW = 5.0  # seconds over which throughput is measured


@dataclass(slots=True)
class SchedulerStats:
    """Since the start. `prompt` and `cached` count finished requests' prompt tokens."""

    num_finished: int = 0
    num_failed: int = 0
    num_preempted: int = 0
    num_steps: int = 0
    num_rows: int = 0  # computed, prompts' and outputs'
    num_prompt: int = 0
    num_cached: int = 0
    num_output: int = 0
    num_jumped: int = 0
    num_drafted: int = 0
    num_accepted: int = 0
    drafts_tried: list[int] = field(
        default_factory=lambda: [0] * DEEPEST
    )  # by depth: tokens whose forerunners came true
    drafts_true: list[int] = field(default_factory=lambda: [0] * DEEPEST)  # by depth: those that came true themselves
    schedule_seconds: float = 0.0  # composing batches and handling tokens
    _recent: deque[tuple[float, int]] = field(default_factory=deque)  # (when, output tokens so far)

    def finished(self, request: RequestState) -> None:
        """A request came to its end."""
        self.num_finished += 1
        self.num_prompt += request.prompt_len
        self.num_cached += request.num_cached
        self.num_jumped += request.num_jumped

    def verified(self, num_drafted: int, num_true: int) -> None:
        """Of a request's draft, the first `num_true` tokens came true."""
        for depth in range(min(num_true + 1, num_drafted)):
            self.drafts_tried[depth] += 1
            self.drafts_true[depth] += depth < num_true

    def stepped(self, num_rows: int) -> None:
        """A step computed rows; its output tokens are in `num_output` already."""
        self.num_steps += 1
        self.num_rows += num_rows
        now = time.monotonic()
        recent = self._recent
        if not recent or now - recent[-1][0] > WINDOW / 50:
            recent.append((now, self.num_output))
            while now - recent[0][0] > WINDOW:
                recent.popleft()

    @property
    def throughput(self) -> float:
        """Output tokens a second, lately."""
        recent, now = self._recent, time.monotonic()
        if not recent or now - recent[-1][0] > WINDOW:
            return 0.0
        return (self.num_output - recent[0][1]) / max(now - recent[0][0], WINDOW / 50)


def describe(
    stats: SchedulerStats, tree: RadixTree, running: Iterable[RequestState], waiting: Iterable[RequestState]
) -> dict[str, object]:
    """Everything as plain numbers, in tokens and seconds."""
    now = time.monotonic()
    ages = sorted(now - request.arrived for request in waiting)
    counted = tree.stats()
    used = tree.num_slots - tree.num_free
    return {
        "num_running": sum(1 for _ in running),
        "num_waiting": len(ages),
        "queue_age_median": ages[len(ages) // 2] if ages else 0.0,
        "queue_age_max": ages[-1] if ages else 0.0,
        "num_finished": stats.num_finished,
        "num_failed": stats.num_failed,
        "num_preempted": stats.num_preempted,
        "num_prompt": stats.num_prompt,
        "num_cached": stats.num_cached,
        "hit_rate": stats.num_cached / stats.num_prompt if stats.num_prompt else 0.0,
        "num_computed": stats.num_rows,
        "num_output": stats.num_output,
        "num_jumped": stats.num_jumped,
        "num_drafted": stats.num_drafted,
        "num_accepted": stats.num_accepted,
        "drafts_tried": list(stats.drafts_tried),
        "drafts_true": list(stats.drafts_true),
        "throughput": stats.throughput,
        "num_slots": tree.num_slots,
        "num_used": used,
        "num_locked": used - tree.num_evictable,
        "token_usage": used / tree.num_slots,
        "num_evicted": counted.evicted,
        "num_nodes": counted.num_nodes,
        "tree_depth": counted.depth,
        "num_steps": stats.num_steps,
        "schedule_seconds": stats.schedule_seconds,
    }
