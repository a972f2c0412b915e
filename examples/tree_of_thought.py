"""Tree of thought: propose next steps, weigh each by the model's own judgement, keep the best, and answer.

sapwood run examples/tree_of_thought.py "A farmer has 17 sheep. All but 9 run away. How many are left?"

All thoughts of a depth are written side by side; whatever they share of the problem and of earlier thoughts is computed once.
"""

from __future__ import annotations

import math
import sys

import sapwood as sw

DEPTH, WIDTH, BRANCH = 3, 2, 3


@sw.function
def solve(s, problem):  # type: ignore[no-untyped-def]
    s += sw.system("You solve problems step by step, one short sentence a step.")
    s += sw.user(problem)
    s += sw.assistant_begin()
    s.beam(
        lambda step: f"Step {step + 1}:" + sw.gen(f"step_{step}", max_tokens=40, stop=["\n", "Step"]) + "\n",
        key=promise,
        depth=DEPTH,
        width=WIDTH,
        branch=BRANCH,
    )
    s += "Answer:" + sw.gen("answer", max_tokens=24, stop="\n", temperature=0)
    s += sw.assistant_end()


def promise(state: sw.ProgramState) -> float:
    """How much likelier the model finds it that the steps so far are right than that they are wrong."""
    judged = state.fork(1)[0]
    judged += "(Are the steps so far right? " + sw.select("right", ["yes", "no"]) + ")"
    yes, no = (judged.get_meta_info("right") or {})["scores"]
    return 1 / (1 + math.exp(no - yes))


def main(problem: str) -> None:
    state = solve.run(problem=problem, temperature=0.8, seed=7)
    for step in range(DEPTH):
        print(f"{step + 1}. {state[f'step_{step}'].strip()}")
    usage = state.usage()
    print("Answer:", state["answer"].strip())
    print(f"{usage.cached_tokens} of {usage.prompt_tokens} prompt tokens came from the tree")


if __name__ == "__main__":
    main(" ".join(sys.argv[1:]) or "A farmer has 17 sheep. All but 9 run away. How many are left?")
