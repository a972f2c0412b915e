"""A conversation's branches."""

from __future__ import annotations

import pytest

from sapwood.errors import InvalidRequest
from sapwood.runtime.cli.conversation import Conversation


def test_a_fork_keeps_both_branches() -> None:
    talk = Conversation("be brief")
    talk.add("user", "hello")
    talk.add("assistant", "hi")
    name = talk.fork()
    talk.add("user", "more")
    assert len(talk.branches["main"]) == 2 and len(talk.branches[name]) == 3
    talk.switch("main")
    assert [m["role"] for m in talk.for_template()] == ["system", "user", "assistant"]


def test_undo_takes_back_an_exchange_whether_answered_or_not() -> None:
    talk = Conversation()
    talk.add("user", "one")
    talk.add("assistant", "two")
    talk.add("user", "three")
    assert talk.undo() and len(talk.messages) == 2
    taken = talk.undo()
    assert taken and taken.content == "one" and not talk.messages
    assert talk.undo() is None


def test_unknown_and_taken_names_are_refused() -> None:
    talk = Conversation()
    with pytest.raises(InvalidRequest, match="main"):
        talk.switch("nowhere")
    with pytest.raises(InvalidRequest, match="/switch main"):
        talk.fork("main")
