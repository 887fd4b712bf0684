"""Path and method to `Endpoint`: the format and the action of a path.

`ROUTES` is the only list of paths; docs/gateway/apis.md shows the same. Both listeners have the same routes. The path decides the
format of everything that is returned, errors included; only where several clients share a path (`/v1/models`) do the headers
decide. Paths that begin with `/v1` are served without it too, Gemini's under each of its versions, and all of them after the
prefixes that clients of Azure and of Anthropic-like hosts add.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Literal, TypeAlias

from msgspec import Struct, structs

Access: TypeAlias = Literal["client", "operator", "anyone", "probe"]
"""Who may ask. `anyone` and a `probe` need no key; on a gateway without keys a probe may come from another machine, too."""


class Endpoint(Struct, frozen=True):
    """The target of a request: what `app` answers by the name `action`.

    `resource` is the model or id in the path; `stream` is set where the path requests one.
    """

    action: str
    format: str = ""
    resource: str = ""
    stream: bool | None = None
    kind: str = ""
    """Which one, where an action and a format have several."""
    access: Access = "client"


class NoRoute(Struct, frozen=True):
    """No such path (`allowed` empty), or a method that is not allowed there."""

    allowed: tuple[str, ...] = ()


class Route(Struct, frozen=True):
    """One path with one method. `{model}`, `{name}` and `{id}` in the path (with the rest of it, if
    that is an `{item}`) become the endpoint's `resource`."""

    method: str
    path: str
    endpoint: Endpoint


_CHAT, _COMPLETIONS, _RESPONSES = "openai-chat", "openai-completions", "openai-responses"
_ANTHROPIC, _GEMINI, _INTERACTIONS = "anthropic", "gemini", "gemini-interactions"
_OLLAMA, _OLLAMA_GENERATE = "ollama", "ollama-generate"


def _passed(kind: str, format_name: str, *paths: str) -> tuple[Route, ...]:
    """Routes that are passed on: each path begins with its methods."""
    split = [path.rpartition(" ") for path in paths]
    return tuple(
        Route(method, path, Endpoint("pass", format_name, kind=kind))
        for methods, _, path in split
        for method in methods.split()
    )


ROUTES: tuple[Route, ...] = (
    Route("POST", "/v1/chat/completions", Endpoint("generate", _CHAT)),
    Route("POST", "/v1/completions", Endpoint("generate", _COMPLETIONS)),
    Route("POST", "/v1/embeddings", Endpoint("embed", _CHAT)),
    Route("POST", "/v1/responses", Endpoint("generate", _RESPONSES)),
    Route("GET", "/v1/responses", Endpoint("connect", _RESPONSES)),
    Route("POST", "/v1/responses/compact", Endpoint("compact", _RESPONSES)),
    Route("POST", "/v1/responses/input_tokens", Endpoint("count", _RESPONSES)),
    Route("GET", "/v1/responses/{id}", Endpoint("get_response", _RESPONSES)),
    Route("DELETE", "/v1/responses/{id}", Endpoint("delete_response", _RESPONSES)),
    Route("GET", "/v1/responses/{id}/input_items", Endpoint("list_items", _RESPONSES)),
    Route("POST", "/v1/responses/{id}/cancel", Endpoint("cancel_response", _RESPONSES)),
    Route("POST", "/v1/conversations", Endpoint("create_conversation", _RESPONSES)),
    Route("GET", "/v1/conversations/{id}", Endpoint("get_conversation", _RESPONSES)),
    Route("POST", "/v1/conversations/{id}", Endpoint("update_conversation", _RESPONSES)),
    Route("DELETE", "/v1/conversations/{id}", Endpoint("delete_conversation", _RESPONSES)),
    Route("POST", "/v1/conversations/{id}/items", Endpoint("add_conversation_items", _RESPONSES)),
    Route("GET", "/v1/conversations/{id}/items", Endpoint("list_conversation_items", _RESPONSES)),
    Route("GET", "/v1/conversations/{id}/items/{item}", Endpoint("get_conversation_item", _RESPONSES)),
    Route("DELETE", "/v1/conversations/{id}/items/{item}", Endpoint("delete_conversation_item", _RESPONSES)),
    Route("POST", "/v1/messages", Endpoint("generate", _ANTHROPIC)),
    Route("POST", "/v1/messages/count_tokens", Endpoint("count", _ANTHROPIC)),
    Route("POST", "/v1beta/models/{model}:generateContent", Endpoint("generate", _GEMINI, stream=False)),
    Route("POST", "/v1beta/models/{model}:streamGenerateContent", Endpoint("generate", _GEMINI, stream=True)),
    Route("POST", "/v1beta/models/{model}:countTokens", Endpoint("count", _GEMINI)),
    Route("POST", "/v1beta/models/{model}:embedContent", Endpoint("embed", _GEMINI)),
    Route("POST", "/v1beta/models/{model}:batchEmbedContents", Endpoint("embed", _GEMINI, kind="batch")),
    Route("GET", "/v1beta/models", Endpoint("list_models", _GEMINI)),
    Route("GET", "/v1beta/models/{model}", Endpoint("get_model", _GEMINI)),
    Route("POST", "/v1beta/interactions", Endpoint("generate", _INTERACTIONS)),
    Route("GET", "/v1beta/interactions/{id}", Endpoint("get_interaction", _INTERACTIONS)),
    Route("DELETE", "/v1beta/interactions/{id}", Endpoint("delete_interaction", _INTERACTIONS)),
    Route("POST", "/v1beta/interactions/{id}/cancel", Endpoint("cancel_interaction", _INTERACTIONS)),
    Route("POST", "/api/chat", Endpoint("generate", _OLLAMA)),
    Route("POST", "/api/generate", Endpoint("generate", _OLLAMA_GENERATE)),
    Route("POST", "/api/embed", Endpoint("embed", _OLLAMA)),
    Route("POST", "/api/embeddings", Endpoint("embed", _OLLAMA, kind="prompt")),
    Route("GET", "/api/tags", Endpoint("tags", _OLLAMA)),
    Route("POST", "/api/show", Endpoint("show", _OLLAMA)),
    Route("GET", "/api/ps", Endpoint("running", _OLLAMA)),
    Route("GET", "/api/version", Endpoint("version", _OLLAMA)),
    Route("GET", "/v1/models", Endpoint("list_models")),
    Route("GET", "/v1/models/{name}", Endpoint("get_model")),
    *_passed("files", "", "GET POST /v1/files", "GET DELETE /v1/files/{name}"),
    *_passed("uploads", _CHAT, "POST /v1/uploads", "POST /v1/uploads/{name}"),
    *_passed("batches", "", "GET POST /v1/batches", "GET POST DELETE /v1/batches/{name}"),
    *_passed("images", _CHAT, "POST /v1/images/{name}"),
    *_passed("audio", _CHAT, "POST /v1/audio/{name}"),
    *_passed("moderations", _CHAT, "POST /v1/moderations"),
    *_passed("vector_stores", _CHAT, "GET POST /v1/vector_stores", "GET POST DELETE /v1/vector_stores/{name}"),
    *_passed("rerank", _CHAT, "POST /v1/rerank", "POST /v2/rerank"),
    *_passed("batches", _ANTHROPIC, "GET POST /v1/messages/batches", "GET POST DELETE /v1/messages/batches/{name}"),
    *_passed("files", _GEMINI, "POST PUT /upload/v1beta/files", "GET /v1beta/files", "GET DELETE /v1beta/files/{name}"),
    *_passed("batches", _GEMINI, "GET /v1beta/batches", "GET POST DELETE /v1beta/batches/{name}"),
    *_passed("batches", _GEMINI, "POST /v1beta/models/{model}:batchGenerateContent"),
    Route("GET", "/healthz", Endpoint("health", access="probe")),
    Route("GET", "/readyz", Endpoint("ready", access="probe")),
    Route("GET", "/metrics", Endpoint("metrics", access="operator")),
    Route("GET", "/status", Endpoint("status", access="operator")),
    Route("GET", "/status/page/{name}", Endpoint("status_page", access="anyone")),
    Route("GET", "/status/login", Endpoint("status_login_needed", access="anyone")),
    Route("POST", "/status/login", Endpoint("status_login", access="anyone")),
    Route("GET", "/credentials", Endpoint("list_credentials", access="operator")),
    Route("POST", "/credentials", Endpoint("switch_credential", access="operator")),
    Route("GET", "/admin/credentials", Endpoint("list_credentials", access="operator")),
    Route("POST", "/admin/credentials", Endpoint("switch_credential", access="operator")),
    Route("GET", "/admin/keys", Endpoint("list_keys", access="operator")),
    Route("POST", "/admin/keys", Endpoint("create_key", access="operator")),
    Route("GET", "/admin/keys/{id}", Endpoint("get_key", access="operator")),
    Route("PATCH", "/admin/keys/{id}", Endpoint("change_key", access="operator")),
    Route("DELETE", "/admin/keys/{id}", Endpoint("delete_key", access="operator")),
    Route("POST", "/admin/keys/{id}/disable", Endpoint("disable_key", access="operator")),
    Route("POST", "/admin/keys/{id}/enable", Endpoint("enable_key", access="operator")),
    Route("POST", "/admin/keys/{id}/rotate", Endpoint("rotate_key", access="operator")),
    Route("GET", "/admin/audit", Endpoint("audit", access="operator")),
    Route("GET", "/admin/spend", Endpoint("spend", access="operator")),
    Route("GET", "/v1/usage", Endpoint("usage")),
)
"""Every path. A path matches the first template that fits it."""

_PLACEHOLDERS = {
    "{model}": r"(?P<name>[^:]+)",
    "{name}": r"(?P<name>.+)",
    "{id}/items/{item}": r"(?P<name>[^/]+/items/[^/]+)",
    "{id}": r"(?P<name>[^/]+)",
}
_GEMINI_CALL = ("/v1beta/models/{model}:", r"(?:/v1(?:beta|alpha)?)?/(?:models|tunedModels)/(?P<name>[^:]+):")
_VERSIONS = (
    ("/upload/v1beta/", "/upload/v1(?:beta|alpha)?/"),
    ("/v1beta/interactions", r"(?:/v1(?:beta\d?|alpha)?)?/interactions"),
    ("/v1beta/", "(?:/v1beta|/v1alpha)/"),
    ("/v1/", "(?:/v1)?/"),
)
_DEPLOYMENT = re.compile(r"/openai/deployments/(?P<name>[^/]+)(?P<path>/.+)")
_PREFIXES = (("/openai/", _CHAT), ("/anthropic/", _ANTHROPIC))
"""Prefixes that clients of Azure and of hosts with several formats add, and the format where the path has none."""
_PREFIX_FORMATS = (
    ("/v1beta/", _GEMINI),
    ("/v1alpha/", _GEMINI),
    ("/upload/", _GEMINI),
    ("/api/", _OLLAMA),
    ("/v1/messages", _ANTHROPIC),
    ("/anthropic/", _ANTHROPIC),
    ("/v1/responses", _RESPONSES),
    ("/v1/conversations", _RESPONSES),
)
"""The formats of paths that are not served."""


def _pattern(path: str) -> str:
    start, expression = _GEMINI_CALL
    if path.startswith(start):
        return expression + re.escape(path.removeprefix(start))
    for version, expression in _VERSIONS:
        if path.startswith(version):
            start, path = expression, path.removeprefix(version)
            break
    else:
        start = ""
    for placeholder, expression in _PLACEHOLDERS.items():
        before, found, after = path.partition(placeholder)
        if found:
            return start + re.escape(before) + expression + re.escape(after)
    return start + re.escape(path)


def _grouped() -> Iterator[tuple[str, dict[str, Endpoint]]]:
    """Each path with its methods."""
    for path in dict.fromkeys(route.path for route in ROUTES):
        yield path, {route.method: route.endpoint for route in ROUTES if route.path == path}


_STATIC_ROUTES: dict[str, dict[str, Endpoint]] = {
    served: methods
    for path, methods in _grouped()
    if "{" not in path and "/v1beta/" not in path
    for served in (path, path.removeprefix("/v1") if path.startswith("/v1/") else f"/v1{path}")
}
_TEMPLATES = [
    (re.compile(_pattern(path)).fullmatch, methods) for path, methods in _grouped() if "{" in path or "/v1beta/" in path
]
_FORMAT_IN_HEADERS = ("list_models", "get_model", "pass")
"""Actions of paths that clients of several formats share."""


def match_route(method: str, path: str, headers: Mapping[str, str]) -> Endpoint | NoRoute:
    """The endpoint of a request."""
    methods = _STATIC_ROUTES.get(path) or _methods_of(path.rstrip("/") or "/")
    endpoint = methods.get("GET" if method == "HEAD" else method)
    if endpoint is None:
        return NoRoute(tuple(methods))
    if not endpoint.format and endpoint.action in _FORMAT_IN_HEADERS:
        return structs.replace(endpoint, format=_format_from_headers(headers))
    return endpoint


def error_format_for_path(path: str, headers: Mapping[str, str] | None = None) -> str:
    """The format in which clients of that path understand errors, whether it is served or not."""
    served = next((endpoint.format for endpoint in _methods_of(path.rstrip("/")).values() if endpoint.format), "")
    likely = next((name for start, name in _PREFIX_FORMATS if path.startswith(start)), "")
    return served or likely or _format_from_headers(headers or {})


def is_chat_path(path: str) -> bool:
    """Whether a path belongs to the chat, which has its own routes. `/chat/completions` does not."""
    return path in ("/", "/chat", "/chat/") or path.startswith(("/chat/page/", "/chat/api/"))


def _methods_of(path: str) -> dict[str, Endpoint]:
    """The endpoints of a path, by method; empty if it is not served."""
    if methods := _unprefixed(path):
        return methods
    if found := _DEPLOYMENT.fullmatch(path):  # Azure: the deployment is the model
        return _with(_unprefixed(found["path"]), resource=found["name"])
    for prefix, format_name in _PREFIXES:
        if path.startswith(prefix):
            methods = _unprefixed(path[len(prefix) - 1 :])
            return methods if any(each.format for each in methods.values()) else _with(methods, format=format_name)
    return {}


def _unprefixed(path: str) -> dict[str, Endpoint]:
    if methods := _STATIC_ROUTES.get(path):
        return methods
    for match, methods in _TEMPLATES:
        if found := match(path):
            name = found.groupdict().get("name")
            return _with(methods, resource=name) if name else methods
    return {}


def _with(methods: dict[str, Endpoint], **changes: str) -> dict[str, Endpoint]:
    return {method: structs.replace(endpoint, **changes) for method, endpoint in methods.items()}


def _format_from_headers(headers: Mapping[str, str]) -> str:
    """The client's format, where the path does not determine it."""
    if "anthropic-version" in headers or ("x-api-key" in headers and "authorization" not in headers):
        return _ANTHROPIC
    return _GEMINI if "x-goog-api-key" in headers else _CHAT
