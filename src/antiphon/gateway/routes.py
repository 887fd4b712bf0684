"""`Door`: which path speaks which format, and what it asks for.

Both listeners have the same doors. A path decides the format of everything that goes back, errors included; only where several
clients share a path (`/v1/models`) do the headers decide.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal, TypeAlias

from msgspec import Struct

Action: TypeAlias = Literal[
    "generate",
    "count",
    "embed",
    "list_models",
    "get_model",
    "get_response",
    "delete_response",
    "list_items",
    "health",
    "ready",
    "metrics",
    "status",
]


class Door(Struct, frozen=True):
    """What a request asks for. `name` is the model or id in the path; `streams` says so where the path does."""

    action: Action
    format: str = ""
    name: str = ""
    streams: bool | None = None


class NoDoor(Struct, frozen=True):
    """A path that leads nowhere (`allowed` empty), or a method that is not allowed there."""

    allowed: tuple[str, ...] = ()


_CHAT, _RESPONSES, _ANTHROPIC, _GEMINI = "openai-chat", "openai-responses", "anthropic", "gemini"

_PLAIN: dict[str, dict[str, Door]] = {
    "/chat/completions": {"POST": Door("generate", _CHAT)},
    "/responses": {"POST": Door("generate", _RESPONSES)},
    "/messages": {"POST": Door("generate", _ANTHROPIC)},
    "/messages/count_tokens": {"POST": Door("count", _ANTHROPIC)},
    "/embeddings": {"POST": Door("embed", _CHAT)},
    "/models": {"GET": Door("list_models")},
    "/healthz": {"GET": Door("health")},
    "/readyz": {"GET": Door("ready")},
    "/metrics": {"GET": Door("metrics")},
    "/status": {"GET": Door("status")},
}
_GEMINI_CALL = re.compile(r"(?:/v1(?:beta|alpha)?)?/(?:models|tunedModels)/(?P<name>[^:]+):(?P<verb>\w+)")
_GEMINI_MODELS = re.compile(r"/v1(?:beta|alpha)/models(?:/(?P<name>[^:]+))?")
_MODEL = re.compile(r"(?:/v1)?/models/(?P<name>.+)")
_RESPONSE = re.compile(r"(?:/v1)?/responses/(?P<name>[^/]+)(?P<items>/input_items)?")
_VERBS: dict[str, Door] = {
    "generateContent": Door("generate", _GEMINI, streams=False),
    "streamGenerateContent": Door("generate", _GEMINI, streams=True),
    "countTokens": Door("count", _GEMINI),
}


_GENERATING: dict[tuple[str, str], Door] = {
    ("POST", start + path): doors["POST"]
    for path, doors in _PLAIN.items()
    for start in ("", "/v1")
    if "POST" in doors and doors["POST"].action == "generate"
}
"""What nearly everybody asks for, by method and path."""


def door_of(method: str, path: str, headers: Mapping[str, str]) -> Door | NoDoor:
    """Where a request leads."""
    if door := _GENERATING.get((method, path)):
        return door
    method = "GET" if method == "HEAD" else method
    path = path.rstrip("/") or "/"
    doors = _PLAIN.get(path.removeprefix("/v1") or "/") or _named(path)
    if not doors:
        return NoDoor()
    door = doors.get(method)
    if door is None:
        return NoDoor(tuple(doors))
    if not door.format and door.action in ("list_models", "get_model"):
        return Door(door.action, _asked_by(headers), door.name)
    return door


def is_chat(path: str) -> bool:
    """Whether a path leads to the chat, which has doors of its own. `/chat/completions` does not."""
    return path in ("/", "/chat", "/chat/") or path.startswith(("/chat/page/", "/chat/api/"))


def _named(path: str) -> dict[str, Door]:
    """Doors whose path holds a name."""
    if (found := _GEMINI_CALL.fullmatch(path)) and (door := _VERBS.get(found["verb"])):
        return {"POST": Door(door.action, door.format, found["name"], door.streams)}
    if found := _GEMINI_MODELS.fullmatch(path):
        name = found["name"]
        return {"GET": Door("get_model", _GEMINI, name) if name else Door("list_models", _GEMINI)}
    if found := _MODEL.fullmatch(path):
        return {"GET": Door("get_model", "", found["name"])}
    if found := _RESPONSE.fullmatch(path):
        if found["items"]:
            return {"GET": Door("list_items", _RESPONSES, found["name"])}
        return {
            "GET": Door("get_response", _RESPONSES, found["name"]),
            "DELETE": Door("delete_response", _RESPONSES, found["name"]),
        }
    return {}


def _asked_by(headers: Mapping[str, str]) -> str:
    """Whose client asks, where the path does not tell."""
    if "anthropic-version" in headers or ("x-api-key" in headers and "authorization" not in headers):
        return _ANTHROPIC
    return _GEMINI if "x-goog-api-key" in headers else _CHAT
