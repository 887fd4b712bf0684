"""Answers that only their provider has: get, follow, cancel, delete and list them there.

`asks_upstream` completes the handlers of stored answers: what the gateway does not have itself, and remembers to have come from
a provider (`UpstreamAnswers`), is asked there, with the key that created it. The answer comes back as the provider wrote it,
except that `model` is the name that the client asked for, as in the answer to its first request.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import wraps

from antiphon.errors import TransportError, UnknownResponse
from antiphon.http.client.request import read_body
from antiphon.http.messages import Response, header_text
from antiphon.providers.engine.forward import ForwardedRequest
from antiphon.providers.engine.provider import Provider
from antiphon.providers.engine.reply import StreamReply, UpstreamFailed
from antiphon.providers.engine.response_reader import error_from_transport
from antiphon.wire import formats
from antiphon.wire.delta import Failed
from antiphon_gateway.endpoints.pass_through import api_of, forward_call, forward_url, passed_on_error
from antiphon_gateway.errors import provider_error_response
from antiphon_gateway.generate.answer_model import StreamModel, with_requested_model
from antiphon_gateway.generate.usage_scanner import EventBuffer
from antiphon_gateway.runtime.context import Handler, RequestContext
from antiphon_gateway.state.upstream_answers import UpstreamAnswer
from antiphon_gateway.threads import STATE

_MAX_BYTES = 256 * 1024 * 1024


def asks_upstream(handler: Handler) -> Handler:
    """The handler, which passes on a request for an answer that only its provider has."""

    @wraps(handler)
    async def handle(context: RequestContext) -> Response:
        try:
            return await handler(context)
        except UnknownResponse:
            known = await STATE.run(context.services.upstream_answers.get, context.endpoint.resource, context.key.name)
            provider = context.loaded.providers.get(known.provider) if known is not None else None
            if known is None or not isinstance(provider, Provider) or provider.format != context.endpoint.format:
                raise
        return await _ask(context, known, provider)

    return handle


async def _ask(context: RequestContext, known: UpstreamAnswer, provider: Provider) -> Response:
    request, format_name = context.request, context.endpoint.format
    prepared = ForwardedRequest(
        provider,
        "",
        forward_url(provider, api_of(format_name), request),
        (request.body,) if request.body else (),
        {},
        method=request.method,
        preferred_key=known.credential,
    )
    call = forward_call(prepared, context.report())
    try:
        reply = await call.reply()
    except UpstreamFailed as failure:
        return passed_on_error(format_name, provider, prepared.last_error, failure.error)
    finally:
        context.asked(provider.name, call.waiting_seconds)
    assert isinstance(reply, StreamReply), "nothing else is forwarded"
    headers = {"x-antiphon-target": header_text(provider.name)}
    content_type = reply.headers.get("content-type", "application/json")
    if content_type.startswith("text/event-stream"):
        return Response(
            headers={**headers, "content-type": content_type, "cache-control": "no-cache"},
            body=_events(reply, format_name, known.model),
        )
    try:
        body = await read_body(reply.response, _MAX_BYTES)
    except TransportError as lost:
        return provider_error_response(format_name, error_from_transport(lost), provider.name)
    finally:
        await reply.aclose()
    if request.method == "DELETE":
        services = context.services
        await STATE.run(services.upstream_answers.forget, context.endpoint.resource, context.key.name)
    if not request.path.rstrip("/").endswith("/input_items"):
        body = with_requested_model(format_name, body, known.model)
    return Response(headers={**headers, "content-type": content_type}, body=body)


async def _events(reply: StreamReply, format_name: str, requested_model: str) -> AsyncIterator[bytes]:
    """The events of a stream that the client follows. A cut is reported in the stream."""
    buffer, model = EventBuffer(), StreamModel(format_name, requested_model)
    try:
        async for piece in reply.pieces:
            if events := buffer.feed(piece):
                yield model.feed(events)
        if rest := buffer.close():
            yield model.feed(rest)
    except TransportError as lost:
        error = error_from_transport(lost, "stream_cut")
        yield formats[format_name].stream_writer(requested_model).write(Failed(error))
    finally:
        await reply.aclose()
