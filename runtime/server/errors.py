"""From exceptions to HTTP: a status and OpenAI's nested error body. What each API calls its errors is the API's own."""

from __future__ import annotations

import re
from typing import Any

import msgspec
from starlette.responses import Response

from sapwood.errors import (
    BackendDied,
    Cancelled,
    DeadlineExceeded,
    GrammarError,
    InvalidRequest,
    OutOfSlots,
    Overloaded,
    SapwoodError,
)


class ApiError(SapwoodError):
    """A refusal with an HTTP status. `param` names the field at fault, `code` is for programs."""

    def __init__(self, status: int, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.param = param
        self.code = code


def invalid(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    """A 400 that says which field is wrong and what to write instead."""
    return ApiError(400, message, param=param, code=code)


class Refusal(msgspec.Struct, frozen=True):
    """An error as HTTP says it."""

    status: int
    type: str
    message: str
    param: str | None = None
    code: str | None = None

    def body(self) -> dict[str, Any]:
        """OpenAI's layout: {"error": {"message", "type", "param", "code"}}."""
        fields = {"message": self.message, "type": self.type, "param": self.param, "code": self.code}
        return {"error": fields}


STATUS: dict[type[SapwoodError], tuple[int, str | None]] = {
    GrammarError: (400, "invalid_grammar"),
    InvalidRequest: (400, None),
    Overloaded: (429, "overloaded"),
    DeadlineExceeded: (408, "deadline_exceeded"),
    Cancelled: (499, "cancelled"),
    BackendDied: (503, "backend_unavailable"),
    OutOfSlots: (503, "out_of_slots"),
}
TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    408: "timeout_error",
    499: "cancelled",
}


def refusal_of(error: SapwoodError) -> Refusal:
    """What to answer for an exception."""
    if isinstance(error, ApiError):
        return Refusal(error.status, _type(error.status), str(error), error.param, error.code)
    for kind, (status, code) in STATUS.items():
        if isinstance(error, kind):
            message, param = str(error), None
            if isinstance(error, GrammarError) and error.where is not None:
                message = f"{message} (at {error.where!r})"
            if isinstance(error, BackendDied):
                message = f"the backend died and is being started again; try again in a moment ({message})"
            return Refusal(status, _type(status), message, param, code)
    return Refusal(500, "server_error", str(error))


def _type(status: int) -> str:
    return TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")


class JsonResponse(Response):
    """A JSON answer, encoded by msgspec."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return msgspec.json.encode(content)


def error_response(refusal: Refusal) -> JsonResponse:
    """The answer to a request that was refused before anything was sent."""
    headers = {"Retry-After": "1"} if refusal.status in (429, 503) else None
    return JsonResponse(refusal.body(), status_code=refusal.status, headers=headers)


_PATH = re.compile(r"^(.*?)(?: - at `\$\.?(.*)`)?$", re.DOTALL)


def of_validation(error: msgspec.ValidationError) -> ApiError:
    """msgspec's "Expected `int`, got `str` - at `$.max_tokens`" as a 400 that names the field."""
    match = _PATH.match(str(error))
    message, path = match.groups() if match else (str(error), None)
    message = message[:1].lower() + message[1:]
    return invalid(f"{path}: {message}" if path else message, path or None)
