"""`TokenCheck`: the part of a conversation that knows how large the next request is, and makes sure that it fits.

Before every model call the tokens are measured (`ContextGauge`). Above the limit, the subscribers of `on_compaction` are called:
the conversation detects, and an engine decides what is summarised. With `compaction=`, the conversation then brings the request
within the limit itself, or does not make it and says what is too large (law L15). With `compaction="native"` the provider does
it, where its API can: never both for one request.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from antiphon.context import LiveContextRenderer, TokenLedger
from antiphon.context.compaction import Compaction
from antiphon.context.gauge import ContextGauge
from antiphon.context.view import ContextView
from antiphon.conversation.events import CompactionCallback, CompactionCallbacks, CompactionNeeded
from antiphon.errors import AntiphonError, ContextLimitReached, ConversationError
from antiphon.history import AgentHistory, DebugLogEntry, EntryMetadata, ModelInputEntry
from antiphon.parts import TokenUsage
from antiphon.providers.call import ProviderClient
from antiphon.tools.executor import ToolExecutor
from antiphon.wire.capabilities import capabilities_for
from antiphon.wire.output import ProviderError

if TYPE_CHECKING:
    from antiphon.context import LiveContext
    from antiphon.conversation.compaction.auto import AutoCompaction
    from antiphon.tools.registry import ToolRegistry
    from antiphon.wire.request import ToolDefinition

CompactionSetting: TypeAlias = Compaction | Literal["auto", "native"] | None

PIN = "pin"
PINNED, IS_PINNED = "pinned", "is_pinned"
"""Where the note about a pinned entry has its number, and whether it is pinned from there on."""
_AFTER_REFUSAL = 0.6
"""How much of the limit a request may take after the provider refused one as too long."""


class TokenCheck:
    """The tokens of a conversation, its limit and its compaction."""

    history: AgentHistory
    registry: ToolRegistry
    model: Any
    executor: ToolExecutor
    context: Callable[..., LiveContext]
    resolve_model: Callable[..., tuple[ProviderClient, str]]
    _renderer: LiveContextRenderer

    def __init__(self, ledger: TokenLedger, limit: int | Literal["auto"] | None, compaction: CompactionSetting) -> None:
        if compaction == "auto" or compaction == "native":
            compaction = Compaction(native=compaction == "native")
        if not isinstance(compaction, Compaction | None):
            raise ConversationError(f"compaction={compaction!r}: expected 'auto', 'native', a Compaction or None")
        self._ledger = ledger
        self.gauge = ContextGauge(ledger)
        self.compaction: Compaction | None = compaction
        """How the conversation is kept within its limit; None: a limit only calls the subscribers."""
        self.token_limit = "auto" if limit is None and compaction is not None else limit
        self._callbacks = CompactionCallbacks()
        self._kept_tools: set[str] = set()

    @property
    def usage(self) -> TokenUsage:
        """The total usage of all model calls, as far as providers reported it."""
        return self._ledger.usage(self.history.snapshot())

    @property
    def tokens(self) -> int:
        """The size of the next request in tokens: as the API last reported it and what came since, else counted here."""
        return self._size("", None, None)

    def view(self, model: str | ProviderClient | None = None) -> ContextView:
        """What the model sees of each entry, without a window."""
        snapshot = self.history.snapshot()
        return self._renderer.view(snapshot, self.readers(model) if snapshot.in_force.has_native else None)

    def readers(self, model: str | ProviderClient | None = None) -> frozenset[str]:
        """The models that the next call may go to, as `provider/model`."""
        client, name = self.resolve_model(model)
        return frozenset([origin.name for origin in client.origins_of(name)])

    def pin(self, sequence_number: int, *, is_pinned: bool = True) -> None:
        """Keep an entry out of every compaction to come; with `is_pinned=False` no longer. The log has a note about it."""
        if not 0 < sequence_number <= self.history.version:
            raise ConversationError(f"pin({sequence_number}): the history has the entries 1 to {self.history.version}")
        text = f"entry {sequence_number} is {'kept' if is_pinned else 'no longer kept'} by compactions"
        extra = {PINNED: sequence_number, IS_PINNED: is_pinned}
        self.history.append(DebugLogEntry(PIN, text, metadata=EntryMetadata(extra=extra)))

    def keeps_result(self, tool_name: str) -> bool:
        """Whether the results of a tool, of the conversation or of an agent in it, are never taken out of the context."""
        tool = self.registry.get(tool_name)
        return tool_name in self._kept_tools or (tool is not None and tool.keep_result)

    def fixed_tokens(self, notice: str = "", tools: Sequence[object] | None = None) -> int:
        """The tokens that a request has besides the messages: instruction, notebook, live screen and tools."""
        context = self.context(notice)
        return self._ledger.fixed_tokens(context, context.screen, self.registry.definitions if tools is None else tools)

    @property
    def token_limit(self) -> int | None:
        """The size at which compaction is requested. `"auto"` is 80 % of the model's context window, if it is known."""
        return self._limit_for(None)

    @token_limit.setter
    def token_limit(self, limit: int | Literal["auto"] | None) -> None:
        if limit is not None and limit != "auto":
            if not isinstance(limit, int):
                raise ConversationError(f"token_limit={limit!r}: must be a whole number, or 'auto'")
            if limit <= 0:
                raise ConversationError(f"token_limit={limit}: must be above 0; leave it out for no limit")
        self._token_limit = limit
        self.measures_tokens = limit is not None
        """Whether the tokens are measured before a call."""

    def _limit_for(self, model: str | ProviderClient | None) -> int | None:
        return self.limit_of(model) if self._token_limit == "auto" else self._token_limit

    def limit_of(self, model: str | ProviderClient | None) -> int | None:
        """80 % of the window of a model, of the smallest if several may answer; None if it is not known."""
        client, name = self.resolve_model(model)
        try:
            models = [origin.model for origin in client.origins_of(name)]
        except AntiphonError:  # the call will say so
            return None
        limits = [capabilities_for(one, "").compaction_limit for one in models]  # a limit of the model, in every format
        return min([limit for limit in limits if limit is not None], default=None)

    def compacts_itself(self, model: str | ProviderClient | None, limit: int | None) -> bool:
        """Whether the provider compacts the next request itself at the limit, so that nothing is done here."""
        if self.compaction is None or not self.compaction.native or limit is None:
            return False
        client, name = self.resolve_model(model)
        return client.compacts_at(name, limit)

    def on_compaction(self, callback: CompactionCallback) -> Callable[[], None]:
        """Call `callback` when the conversation outgrows `token_limit`; call the returned function to unsubscribe."""
        return self._callbacks.add(callback)

    async def check_tokens(
        self,
        notice: str = "",
        tools: Sequence[ToolDefinition] | None = None,
        model: str | ProviderClient | None = None,
    ) -> CompactionNeeded | None:
        """Compare the tokens of the next request with the limit, and call the subscribers if they exceed it.

        `notice`, `tools` and `model` are those of the request. With `compaction=`, raises `ContextLimitReached` if the request
        cannot be brought within the limit.
        """
        limit = self.gauge.limit(self._name_of(model), self._limit_for(model))
        if limit is None or self.compacts_itself(model, limit):
            return None
        compaction = None
        if self.compaction is not None:
            compaction = self._compaction(self.compaction, limit, notice, tools, model)
            compaction.prepare()
        if (tokens := self._size(notice, tools, model)) <= limit:
            return None
        event = CompactionNeeded(tokens, limit)
        await self._callbacks.call(self, event)  # type: ignore[arg-type]
        if compaction is not None and self._size(notice, tools, model) > limit:
            await compaction.run()
            if (tokens := self._size(notice, tools, model)) > limit:
                raise ContextLimitReached(
                    f"the next request has {tokens:,} tokens, the limit is {limit:,}, and nothing more can be left out. The "
                    f"largest piece is {compaction.largest()}"
                )
        return event

    def native_limit(self, model: str | ProviderClient | None) -> int | None:
        """The tokens at which the provider is asked to compact the request itself; None if it is not."""
        limit = self._limit_for(model)
        return limit if self.compacts_itself(model, limit) else None

    def note_refusal(
        self,
        error: ProviderError | None,
        tools: Sequence[ToolDefinition] | None = None,
        model: str | ProviderClient | None = None,
    ) -> None:
        """If a provider refused a request as too long, remember its size: none of that size is sent again."""
        if error is not None and error.kind == "context_length" and self.compaction is not None:
            self.gauge.lower_ceiling(self._name_of(model), self._size("", tools, model))

    async def shrink_after(
        self,
        error: ProviderError,
        tools: Sequence[ToolDefinition] | None = None,
        model: str | ProviderClient | None = None,
    ) -> bool:
        """Make the conversation smaller if a provider refused it as too long (`note_refusal`); whether it can be sent again."""
        limit = self.gauge.limit(self._name_of(model), self._limit_for(model))
        if error.kind != "context_length" or self.compaction is None or limit is None:
            return False
        return await self._compaction(self.compaction, int(limit * _AFTER_REFUSAL), "", tools, model).run()

    def _compaction(
        self,
        options: Compaction,
        limit: int,
        notice: str,
        tools: Sequence[ToolDefinition] | None,
        model: str | ProviderClient | None,
    ) -> AutoCompaction:
        from antiphon.conversation.compaction.auto import AutoCompaction

        return AutoCompaction(self, limit, options, notice, tools, model)  # type: ignore[arg-type]

    def _name_of(self, model: str | ProviderClient | None) -> str:
        return self.model if model is None else model if isinstance(model, str) else model.name

    def _size(self, notice: str, tools: Sequence[object] | None, model: str | ProviderClient | None) -> int:
        """The tokens of the next request, with a notice that the last one did not have."""
        snapshot = self.history.snapshot()
        tokens = self.gauge.tokens(
            snapshot, self.view(model).shown, lambda: self.fixed_tokens("", tools), self.readers(model)
        )
        return tokens + (self._ledger.tokens_of(ModelInputEntry.of(notice)) if notice else 0)
