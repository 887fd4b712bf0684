"""`ChatRequest`: a request to the chat's API with its owner and its decoded body."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import Struct

from antiphon.errors import (
    AntiphonError,
    PlanChanged,
    StoreFull,
    StoreLocked,
    UnknownConversation,
    UnknownPlan,
    WriterConflict,
)
from antiphon.http.messages import ClientRequest, Response
from antiphon.json_text import NOT_JSON
from antiphon_chat.shared.conversations.changes import TextTooLong
from antiphon_chat.shared.mcp.servers import UnconfirmedCommand
from antiphon_chat.shared.uploads import UnsupportedFile, UploadTooLarge
from antiphon_gateway.access.client_keys import ClientKey

if TYPE_CHECKING:
    from collections.abc import Mapping

    from antiphon.history import ConversationInfo, HistoryStore
    from antiphon_chat.page.live_conversation import LiveConversation
    from antiphon_chat.page.services import ChatServices

T = TypeVar("T")

_LARGEST = 2**53


class ChatRequest(Struct, frozen=True):
    """A request to the chat, the key it came with, and the id in its path, if it has one."""

    request: ClientRequest
    key: ClientKey
    chat: ChatServices
    id: str = ""
    name: str = ""

    @property
    def owner(self) -> str:
        """The owner of the conversations."""
        return self.key.name

    @property
    def query(self) -> Mapping[str, str]:
        return self.request.query

    @property
    def store(self) -> HistoryStore:
        return self.chat.conversations.store

    async def open(self) -> LiveConversation:
        """The conversation in its path, with entries that others appended since."""
        return await self.chat.conversations.open(self.id, self.owner)

    async def info(self) -> ConversationInfo:
        """The facts about the conversation in its path, if it is this client's."""
        return await self.chat.conversations.info(self.id, self.owner)

    def read(self, kind: type[T]) -> T:
        """The decoded body. Raises `ApiError` with the problem and its location."""
        try:
            return msgspec.json.decode(self.request.body or b"{}", type=kind)
        except NOT_JSON as error:
            raise ApiError(f"the body cannot be read: {error}") from error

    def number(self, name: str, default: Any = None, *, most: int = _LARGEST) -> Any:
        """A number from the query."""
        written = self.query.get(name)
        return default if written is None else parse_int(written, name, most)


def parse_int(written: str, name: str, most: int = _LARGEST) -> int:
    """A number from text, from 0 to `most`."""
    if not (written.isascii() and written.isdigit() and len(written) <= 16) or int(written) > most:
        raise ApiError(f"{name} is a number from 0 to {most}, not {written[:40]!r}")
    return int(written)


_STATUSES: tuple[tuple[type[AntiphonError], int, str], ...] = (
    (UnknownConversation, 404, "unknown_conversation"),
    (UnknownPlan, 404, "unknown_plan"),
    (PlanChanged, 409, "plan_changed"),
    (WriterConflict, 409, "conflict"),
    (UnconfirmedCommand, 409, "unconfirmed"),
    (StoreLocked, 503, "busy"),
    (StoreFull, 507, "full"),
    (UploadTooLarge, 413, "too_large"),
    (TextTooLong, 413, "too_large"),
    (UnsupportedFile, 415, "unsupported_media"),
    (AntiphonError, 400, "invalid"),
)
"""The first match decides."""


class ApiError(AntiphonError):
    """A refused request, with its HTTP status and an error code."""

    def __init__(self, message: str, status: int = 400, code: str = "invalid", **headers: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


def error_response(error: AntiphonError) -> Response:
    """The response for an error."""
    if isinstance(error, ApiError):
        return _answer(str(error), error.status, error.code, error.headers)
    status, code = next((status, code) for kind, status, code in _STATUSES if isinstance(error, kind))
    return _answer(str(error), status, code)


def _answer(message: str, status: int, code: str, headers: dict[str, str] | None = None) -> Response:
    return Response.json({"error": {"message": message, "code": code}}, status, headers)
