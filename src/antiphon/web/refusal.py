"""`Refused`: why a request to the chat is not answered, and the answer that says so."""

from __future__ import annotations

from antiphon.errors import (
    AntiphonError,
    PlanChanged,
    StoreFull,
    StoreLocked,
    UnknownConversation,
    UnknownPlan,
    WriterConflict,
)
from antiphon.gateway.http.messages import Answer

_STATUSES: tuple[tuple[type[AntiphonError], int, str], ...] = (
    (UnknownConversation, 404, "unknown_conversation"),
    (UnknownPlan, 404, "unknown_plan"),
    (PlanChanged, 409, "plan_changed"),
    (WriterConflict, 409, "conflict"),
    (StoreLocked, 503, "busy"),
    (StoreFull, 507, "full"),
    (AntiphonError, 400, "invalid"),
)
"""The first that fits decides."""


class Refused(AntiphonError):
    """A request that is not done, with its HTTP status and a word for programs."""

    def __init__(self, message: str, status: int = 400, code: str = "invalid", **headers: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


def refusal(error: AntiphonError) -> Answer:
    """The answer for what was refused."""
    if isinstance(error, Refused):
        return _answer(str(error), error.status, error.code, error.headers)
    status, code = next((status, code) for kind, status, code in _STATUSES if isinstance(error, kind))
    return _answer(str(error), status, code)


def _answer(message: str, status: int, code: str, headers: dict[str, str] | None = None) -> Answer:
    return Answer.json({"error": {"message": message, "code": code}}, status, headers)
