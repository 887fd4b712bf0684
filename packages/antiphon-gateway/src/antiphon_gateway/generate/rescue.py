"""`NextTargetRescue`: lets the next target of a request finish an answer whose stream broke (`continue_streams`).

The engine's `Continuation` decides what the client gets of the next answer, and `ModelCall` finds the target. Here the request is
kept for it, and what the broken stream cost is counted.
"""

from __future__ import annotations

from antiphon.http.messages import ClientRequest
from antiphon.providers.engine.continuation import Continuation
from antiphon.providers.engine.model_call import ModelCall
from antiphon.providers.engine.reply import StreamReply, UpstreamFailed
from antiphon.wire.delta import ModelOutputDelta
from antiphon.wire.output import ProviderError
from antiphon_gateway.generate.relay import Scrub
from antiphon_gateway.observe.charging import estimated_tokens
from antiphon_gateway.observe.request_trace import RequestTrace


class StrictRefusal(Exception):
    """A strict key's request would have to be changed."""


class NextTargetRescue:
    """The `Rescue` of one request. `scrub` removes the secrets of the provider that answers."""

    def __init__(self, call: ModelCall, request: ClientRequest, trace: RequestTrace, scrub: Scrub) -> None:
        self._call = call
        self._request = request
        self._body = request.body  # the connection drops it once the response begins
        self._trace = trace
        self._scrub = scrub
        self._continuation = Continuation()

    def feed(self, deltas: list[ModelOutputDelta]) -> list[ModelOutputDelta]:
        """What the client gets of these deltas."""
        return self._continuation.feed(deltas)

    def may_continue(self, error: ProviderError) -> bool:
        """Whether another target may finish the answer."""
        return self._continuation.accepts(error)

    async def next_reply(self, error: ProviderError) -> StreamReply:
        """The stream that continues. Raises `UpstreamFailed` if there is none."""
        trace, waiting_before = self._trace, self._call.waiting_seconds
        if not self._continuation.has_usage:
            trace.broken_tokens += trace.prompt_estimate + estimated_tokens(self._continuation.text)
        self._request.body = self._body
        try:
            reply = await self._call.continued(self._continuation, error)
        except StrictRefusal:
            raise UpstreamFailed(error) from None
        except UpstreamFailed as failure:
            raise UpstreamFailed(self._scrub(failure.error)) from None
        finally:
            self._request.body = b""
            trace.waiting_seconds += self._call.waiting_seconds - waiting_before
        assert isinstance(reply, StreamReply), "a stream is requested"
        return reply
