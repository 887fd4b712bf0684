"""What another target is for: how long the first token is waited for where there is one, and who finishes a stream that broke.

`StreamFailover` lets the next target of a request finish an answer whose stream broke (`continue_streams`): `Continuation`
decides what the client gets of the next answer, and `ProviderCall` finds the target. Here the body is held for it, and what the
broken stream cost is counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import inf

from msgspec import Struct

from antiphon.http.body import Hold
from antiphon.providers.engine.continuation import Continuation
from antiphon.providers.engine.provider_call import ProviderCall
from antiphon.providers.engine.reply import StreamReply, UpstreamFailed
from antiphon.providers.routes import Target
from antiphon.wire.capabilities import capabilities_for
from antiphon.wire.output import ProviderError
from antiphon.wire.request import ModelRequest
from antiphon_gateway.errors import RequestRefused
from antiphon_gateway.generate.channels import Scrub
from antiphon_gateway.observe.record import Record, estimated_tokens
from antiphon_gateway.runtime.loaded import LoadedConfig

FIRST_TOKEN_SECONDS, THINKING_SECONDS = 10.0, 60.0
"""How long the first token is waited for by default: of an ordinary model, and of one that thinks before it answers."""
_TOKENS_PER_SECOND = 10_000
"""A long prompt is waited for longer: models read about so many tokens in a second."""


def first_token_limit(loaded: LoadedConfig, request: ModelRequest, record: Record, targets: Sequence[Target]) -> float:
    """Seconds until the first visible output of a stream for which another target is left."""
    given = loaded.config.gateway.first_token_seconds
    if given is not None:
        return given
    reading = record.prompt_estimate / _TOKENS_PER_SECOND
    return (THINKING_SECONDS if _may_think(loaded, request, targets) else FIRST_TOKEN_SECONDS) + reading


def _may_think(loaded: LoadedConfig, request: ModelRequest, targets: Sequence[Target]) -> bool:
    """Whether the answer may begin with hidden reasoning: the request asks for it, or a target always does it."""
    if request.reasoning is not None:
        return True
    known = [_thinks_unasked(target.model, loaded.providers[target.provider].format) for target in targets]
    return any(known)


@lru_cache(maxsize=1024)
def _thinks_unasked(model: str, format_name: str) -> bool:
    """Whether a model is known to think before it answers, unless the request says otherwise."""
    known = capabilities_for(model, format_name)
    if known.default_effort:
        return known.default_effort != "none"
    return format_name.startswith("gemini") and known.is_known and not known.never_thinks


class StreamFailover(Struct, eq=False):
    """Lets another target finish the answer of one request."""

    call: ProviderCall
    continuation: Continuation
    record: Record
    scrub: Scrub
    """Removes the secrets of the provider that answers."""
    hold: Hold | None
    """Counts the body of the request. Of its own: the connection gives its own back when the response begins."""
    stall: float
    """So many seconds of silence are a break."""

    @property
    def stall_seconds(self) -> float:
        """A silence that counts as a break: none if no other target can be asked."""
        return self.stall if self.call.may_continue else inf

    def may_continue(self, error: ProviderError) -> bool:
        """Whether another target may finish the answer."""
        return self.continuation.accepts(error)

    async def next_reply(self, error: ProviderError) -> StreamReply:
        """The stream that continues. Raises `UpstreamFailed` if there is none."""
        record = self.record
        if not self.continuation.has_usage:
            record.broken_tokens += record.prompt_estimate + estimated_tokens(self.continuation.text)
        try:
            reply = await self.call.continued(self.continuation, error)
        except RequestRefused:
            raise UpstreamFailed(error) from None
        except UpstreamFailed as failure:
            raise UpstreamFailed(self.scrub(failure.error)) from None
        assert isinstance(reply, StreamReply), "a stream is requested"
        return reply

    def close(self) -> None:
        """The request is over."""
        if self.hold is not None:
            self.hold.release()
