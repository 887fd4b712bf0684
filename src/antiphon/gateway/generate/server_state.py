"""Refusing requests that only another server can answer, because a part of the conversation is there.

A Responses `conversation` or `prompt`, an Anthropic `thread` that is continued and Gemini's `cachedContent` name what the
provider of that format has. A model of another format would answer without the conversation, so the request is refused, in the
client's format; the official Anthropic client then sends the whole history again. (`previous_response_id` is different: the
gateway has the responses that it translated.)
"""

from __future__ import annotations

from antiphon.providers.engine.reply import UpstreamFailed
from antiphon.providers.routes import Target
from antiphon.repair.server_state import server_history_field
from antiphon.wire.output import ProviderError
from antiphon.wire.request import ModelRequest

_RESPONSES = "openai-responses"
_ADVICE = {
    "conversation": "send the earlier items in input, or continue with previous_response_id",
    "prompt": "send the instructions and messages of the template in the request",
    "thread": "send the whole history in messages",
    "cachedContent": "send the cached contents in contents",
}
_THREAD_NOT_FOUND = {"anthropic": {"error": {"details": {"error_code": "thread_not_found"}}}}


def check_server_state(request: ModelRequest, client_format: str, target: Target) -> None:
    """Raises `UpstreamFailed` if the request needs what only a server of the client's format has."""
    field = server_history_field(request, client_format)
    if field not in _ADVICE:
        field = ""
    if not field and client_format == _RESPONSES and (request.native or {}).get(_RESPONSES, {}).get("prompt"):
        field = "prompt"
    if not field:
        return
    message = f"{field}: the provider of {target} does not have what this refers to; {_ADVICE[field]}"
    native = _THREAD_NOT_FOUND if field == "thread" else None
    raise UpstreamFailed(ProviderError(message, "invalid_request", 400, param=field, native=native))
