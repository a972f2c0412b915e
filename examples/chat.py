"""A conversation in the terminal that never computes what was said before again.

sapwood run examples/chat.py

An empty line ends it. `/retry` takes the last answer back and asks for another one: the state before it was kept as a fork.
"""

from __future__ import annotations

import sapwood as sw


@sw.function
def talk(s, ask, show):  # type: ignore[no-untyped-def]
    s += sw.system("You are a friendly companion who answers in one or two sentences.")
    before = None
    while line := ask():
        if line == "/retry" and before is not None:
            s = before
        else:
            s += sw.user(line)
        before = s.fork(1)[0]
        s += sw.assistant(sw.gen("answer", max_tokens=80))
        show(s["answer"].strip())
        meta = s.get_meta_info("answer")
        show(f"    ({meta['cached_tokens']} of {meta['prompt_tokens']} prompt tokens reused)")


def ask() -> str:
    try:
        return input("you: ").strip()
    except EOFError:
        return ""


def main() -> None:
    talk.run(ask, print, temperature=0.7)


if __name__ == "__main__":
    main()
