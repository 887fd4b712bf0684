"""Answers that only their provider has: get, follow, cancel, delete and list them there.

`asks_upstream` completes the handlers of stored answers: what the gateway does not have itself, and remembers to have come from
a provider (`UpstreamAnswers`), is asked there, with the key that created it. The answer comes back as the provider wrote it,
except that `model` is the name that the client asked for, as in the answer to its first request.
"""

from __future__ import annotations

from functools import wraps

from msgspec import structs

from antiphon.errors import TransportError, UnknownResponse
from antiphon.http.body import read_bounded
from antiphon.http.messages import Response
from antiphon.providers.engine.forward import ForwardedRequest
from antiphon.providers.engine.provider import Provider
from antiphon.providers.engine.reply import StreamReply
from antiphon.providers.engine.response_reader import error_from_transport
from antiphon.wire import formats
from antiphon_gateway.endpoints.pass_through import api_of, forward, forward_url
from antiphon_gateway.errors import provider_error_response
from antiphon_gateway.generate.answer_model import with_requested_model
from antiphon_gateway.generate.channels import Same
from antiphon_gateway.generate.frame import StreamFrame
from antiphon_gateway.generate.relay import Relay
from antiphon_gateway.runtime.metered import Handler, MeteredRequest
from antiphon_gateway.state.upstream_answers import UpstreamAnswer
from antiphon_gateway.threads import STATE

_MAX_BYTES = 256 * 1024 * 1024


def asks_upstream(handler: Handler) -> Handler:
    """The handler, which passes on a request for an answer that only its provider has."""

    @wraps(handler)
    async def handle(context: MeteredRequest) -> Response:
        try:
            return await handler(context)
        except UnknownResponse:
            known = await STATE.run(context.services.upstream_answers.get, context.endpoint.resource, context.key.name)
            provider = context.loaded.providers.get(known.provider) if known is not None else None
            if known is None or provider is None or provider.format != context.endpoint.format:
                raise
        return await _ask(context, known, provider)

    return handle


async def _ask(metered: MeteredRequest, known: UpstreamAnswer, provider: Provider) -> Response:
    request, format_name = metered.request, metered.endpoint.format
    prepared = ForwardedRequest(
        provider,
        "",
        forward_url(provider, api_of(format_name), request),
        (request.body,) if request.body else (),
        {},
        method=request.method,
        preferred_key=known.credential,
    )
    response = await forward(metered, prepared)
    if response.status >= 400 or not isinstance(response.body, Relay):
        return response
    reply = response.body.reply
    content_type = response.headers.get("content-type", "application/json")
    if content_type.startswith("text/event-stream"):
        headers = {"content-type": content_type, "cache-control": "no-cache"}
        return Response(headers=headers, body=_events(metered, reply, provider, known.model))
    try:
        body = await read_bounded(reply.response, _MAX_BYTES)
    except TransportError as lost:
        metered.record.error = error_from_transport(lost)
        return provider_error_response(format_name, metered.record.error, provider.name)
    finally:
        await reply.aclose()
    if request.method == "DELETE":
        await STATE.run(metered.services.upstream_answers.forget, metered.endpoint.resource, metered.key.name)
    if not request.path.rstrip("/").endswith("/input_items"):
        body = with_requested_model(format_name, body, known.model)
    return Response(headers={"content-type": content_type}, body=body)


def _events(metered: MeteredRequest, reply: StreamReply, provider: Provider, model: str) -> Relay:
    """The events of a stream that the client follows. What was used for it was charged with its first request."""
    record, wire = metered.record, formats[metered.endpoint.format]
    frame = StreamFrame(wire, model, metered.loaded.config.gateway.keep_alive_seconds)
    channel = Same(wire, model, structs.replace(record), frame, provider.scrub)
    return Relay(reply, channel, record, deadline=metered.request.deadline, on_end=metered.end, frame=frame)
