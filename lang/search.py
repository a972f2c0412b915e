"""Ways to try several continuations and go on from one: they fork a state, look at the forks, and adopt the best."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sapwood.lang.state import ProgramState, ProgramStateGroup


def parallel(state: ProgramState, expressions: Sequence[Any]) -> ProgramStateGroup:
    """One fork for each expression; what they add to the variables is set on `state`."""
    group = state.fork(len(expressions))
    for fork, expression in zip(group, expressions, strict=True):
        fork += expression
    known = set(state.variables())
    for fork in group:
        for name, value in fork.variables().items():
            if name not in known:
                state.set_var(name, value)
    return group


def best_of(state: ProgramState, n: int, expression: Any, key: Callable[[ProgramState], Any]) -> ProgramState:
    """The fork with the highest key, which `state` goes on from."""
    best = max(_tried([state], n, expression), key=key)
    _go_on(state, best)
    return best


def vote(state: ProgramState, n: int, expression: Any, name: str) -> Any:
    """The most frequent value of a variable (the first among equals), and `state` goes on from a fork that has it."""
    forks = _tried([state], n, expression)
    values = [repr(fork[name]) for fork in forks]
    winner = Counter(values).most_common(1)[0][0]
    chosen = forks[values.index(winner)]
    _go_on(state, chosen)
    state.set_var(f"{name}_votes", dict(Counter(str(fork[name]) for fork in forks)))
    return chosen[name]


def beam(
    state: ProgramState, expression: Any, key: Callable[[ProgramState], Any], depth: int, width: int, branch: int
) -> ProgramState:
    """The best of the states that `depth` steps lead to, which `state` goes on from."""
    beams = [state]
    for step in range(depth):
        grown = _tried(beams, branch, expression(step) if callable(expression) else expression)
        beams = sorted(grown, key=key, reverse=True)[:width]
    _go_on(state, beams[0])
    return beams[0]


def likelihood(name: str) -> Callable[[ProgramState], float]:
    """A key: the mean log probability of the tokens of `gen(name, logprobs=0)`."""

    def key(state: ProgramState) -> float:
        meta = state.get_meta_info(name) or {}
        logprobs = [entry.logprob for entry in meta.get("logprobs", ())]
        return sum(logprobs) / len(logprobs) if logprobs else float("-inf")

    return key


def _tried(states: Sequence[ProgramState], n: int, expression: Any) -> list[ProgramState]:
    """All forks with the expression appended, running side by side."""
    forks = [fork for state in states for fork in state.fork(n)]
    for fork in forks:
        fork += expression
    for fork in forks:
        fork.text()  # raises what failed
    return forks


def _go_on(state: ProgramState, fork: ProgramState) -> None:
    fork.text()
    state._executor.adopt(fork._executor)
