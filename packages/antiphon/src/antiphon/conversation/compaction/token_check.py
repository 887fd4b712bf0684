"""`TokenCheck`: the part of a conversation that knows how large the next request is, and makes sure that it fits.

Before every model call the tokens are measured (`ContextGauge`). Above the limit, the subscribers of `on_compaction` are called:
the conversation detects, and an engine decides what is summarised. With `compaction=`, the conversation then brings the request
within the limit itself, or does not make it and says what is too large (law L15).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from antiphon.context import LiveContextRenderer, TokenLedger
from antiphon.context.compaction import Compaction
from antiphon.context.gauge import ContextGauge
from antiphon.context.view import ContextView
from antiphon.conversation.events import CompactionCallback, CompactionCallbacks, CompactionNeeded
from antiphon.errors import ContextLimitReached, ConversationError
from antiphon.history import AgentHistory, ModelInputEntry
from antiphon.parts import TokenUsage
from antiphon.wire.capabilities import capabilities_for
from antiphon.wire.output import ProviderError

if TYPE_CHECKING:
    from antiphon.context import LiveContext
    from antiphon.tools.registry import ToolRegistry

_AFTER_REFUSAL = 0.6
"""How much of the limit a request may take after the provider refused one as too long."""


class TokenCheck:
    """The tokens of a conversation, its limit and its compaction."""

    history: AgentHistory
    registry: ToolRegistry
    model: Any
    context: Callable[..., LiveContext]
    _renderer: LiveContextRenderer

    def __init__(
        self, ledger: TokenLedger, limit: int | Literal["auto"] | None, compaction: Compaction | Literal["auto"] | None
    ) -> None:
        if compaction == "auto":
            compaction = Compaction()
        if not isinstance(compaction, Compaction | None):
            raise ConversationError(f"compaction={compaction!r}: expected 'auto', a Compaction or None")
        self._ledger = ledger
        self.gauge = ContextGauge(ledger)
        self.compaction: Compaction | None = compaction
        """How the conversation is kept within its limit; None: a limit only calls the subscribers."""
        self.token_limit = "auto" if limit is None and compaction is not None else limit
        self._callbacks = CompactionCallbacks()

    @property
    def usage(self) -> TokenUsage:
        """The total usage of all model calls, as far as providers reported it."""
        return self._ledger.usage(self.history.snapshot())

    @property
    def tokens(self) -> int:
        """The size of the next request in tokens: as the API last reported it and what came since, else counted here."""
        snapshot = self.history.snapshot()
        return self.gauge.tokens(snapshot, self._renderer.view(snapshot).shown, self.fixed_tokens)

    def view(self) -> ContextView:
        """What the model sees of each entry, without a window."""
        return self._renderer.view(self.history.snapshot())

    def fixed_tokens(self, notice: str = "", tools: Sequence[object] | None = None) -> int:
        """The tokens that a request has besides the messages: instruction, notebook, live screen and tools."""
        context = self.context(notice)
        return self._ledger.fixed_tokens(context, context.screen, self.registry.definitions if tools is None else tools)

    @property
    def token_limit(self) -> int | None:
        """The size at which compaction is requested. `"auto"` is 80 % of the model's context window, if it is known."""
        if self._token_limit != "auto":
            return self._token_limit
        return capabilities_for(self.model, "").compaction_limit  # a limit of the model, in every format

    @token_limit.setter
    def token_limit(self, limit: int | Literal["auto"] | None) -> None:
        if limit is not None and limit != "auto":
            if not isinstance(limit, int):
                raise ConversationError(f"token_limit={limit!r}: must be a whole number, or 'auto'")
            if limit <= 0:
                raise ConversationError(f"token_limit={limit}: must be above 0; leave it out for no limit")
        self._token_limit = limit

    @property
    def measures_tokens(self) -> bool:
        """Whether the tokens are measured before a call."""
        return self._token_limit is not None

    def on_compaction(self, callback: CompactionCallback) -> Callable[[], None]:
        """Call `callback` when the conversation outgrows `token_limit`; call the returned function to unsubscribe."""
        return self._callbacks.add(callback)

    async def check_tokens(self, notice: str = "", tools: Sequence[object] | None = None) -> CompactionNeeded | None:
        """Compare the tokens of the next request with the limit, and call the subscribers if they exceed it.

        `notice` and `tools` are those of the request. With `compaction=`, raises `ContextLimitReached` if the request cannot be
        brought within the limit.
        """
        limit = self.gauge.limit(self.model, self.token_limit)
        if limit is None:
            return None
        compaction = None
        if self.compaction is not None:
            from antiphon.conversation.compaction.auto import AutoCompaction

            compaction = AutoCompaction(self, limit, self.compaction, notice, tools)  # type: ignore[arg-type]
            compaction.prepare()
        if (tokens := self._size(notice, tools)) <= limit:
            return None
        event = CompactionNeeded(tokens, limit)
        await self._callbacks.call(self, event)  # type: ignore[arg-type]
        if compaction is not None and self._size(notice, tools) > limit:
            await compaction.run()
            if (tokens := self._size(notice, tools)) > limit:
                raise ContextLimitReached(
                    f"the next request has {tokens:,} tokens, the limit is {limit:,}, and nothing more can be left out. The "
                    f"largest piece is {compaction.largest()}"
                )
        return event

    def _size(self, notice: str, tools: Sequence[object] | None) -> int:
        """The tokens of the next request, with a notice that the last one did not have."""
        snapshot = self.history.snapshot()
        tokens = self.gauge.tokens(snapshot, self._renderer.view(snapshot).shown, lambda: self.fixed_tokens("", tools))
        return tokens + (self._ledger.tokens_of(ModelInputEntry.of(notice)) if notice else 0)

    async def shrink_after(self, error: ProviderError) -> bool:
        """Make the conversation smaller if a provider refused it as too long; whether it can be sent again."""
        if error.kind != "context_length" or self.compaction is None:
            return False
        from antiphon.conversation.compaction.auto import AutoCompaction

        self.gauge.lower_ceiling(self.model, self.tokens)
        limit = self.gauge.limit(self.model, self.token_limit)
        assert limit is not None
        return await AutoCompaction(self, int(limit * _AFTER_REFUSAL), self.compaction).run()  # type: ignore[arg-type]
