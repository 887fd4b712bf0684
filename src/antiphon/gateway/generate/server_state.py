"""Refusing requests that only another server can answer, because a part of the conversation is there.

A Responses `conversation` or `prompt`, an Anthropic `thread` that is continued and Gemini's `cachedContent` name what the
provider of that format has. A model of another format would answer without the conversation, so the request is refused, in the
client's format; the official Anthropic client then sends the whole history again. (`previous_response_id` is different: the
gateway has the responses that it translated.)
"""

from __future__ import annotations

from antiphon.providers.engine.reply import UpstreamFailed
from antiphon.providers.routes import Target
from antiphon.wire.output import ProviderError
from antiphon.wire.request import ModelRequest, server_state

_ADVICE = {
    "conversation": "send the earlier items in input, or continue with previous_response_id",
    "prompt": "send the instructions and messages of the template in the request",
    "thread": "send the whole history in messages",
    "cachedContent": "send the cached contents in contents",
}
_THREAD_NOT_FOUND = {"anthropic": {"error": {"details": {"error_code": "thread_not_found"}}}}


def check_server_state(request: ModelRequest, client_format: str, target: Target) -> None:
    """Raises `UpstreamFailed` if the request needs what only a server of the client's format has."""
    extras = (request.native or {}).get(client_format)
    if not extras:
        return
    unresolved = {name: value for name, value in extras.items() if name != "previous_response_id"}
    field = server_state(ModelRequest(native={client_format: unresolved}), client_format)
    if field is None:
        return
    message = f"{field}: the provider of {target} does not have what this refers to; {_ADVICE[field]}"
    native = _THREAD_NOT_FOUND if field == "thread" else None
    raise UpstreamFailed(ProviderError(message, "invalid_request", 400, param=field, native=native))
