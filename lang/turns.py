"""What a chat template writes around a turn, so that a conversation can be built turn by turn.

The template is asked with placeholders for contents; what stands before and after the last one belongs to that turn.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from sapwood.errors import InvalidRequest

if TYPE_CHECKING:
    from sapwood.lang.backends import TextTokenizer

_CONTENT = "\u2983content\u2984"


@dataclass(frozen=True, slots=True)
class Turn:
    before: str
    after: str


@lru_cache(maxsize=4096)
def turn(tokenizer: TextTokenizer, roles: tuple[str, ...]) -> Turn:
    """What is written around the last of these roles' turns, given the turns before it."""
    messages = [{"role": role, "content": _CONTENT} for role in roles]
    role = roles[-1]
    pieces = tokenizer.render(messages, add_generation_prompt=False).split(_CONTENT)
    if role == "system" and len(pieces) != len(roles) + 1:  # some templates write it only inside the user's turn
        user = {"role": "user", "content": _CONTENT}
        pieces = tokenizer.render([*messages, user], add_generation_prompt=False).split(_CONTENT)[:-1]
    if len(pieces) != len(roles) + 1:
        raise InvalidRequest(
            f"the model's chat template doesn't write a {role} turn after {', '.join(roles[:-1]) or 'nothing'}"
        )
    if len(roles) == 1:
        return Turn(pieces[0], pieces[1])
    # The text between two contents is the end of one turn and the beginning of the next: cut where the earlier one ended.
    earlier = turn(tokenizer, roles[:-1]).after
    between = pieces[-2]
    before = between[len(earlier) :] if between.startswith(earlier) else between
    if role == "assistant":
        begun = tokenizer.render(messages[:-1], add_generation_prompt=True)
        closed = tokenizer.render(messages[:-1], add_generation_prompt=False)
        if begun.startswith(closed) and len(begun) > len(closed):
            before = begun[len(closed) :]
    return Turn(before, pieces[-1])
