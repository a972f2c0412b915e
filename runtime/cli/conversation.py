"""A conversation as a tree of turns: forking keeps both branches, undoing moves back. Knows no terminal."""

from __future__ import annotations

from dataclasses import dataclass, field

from sapwood.errors import InvalidRequest


@dataclass(frozen=True)
class Message:
    """One message."""

    role: str
    content: str


@dataclass
class Conversation:
    """Named branches of one conversation; one is current."""

    system: str | None = None
    branches: dict[str, list[Message]] = field(default_factory=lambda: {"main": []})
    current: str = "main"

    @property
    def messages(self) -> list[Message]:
        """The current branch, without the system message."""
        return self.branches[self.current]

    def for_template(self) -> list[dict[str, str]]:
        """The current branch as chat templates take it."""
        system = [Message("system", self.system)] if self.system else []
        return [{"role": m.role, "content": m.content} for m in [*system, *self.messages]]

    def add(self, role: str, content: str) -> None:
        """Append a message to the current branch."""
        self.messages.append(Message(role, content))

    def undo(self) -> Message | None:
        """Take back the last exchange; returns the user's message of it."""
        while self.messages:
            last = self.messages.pop()
            if last.role == "user":
                return last
        return None

    def fork(self, name: str | None = None) -> str:
        """Go on in a copy of the current branch; returns its name."""
        name = name or next(f"branch{i}" for i in range(2, 10**6) if f"branch{i}" not in self.branches)
        if name in self.branches:
            raise InvalidRequest(f"there is a branch {name!r}; /switch {name} goes there")
        self.branches[name] = list(self.messages)
        self.current = name
        return name

    def switch(self, name: str) -> None:
        """Go on in another branch."""
        if name not in self.branches:
            raise InvalidRequest(f"there is no branch {name!r}; there are {', '.join(self.branches)}")
        self.current = name
