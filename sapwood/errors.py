"""Every exception that Sapwood raises on purpose. Messages are sentences for the person who can act.

SapwoodError
├── InvalidRequest        what the caller asked for can't be done as asked   (HTTP 400)
│   └── GrammarError      a regex, schema or grammar is wrong or unsupported
├── ModelError            a model file is missing, damaged or of an unknown kind
├── Overloaded            the queue is full; try again later                 (HTTP 429)
├── DeadlineExceeded      the request's time ran out                         (HTTP 408)
├── Cancelled             the caller gave the request up
├── BackendDied           the backend process ended or can't be reached      (HTTP 503)
└── OutOfSlots            the KV pool can't hold what was asked for, even after eviction
"""

from __future__ import annotations


class SapwoodError(Exception):
    """Base of all errors that Sapwood raises on purpose."""


class InvalidRequest(SapwoodError):
    """The request can't be served as asked; the message says what to change."""


class GrammarError(InvalidRequest):
    """A regex, JSON Schema or grammar is malformed or asks for what can't be guaranteed.

    `where` is a JSON pointer (schemas) or a character offset (regexes, grammars), None if it concerns the whole.
    """

    def __init__(self, message: str, where: str | int | None = None) -> None:
        super().__init__(message)
        self.where = where


class ModelError(SapwoodError):
    """A model file is missing, truncated, corrupt or of an architecture that isn't supported."""


class Overloaded(SapwoodError):
    """The waiting queue is full. Nothing was started."""


class DeadlineExceeded(SapwoodError):
    """The request's deadline passed before it finished."""


class Cancelled(SapwoodError):
    """The request was cancelled by its caller."""


class BackendDied(SapwoodError):
    """The backend process ended or can't be reached."""


class OutOfSlots(SapwoodError):
    """Too few KV slots are free or evictable. Nothing was changed."""
