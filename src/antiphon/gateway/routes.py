"""Path and method to `Endpoint`: the format and the action of a path.

Both listeners have the same routes. The path decides the format of everything that is returned, errors included; only where
several clients share a path (`/v1/models`) do the headers decide.
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
    "cancel_response",
    "list_items",
    "health",
    "ready",
    "metrics",
    "status",
    "list_credentials",
    "switch_credential",
]


class Endpoint(Struct, frozen=True):
    """The target of a request. `name` is the model or id in the path; `stream` is set where the path requests one."""

    action: Action
    format: str = ""
    resource: str = ""
    stream: bool | None = None


class NoRoute(Struct, frozen=True):
    """No such path (`allowed` empty), or a method that is not allowed there."""

    allowed: tuple[str, ...] = ()


_CHAT, _RESPONSES, _ANTHROPIC, _GEMINI = "openai-chat", "openai-responses", "anthropic", "gemini"

_STATIC_ROUTES: dict[str, dict[str, Endpoint]] = {
    "/chat/completions": {"POST": Endpoint("generate", _CHAT)},
    "/responses": {"POST": Endpoint("generate", _RESPONSES)},
    "/messages": {"POST": Endpoint("generate", _ANTHROPIC)},
    "/messages/count_tokens": {"POST": Endpoint("count", _ANTHROPIC)},
    "/embeddings": {"POST": Endpoint("embed", _CHAT)},
    "/models": {"GET": Endpoint("list_models")},
    "/healthz": {"GET": Endpoint("health")},
    "/readyz": {"GET": Endpoint("ready")},
    "/metrics": {"GET": Endpoint("metrics")},
    "/status": {"GET": Endpoint("status")},
    "/credentials": {"GET": Endpoint("list_credentials"), "POST": Endpoint("switch_credential")},
}
_GEMINI_CALL = re.compile(r"(?:/v1(?:beta|alpha)?)?/(?:models|tunedModels)/(?P<name>[^:]+):(?P<verb>\w+)")
_GEMINI_MODELS = re.compile(r"/v1(?:beta|alpha)/models(?:/(?P<name>[^:]+))?")
_MODEL = re.compile(r"(?:/v1)?/models/(?P<name>.+)")
_RESPONSE = re.compile(r"(?:/v1)?/responses/(?P<name>[^/]+)(?P<part>/input_items|/cancel)?")
_GEMINI_VERBS: dict[str, Endpoint] = {
    "generateContent": Endpoint("generate", _GEMINI, stream=False),
    "streamGenerateContent": Endpoint("generate", _GEMINI, stream=True),
    "countTokens": Endpoint("count", _GEMINI),
}


_GENERATE_ROUTES: dict[tuple[str, str], Endpoint] = {
    ("POST", start + path): methods["POST"]
    for path, methods in _STATIC_ROUTES.items()
    for start in ("", "/v1")
    if "POST" in methods and methods["POST"].action == "generate"
}
"""The most frequent endpoints, by method and path."""


def match_route(method: str, path: str, headers: Mapping[str, str]) -> Endpoint | NoRoute:
    """The endpoint of a request."""
    if endpoint := _GENERATE_ROUTES.get((method, path)):
        return endpoint
    method = "GET" if method == "HEAD" else method
    path = path.rstrip("/") or "/"
    methods = _STATIC_ROUTES.get(path.removeprefix("/v1") or "/") or _match_parametrized(path)
    if not methods:
        return NoRoute()
    endpoint = methods.get(method)
    if endpoint is None:
        return NoRoute(tuple(methods))
    if not endpoint.format and endpoint.action in ("list_models", "get_model"):
        return Endpoint(endpoint.action, _format_from_headers(headers), endpoint.resource)
    return endpoint


def error_format_for_path(path: str) -> str:
    """The format in which clients of that path understand errors."""
    endpoint = match_route("POST", path, {})
    return endpoint.format if isinstance(endpoint, Endpoint) else ""


def is_chat_path(path: str) -> bool:
    """Whether a path belongs to the chat, which has its own routes. `/chat/completions` does not."""
    return path in ("/", "/chat", "/chat/") or path.startswith(("/chat/page/", "/chat/api/"))


def _match_parametrized(path: str) -> dict[str, Endpoint]:
    """Endpoints whose path contains a name."""
    if (match := _GEMINI_CALL.fullmatch(path)) and (endpoint := _GEMINI_VERBS.get(match["verb"])):
        return {"POST": Endpoint(endpoint.action, endpoint.format, match["name"], endpoint.stream)}
    if match := _GEMINI_MODELS.fullmatch(path):
        name = match["name"]
        return {"GET": Endpoint("get_model", _GEMINI, name) if name else Endpoint("list_models", _GEMINI)}
    if match := _MODEL.fullmatch(path):
        return {"GET": Endpoint("get_model", "", match["name"])}
    if match := _RESPONSE.fullmatch(path):
        if match["part"] == "/input_items":
            return {"GET": Endpoint("list_items", _RESPONSES, match["name"])}
        if match["part"] == "/cancel":
            return {"POST": Endpoint("cancel_response", _RESPONSES, match["name"])}
        return {
            "GET": Endpoint("get_response", _RESPONSES, match["name"]),
            "DELETE": Endpoint("delete_response", _RESPONSES, match["name"]),
        }
    return {}


def _format_from_headers(headers: Mapping[str, str]) -> str:
    """The client's format, where the path does not determine it."""
    if "anthropic-version" in headers or ("x-api-key" in headers and "authorization" not in headers):
        return _ANTHROPIC
    return _GEMINI if "x-goog-api-key" in headers else _CHAT
