"""State that a request names: added to the request where the gateway has it, refused where only another server has it.

`previous_response_id`, `previous_interaction_id`, `conversation` and `item_reference` name what the gateway has stored;
`expand_state` puts it into the request. A Responses `prompt`, an Anthropic `thread` that is continued and Gemini's
`cachedContent` name what the provider of that format has. A model of another format would answer without it, so
`check_server_state` refuses the request, in the client's format; the official Anthropic client then sends the whole history
again. Completions may ask for what no chat model does, such as `suffix`; that is refused too.
"""

from __future__ import annotations

from collections.abc import Mapping

from antiphon.errors import WireError
from antiphon.providers.engine.reply import UpstreamFailed
from antiphon.providers.routes import Target
from antiphon.wire import formats
from antiphon.wire.inbound import COMPLETIONS, OLLAMA_GENERATE
from antiphon.wire.output import ProviderError
from antiphon.wire.request import ModelRequest, server_state
from antiphon_gateway.runtime.metered import MeteredRequest
from antiphon_gateway.state.continuing import FORMAT, continue_from, expand_compactions, previous_response_id

_ADVICE = {
    "conversation": "create it with POST /v1/conversations, or send the earlier items in input",
    "prompt": "send the instructions and messages of the template in the request",
    "thread": "send the whole history in messages",
    "cachedContent": "send the cached contents in contents",
    "previous_interaction_id": "send the earlier steps in input",
}
_CHAT_CANNOT: Mapping[str, Mapping[str, str]] = {
    COMPLETIONS: {
        "prompt": "send one prompt as text; token ids and lists of prompts need a model that serves completions itself",
        "echo": "leave it out and put the prompt before the text; only a model that serves completions itself repeats it",
        "suffix": "leave it out; only a model that serves completions itself can fill in the middle",
        "logprobs": "send an integer: how many of the most probable tokens to return with each token",
    },
    OLLAMA_GENERATE: {
        "suffix": "leave it out; a chat model cannot fill in the middle",
        "raw": "leave it out and send the prompt without a template; a chat model gets messages",
        "context": "send the earlier turns to /api/chat; token ids of another server mean nothing to this model",
    },
}
"""What chat models cannot do, with what to send instead."""
_THREAD_NOT_FOUND = {"anthropic": {"error": {"details": {"error_code": "thread_not_found"}}}}


def expand_state(asked: MeteredRequest, request: ModelRequest) -> ModelRequest:
    """The request with the earlier messages that it names. Raises `UnknownResponse` if they are not stored here."""
    services, owner, connection = asked.services, asked.key.name, asked.connection
    if asked.endpoint.format == FORMAT:
        request = expand_compactions(request)
    conversation = conversation_id(request)
    if conversation:
        if previous_response_id(request):
            raise WireError("previous_response_id and conversation cannot be used together; send one of them")
        items = services.conversations.items(conversation, owner)
        request = expand_compactions(continue_from(request, formats[FORMAT].read_request({"input": items}).messages))
    elif connection is not None:
        request = connection.expand(request) or request
    return services.answers.expand(request, owner=owner)


def conversation_id(request: ModelRequest) -> str:
    """The id of the conversation that a request belongs to; empty if there is none."""
    named = (request.native or {}).get(FORMAT, {}).get("conversation")
    given = named.get("id") if isinstance(named, dict) else named
    return given if isinstance(given, str) else ""


def check_server_state(request: ModelRequest, client_format: str, target: Target) -> None:
    """Raises `UpstreamFailed` if the request needs what only a server of the client's format has."""
    extras = (request.native or {}).get(client_format)
    if not extras:
        return
    for name, advice in _CHAT_CANNOT.get(client_format, {}).items():
        if extras.get(name):
            message = f"{name}: {target} is a chat model and does not support this; {advice}"
            raise UpstreamFailed(ProviderError(message, "invalid_request", 400, param=name))
    field = server_state(request, client_format)
    if field is None:
        return
    message = f"{field}: the provider of {target} does not have what this refers to; {_ADVICE[field]}"
    native = _THREAD_NOT_FOUND if field == "thread" else None
    raise UpstreamFailed(ProviderError(message, "invalid_request", 400, param=field, native=native))
