"""The formats of the suite, by name. Each is a module with the functions of `Format`."""

from __future__ import annotations

from typing import Any, Protocol

from antiphon_devtools.conform.conversation import Answer, Contents, Dialogue, Event, Reply
from antiphon_devtools.conform.formats import anthropic, gemini, gemini_interactions, openai_chat, openai_responses
from antiphon_devtools.conform.formats.endpoint import Endpoint


class Format(Protocol):
    """One API from both ends."""

    name: str
    endpoint: Endpoint

    def write_request(self, dialogue: Dialogue, model: str, streams: bool) -> dict[str, Any]: ...

    def read_request(self, body: dict[str, Any]) -> Contents: ...

    def write_answer(self, answer: Answer, model: str) -> dict[str, Any]: ...

    def write_events(self, answer: Answer, model: str, *, has_usage: bool = True) -> list[bytes]: ...

    def cut_places(self, events: list[bytes]) -> int:
        """How many events at most may arrive without the answer being complete."""

    def write_error(self, status: int, message: str) -> dict[str, Any]: ...

    def error_event(self, message: str) -> bytes:
        """An error inside a stream."""

    def read_answer(self, body: dict[str, Any]) -> Reply: ...

    def read_events(self, events: list[Event]) -> Reply: ...

    def error_problems(self, body: Any) -> list[str]:
        """What is wrong with the shape of an error body."""


FORMATS: dict[str, Format] = {
    "openai-chat": openai_chat,
    "openai-responses": openai_responses,
    "anthropic": anthropic,
    "gemini": gemini,
    "gemini-interactions": gemini_interactions,
}
