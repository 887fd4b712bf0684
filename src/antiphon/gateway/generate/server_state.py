"""Refusing requests that only another server can answer, because a part of the conversation is there, or because only a model
of that format can do it.

A Responses `conversation` or `prompt`, an Anthropic `thread` that is continued and Gemini's `cachedContent` name what the
provider of that format has. A model of another format would answer without the conversation, so the request is refused, in the
client's format; the official Anthropic client then sends the whole history again. (`previous_response_id` is different: the
gateway has the responses that it translated.) Completions may ask for what no chat model does, such as `suffix`.
"""

from __future__ import annotations

from collections.abc import Mapping

from antiphon.providers.engine.reply import UpstreamFailed
from antiphon.providers.routes import Target
from antiphon.wire.clients import COMPLETIONS, OLLAMA_GENERATE
from antiphon.wire.output import ProviderError
from antiphon.wire.request import ModelRequest, server_state

_ADVICE = {
    "conversation": "send the earlier items in input, or continue with previous_response_id",
    "prompt": "send the instructions and messages of the template in the request",
    "thread": "send the whole history in messages",
    "cachedContent": "send the cached contents in contents",
}
_CHAT_CANNOT: Mapping[str, Mapping[str, str]] = {
    COMPLETIONS: {
        "prompt": "send one prompt as text; token ids and lists of prompts need a model that serves completions itself",
        "echo": "leave it out and put the prompt before the text; only a model that serves completions itself repeats it",
        "suffix": "leave it out; only a model that serves completions itself can fill in the middle",
    },
    OLLAMA_GENERATE: {
        "suffix": "leave it out; a chat model cannot fill in the middle",
        "raw": "leave it out and send the prompt without a template; a chat model gets messages",
        "context": "send the earlier turns to /api/chat; token ids of another server mean nothing to this model",
    },
}
"""What chat models cannot do, with what to send instead."""
_THREAD_NOT_FOUND = {"anthropic": {"error": {"details": {"error_code": "thread_not_found"}}}}


def check_server_state(request: ModelRequest, client_format: str, target: Target) -> None:
    """Raises `UpstreamFailed` if the request needs what only a server of the client's format has."""
    extras = (request.native or {}).get(client_format)
    if not extras:
        return
    for name, advice in _CHAT_CANNOT.get(client_format, {}).items():
        if extras.get(name):
            message = f"{name}: {target} is a chat model and does not support this; {advice}"
            raise UpstreamFailed(ProviderError(message, "invalid_request", 400, param=name))
    unresolved = {name: value for name, value in extras.items() if name != "previous_response_id"}
    field = server_state(ModelRequest(native={client_format: unresolved}), client_format)
    if field is None:
        return
    message = f"{field}: the provider of {target} does not have what this refers to; {_ADVICE[field]}"
    native = _THREAD_NOT_FOUND if field == "thread" else None
    raise UpstreamFailed(ProviderError(message, "invalid_request", 400, param=field, native=native))
