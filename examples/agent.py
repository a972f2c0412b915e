"""An agent with tools (ReAct): thinks, calls a function, reads its result, and answers when it is ready.

sapwood run examples/agent.py "How many days are there from 2024-02-01 to 2024-03-01?"

What the model writes is always a call of one of the functions below, with arguments of the right types: the grammar is made
from their signatures. `finish` is a function like the others.
"""

from __future__ import annotations

import ast
import operator
import sys
from collections.abc import Callable
from datetime import date
from typing import Any

import sapwood as sw

OPERATORS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
}  # fmt: skip


def calculate(expression: str) -> float:
    """Work out an expression of numbers with + - * / and brackets, such as (3 + 4) * 2."""

    def value(node: ast.expr) -> float:
        if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
            return node.value
        if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
            return float(OPERATORS[type(node.op)](value(node.left), value(node.right)))
        raise ValueError(f"can't calculate {ast.unparse(node)}")

    return value(ast.parse(expression, mode="eval").body)


def days_between(first: date, second: date) -> int:
    """Count the days from one date to another."""
    return (second - first).days


def finish(answer: str) -> str:
    """Give the answer to the user; ends the work."""
    return answer


TOOLS = [calculate, days_between, finish]


@sw.function
def agent(s, question, max_steps=6):  # type: ignore[no-untyped-def]
    s += sw.system(sw.describe_tools(TOOLS) + " Think first, in one sentence.")
    s += sw.user(question)
    done = []  # calls so far: a model that repeats itself is asked for its answer
    for step in range(max_steps):
        last = step == max_steps - 1 or len(set(done)) < len(done)
        s += sw.assistant(
            "Thought:" + sw.gen(f"thought_{step}", max_tokens=40, stop="\n") + "\n"
            + sw.gen(f"call_{step}", tools=[finish] if last else TOOLS, max_tokens=120)
        )  # fmt: skip
        call = s[f"call_{step}"]
        if call.function is finish:
            return call.arguments["answer"]
        done.append(repr(call))
        s.call_tools(f"call_{step}")


def main(question: str) -> None:
    state = agent.run(question=question, temperature=0, max_tokens=120)
    for step in range(6):
        if f"call_{step}" in state:
            call = state[f"call_{step}"]
            print(f"{step + 1}. {state[f'thought_{step}'].strip()}\n   {call.name}({call.arguments})")
    print("Answer:", state.ret_value)


if __name__ == "__main__":
    main(" ".join(sys.argv[1:]) or "How many days are there from 2024-02-01 to 2024-03-01?")
