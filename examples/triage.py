"""The program of the README: a choice, two branches that share everything before them, and a record by schema."""

from dataclasses import dataclass
from typing import Literal

import sapwood as sw


@dataclass
class Ticket:
    part: Literal["screen", "battery", "sound"]
    urgent: bool
    days_to_fix: int


@sw.function
def triage(s, report):  # type: ignore[no-untyped-def]
    s += sw.system("You sort bug reports.")
    s += sw.user(f"Report: {report}\nIs it about the screen, the battery or the sound?")
    s += sw.assistant("It is about the " + sw.select("part", ["screen", "battery", "sound"]) + ".")
    branches = s.fork(2)  # share all of the above, generated in one batch
    for branch, style in zip(branches, ["a polite", "a short"], strict=True):
        branch += sw.user(f"Write {style} reply of one sentence to the customer.")
        branch += sw.assistant(sw.gen("reply", max_tokens=40, temperature=0))
    s["replies"] = [branch["reply"] for branch in branches]
    s += sw.user("Now the ticket, as JSON.")
    s += sw.assistant(sw.gen("ticket", schema=Ticket, temperature=0))


if __name__ == "__main__":
    state = triage.run(report="It goes dark after five minutes although it was charged all night.")
    print(state["part"], *state["replies"], state["ticket"], state.usage(), sep="\n")
