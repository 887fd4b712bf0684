"""Steering over the WebSocket: user input for a response in progress (`response.steer`), which a successor answers.

The response in progress is not cut: when it is complete, a successor with its settings continues it with the queued input. If it
ends with calls of tools that the client runs, the input stays queued (`response.steer.pending`) and precedes the input of the
request that brings their results. Input that no successor took comes back in `response.steer.failed`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from antiphon.errors import WireError
from antiphon.http.body import Hold

MAX_QUEUED = 16
"""How much input may be queued for one response."""

Failure: TypeAlias = Literal[
    "response_not_found",
    "invalid_input",
    "steering_not_supported",
    "too_many_pending_steers",
    "response_already_completed",
    "response_not_active",
    "successor_creation_failed",
]

_CONTENT_TYPES = ("input_text", "input_image", "input_file")
_RESULTS: Mapping[str, str] = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "computer_call": "computer_call_output",
    "shell_call": "shell_call_output",
    "local_shell_call": "local_shell_call_output",
    "apply_patch_call": "apply_patch_call_output",
}
"""The item that answers a call of a tool that the client runs."""
_NOT_INHERITED = ("input", "previous_response_id", "type", "generate")


class Steer(Struct, frozen=True):
    """Queued input as the client sent it, not parsed, which would take many times its size. `hold` counts it.

    `id` is empty if it was not accepted.
    """

    response_id: str
    given: msgspec.Raw
    hold: Hold
    id: str = ""

    def accepted(self, number: int) -> dict[str, Any]:
        """The event that acknowledges it."""
        return {"type": "response.steer.accepted", "sequence_number": number, "steer": self._reference}

    def pending(self, number: int, required: list[dict[str, Any]]) -> dict[str, Any]:
        """The event that says which results it waits for."""
        return {
            "type": "response.steer.pending",
            "sequence_number": number,
            "steer": self._reference,
            "reason": "waiting_for_required_input",
            "required_input": required,
        }

    def failed(self, number: int, code: Failure, message: str) -> dict[str, Any]:
        """The event that returns it."""
        steer = {"previous_response_id": self.response_id, "input": self.given, **({"id": self.id} if self.id else {})}
        error = {"type": "invalid_request_error", "code": code, "message": message}
        return {"type": "response.steer.failed", "sequence_number": number, "steer": steer, "error": error}

    @property
    def _reference(self) -> dict[str, Any]:
        return {"id": self.id, "previous_response_id": self.response_id}


def read_steer(event: Mapping[str, msgspec.Raw], hold: Hold) -> Steer:
    """What an event brings, not checked yet."""
    response_id = msgspec.json.decode(event.get("previous_response_id", b"null"))
    return Steer(response_id if isinstance(response_id, str) else "", event.get("input", msgspec.Raw(b"null")), hold)


def check_steer(event: Mapping[str, msgspec.Raw], steer: Steer) -> None:
    """Raises `WireError` for an event that cannot steer a response."""
    if not steer.response_id:
        raise WireError("previous_response_id: name the response to steer")
    if unknown := sorted(event.keys() - {"type", "previous_response_id", "input"}):
        raise WireError(f"{unknown[0]}: not a field of response.steer; send previous_response_id and input")
    given = msgspec.json.decode(steer.given)
    if not given or not isinstance(given, str | list):
        raise WireError("input: expected text, or a list of messages")
    for index, item in enumerate(_as_items(given)):
        _check_message(f"input[{index}]", item)


def _as_items(given: Any) -> Any:
    return [{"type": "message", "role": "user", "content": given}] if isinstance(given, str) else given


def _check_message(path: str, item: Any) -> None:
    if not isinstance(item, dict) or item.get("type", "message") != "message" or item.get("role") != "user":
        raise WireError(f"{path}: only messages of the user can steer; send results with response.create")
    content = item.get("content")
    parts = [{"type": "input_text", "text": content}] if isinstance(content, str) else content
    kinds = [part.get("type") if isinstance(part, dict) else None for part in parts] if isinstance(parts, list) else []
    if not kinds or any(kind not in _CONTENT_TYPES for kind in kinds):
        raise WireError(f"{path}.content: expected text, or parts of type {', '.join(_CONTENT_TYPES)}")


def required_results(output: list[Any]) -> list[dict[str, Any]]:
    """The results that the client owes for the calls of an output, without their content."""
    required: list[dict[str, Any]] = []
    for item in output:
        kind = _RESULTS.get(str(item.get("type"))) if isinstance(item, dict) else None
        if kind == "function_call_output":
            required.append({"type": kind, "call_id": item.get("call_id"), "name": item.get("name")})
        elif kind is not None:
            required.append({"type": kind, "call_id": item.get("call_id")})
        elif isinstance(item, dict) and item.get("type") == "mcp_approval_request":
            required.append({"type": "mcp_approval_response", "approval_request_id": item.get("id")})
    return required


def inherited_settings(event: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a request that its successor has too."""
    return {name: value for name, value in event.items() if name not in _NOT_INHERITED}


def successor(settings: Mapping[str, Any], response_id: str, steers: list[Steer]) -> dict[str, Any]:
    """The request that continues a response with the queued input, with the settings of the one that created it."""
    event = {**settings, "type": "response.create", "previous_response_id": response_id}
    return with_steers(event, steers)


def with_steers(event: Mapping[str, Any], steers: list[Steer]) -> dict[str, Any]:
    """A request of the client with the queued input before its own."""
    queued = [item for steer in steers for item in _as_items(msgspec.json.decode(steer.given))]
    own = _as_items(event.get("input"))
    return {**event, "input": [*queued, *(own if isinstance(own, list) else [])]}
