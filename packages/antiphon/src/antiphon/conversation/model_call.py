"""`ModelCall`: one call of a model, made here and nowhere else, and always recorded in the log.

In this order: limits, hooks, span, provider, `PartsTracker`, hooks, record. However the call ends (answered, failed, cancelled,
out of time or money), one entry is appended with what it used. A side call (`Conversation.call_aside`) takes the same way; its
entry is a note, and its answer is not part of the conversation.

Fast path: without a listener, a span or a limit, each delta goes straight to the `PartsTracker`; calls in text are looked for
from the first text on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from functools import cached_property, partial
from time import perf_counter
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import structs

from antiphon.context import LiveContext
from antiphon.context.model_usage import ModelCallUsage, estimate, with_model_calls
from antiphon.conversation.message import PartsTracker
from antiphon.conversation.run import SideAnswer
from antiphon.conversation.run_meter import ModelCallAllowance
from antiphon.conversation.turn import FAILED, INTERRUPTED
from antiphon.errors import ConversationError
from antiphon.history import ContextEntry, DebugLogEntry, EntryMetadata
from antiphon.model_name import ModelName
from antiphon.parts import Native, Text, TokenUsage, ToolCallRequest
from antiphon.providers.call import CallReport, ModelCallFailed, ProviderCallOptions, ProviderClient
from antiphon.telemetry import switch
from antiphon.tools.call_runner import request_approval
from antiphon.tools.hooks import HookedModelCall, checks_answers, holds_text, run_after_model, run_before_model
from antiphon.wire.delta import ModelOutputDelta, PartDelta, PartStarted, deltas_from_part
from antiphon.wire.output import ProviderError
from antiphon.wire.request import ModelRequest, ToolDefinition

if TYPE_CHECKING:
    from antiphon.conversation.conversation import Conversation
    from antiphon.telemetry.spans import ModelCallSpan, Telemetry
    from antiphon.tools.embedded import EmbeddedCalls, EmbeddedSetting
    from antiphon.tools.executor import ToolExecutor

logger = logging.getLogger(__name__)

ShownDelta: TypeAlias = PartDelta | PartStarted
"""The deltas that bring a piece of the answer."""

TIME_BUDGET = "time_budget"
COST_BUDGET = "cost_budget"
_MOST_RETRIES = 8
"""How often a request that was refused as too long is made smaller; each time to about half."""


class ModelCall:
    """A call of `model` (by default the conversation's) with these tools and settings.

    `notice` is shown after the live screen. `context` replaces that of the conversation. `source` is the agent that is called,
    `executor` the one for its calls, `ended` why the turn ends with this answer, if it does. `allowance` is what the call may use
    of a limited run, `seconds` how long it may take; `purpose` is what a side call is for.
    """

    def __init__(
        self,
        chat: Conversation,
        model: str | ProviderClient | None = None,
        tools: Sequence[ToolDefinition] | None = None,
        settings: ModelRequest | None = None,
        notice: str = "",
        *,
        context: Sequence[ContextEntry] | None = None,
        source: str = "",
        executor: ToolExecutor | None = None,
        ended: str = "",
        purpose: str = "",
        allowance: ModelCallAllowance | None = None,
        seconds: float | None = None,
        on_retry: Callable[[Any], None] | None = None,
    ) -> None:
        self.client, self.model = chat.resolve_model(model)
        self._asked = model
        self.chat = chat
        self.source = source
        self.executor = executor
        self.ended = ended
        self.purpose = purpose
        self._tools = tools
        self._settings = settings or chat.settings
        self._notice = notice
        self._given_context = context
        self._allowance = allowance
        self._seconds = seconds
        self._on_retry = on_retry
        self.usage: TokenUsage | None = None  # as far as the provider reported it
        self._time_limit: asyncio.Timeout | None = None
        self._hooks = chat.executor.hooks

    async def run(self, listener: Callable[[ShownDelta], None] | None = None) -> None:
        """Make the call; `listener` gets each piece of the answer. Raises `ModelCallFailed`; and `CallRefused` if a hook refused.

        A model that turns out to have no tools is called again, with the tools described in its prompt; one that refuses the
        request as too long, with smaller ones, if the conversation may be compacted.
        """
        for retries_left in range(_MOST_RETRIES, -1, -1):
            try:
                if self._seconds is None:
                    await self._make(listener)
                else:
                    await self._run_in_time(listener, self._seconds)
            except ModelCallFailed as failure:
                if not retries_left or not await self._can_retry(failure.error):
                    raise
            else:
                return

    async def _can_retry(self, error: ProviderError) -> bool:
        return self.chat.embedded.can_retry(error, self.model) or (
            not self.purpose and await self.chat.shrink_after(error, self._tools, self._asked)
        )

    async def _run_in_time(self, listener: Callable[[ShownDelta], None] | None, seconds: float) -> None:
        """Make the call within its time. If that is over, the stream is cancelled, and the partial answer is the answer."""
        limit = self._time_limit = asyncio.timeout(seconds)
        try:
            async with limit:
                await self._make(listener)
        except TimeoutError:
            if not limit.expired():
                raise
            logger.info("[%s] the time limit of the run ended an answer", self.options.request_id)

    def _prepare(self) -> None:
        """What is sent: context, tools and settings, as they are now."""
        chat = self.chat
        self.options = options = structs.replace(
            chat.call_options,
            report=CallReport(),
            model=self.model,
            tools=chat.registry.definitions if self._tools is None else tuple(self._tools),
            settings=self._settings if self._allowance is None else self._allowance.shorten(self._settings, self.model),
            request_id=f"{chat.history.id or 'memory'}:{self.purpose or chat.history.current.version + 1}",
            on_retry=self._on_retry,
        )
        self.sent: Sequence[ContextEntry]
        self.stop_reason = ""
        """Why there is no finished answer, if there is none."""
        self._reads_text: Callable[[int, str], EmbeddedCalls] | None = None
        self._reader: EmbeddedCalls | None = None
        self._is_held = bool(self._hooks) and holds_text(self._hooks)
        self._tracker = PartsTracker()
        self._span: ModelCallSpan | None = None
        self._is_complete = False
        self._withheld = ""
        if self._given_context is not None:
            self.sent = self._given_context
            return
        context = chat.context(self._notice, self._asked)
        if not options.live_context:
            context = context.without_screen()
        if chat.compaction is not None and chat.compaction.native:
            options.compact_at = chat.native_limit(self._asked)
        chat.report = options.report
        if context.screen is not None and (injected := context.injected()):
            chat.history.append(injected)
        self.sent = context
        if options.tools or chat.embedded.concerns_all:
            self.sent, self.options, self._reads_text = chat.embedded.prepare(
                context, options, chat.history.current.version
            )

    async def _run_before_hooks(self) -> None:
        """Let the hooks change the call. Raises `CallRefused`: then it is not made, and nothing is recorded."""
        self._withheld = "withheld" if checks_answers(self._hooks) else ""
        options = self.options
        call = HookedModelCall(
            model=options.model,
            context=self.sent,
            settings=options.settings,
            tools=options.tools,
            usage=self.chat.usage,
            purpose=self.purpose,
        )
        await run_before_model(self._hooks, call)
        self.sent = call.context
        options.model, options.settings, options.tools = call.model, call.settings, tuple(call.tools)

    async def _run_after_hooks(self) -> bool:
        """Let the hooks change a complete answer before it is recorded. Raises `CallRefused`: then it is withheld."""
        tracker = self._tracker
        if not (self._is_complete and tracker.is_finished and tracker.error is None):
            return False
        tracker.replaced = await run_after_model(self._hooks, tracker.parts)
        self._withheld = ""
        return True

    def _open(self) -> Any:
        """Begin the call: its deltas."""
        if switch.active is not None:
            self._start_span(switch.active)
        if self._allowance is not None:
            self._allowance.begin()
        # Clients are async generators, though their type does not say so.
        deltas = self.client.call_model(self.sent, self.options)
        if self._span is not None:
            self._span.attach()
        self._began = perf_counter()
        return deltas

    async def _make(self, listener: Callable[[ShownDelta], None] | None) -> None:
        """Make the call once; the pieces of the answer go to a listener, if there is one."""
        self._prepare()
        if self._hooks:
            await self._run_before_hooks()
        deltas, show = self._open(), None if self._is_held else listener
        span, allowance, reads_text, reader = self._span, self._allowance, self._reads_text, self._reader
        add = self._tracker.add
        error: BaseException | None = None
        try:
            try:
                async for delta in deltas:
                    if span is not None:
                        span.observe(delta)
                    if reads_text is not None and type(delta) is PartStarted and type(delta.part) is Text:
                        self._reader = reader = reads_text(delta.index, self._tracker.id)
                        reads_text = None
                    for read in (delta,) if reader is None else reader.feed(delta):
                        add(read)
                        if show is not None and (type(read) is PartDelta or type(read) is PartStarted):
                            show(read)
                    if allowance is not None and not allowance.can_go_on(delta):
                        self.ended = COST_BUDGET
                        await deltas.aclose()
                        break
                else:
                    self._is_complete = True
                if reader is not None or self._hooks:
                    for read in await self._complete():
                        if listener is not None and isinstance(read, ShownDelta):
                            listener(read)
            except BaseException:
                await deltas.aclose()
                raise
        except BaseException as raised:
            error = raised
            raise
        finally:
            try:
                self._finish(error)
            finally:
                if allowance is not None:
                    allowance.end()

    async def stream(self) -> AsyncGenerator[ModelOutputDelta, None]:
        """Make the call once and yield its deltas. A reader that stops interrupts the model; the partial answer is appended."""
        self._prepare()
        if self._hooks:
            await self._run_before_hooks()
        deltas = self._open()
        error: BaseException | None = None
        try:
            try:
                async for delta in deltas:
                    for read in self._take(delta):
                        if not self._is_held:
                            yield read
                self._is_complete = True
                for read in await self._complete():
                    yield read
            except BaseException:
                await deltas.aclose()
                raise
        except BaseException as raised:
            error = raised
            raise
        finally:
            self._finish(error)

    def _take(self, delta: ModelOutputDelta) -> Sequence[ModelOutputDelta]:
        """Add a delta to the answer; what it is read as, where calls are found in text."""
        if self._span is not None:
            self._span.observe(delta)
        if self._reads_text is not None and type(delta) is PartStarted and type(delta.part) is Text:
            self._reader, self._reads_text = self._reads_text(delta.index, self._tracker.id), None
        if self._reader is None:
            self._tracker.add(delta)
            return (delta,)
        reads = list(self._reader.feed(delta))
        for read in reads:
            self._tracker.add(read)
        return reads

    async def _complete(self) -> list[ModelOutputDelta]:
        """Add what was held back to the answer, and let hooks change it; the deltas of an answer that was held back whole."""
        for read in self._reader.close() if self._reader is not None else ():  # of a stream that just stopped
            self._tracker.add(read)
        if not (self._hooks and await self._run_after_hooks() and self._is_held):
            return []
        parts = self._tracker.final_parts
        return [delta for index, part in enumerate(parts) for delta in deltas_from_part(index, part)]

    # The end.

    def _finish(self, error: BaseException | None) -> None:
        seconds = perf_counter() - self._began
        tracker, error_text = self._tracker, ""
        if isinstance(error, Exception):
            self.stop_reason, error_text = FAILED, f"{type(error).__name__}: {error}"
        elif error is not None or not self._is_complete:
            self.stop_reason = INTERRUPTED
            if error is not None or not self.ended:
                is_timeout = self._time_limit is not None and self._time_limit.expired()
                self.ended = TIME_BUDGET if is_timeout else INTERRUPTED
        elif not tracker.is_finished:
            self.stop_reason = FAILED
        elif self._allowance is not None and tracker.stop_reason == "length" and self._allowance.has_shortened:
            self.ended = COST_BUDGET
        if self._span is not None:
            self._end_span(self._span)
        if self.stop_reason == FAILED:
            reason = tracker.error or error_text
            logger.error("[%s] the model call failed: %s", self.options.request_id, reason or "no terminal event")
        self._record(seconds, str(tracker.error.message) if tracker.error else error_text)
        if error is None and self.stop_reason == FAILED:
            if tracker.error is not None:
                raise ModelCallFailed(tracker.error, self.options.report)
            raise ConversationError(f"the provider {self.client.name!r} ended its stream without a terminal event")

    def _record(self, seconds: float, error: str) -> None:
        """Append the entry of the call: the output; a note, if there is none or it is not part of the conversation."""
        chat, tracker, report = self.chat, self._tracker, self.options.report
        extra = chat.notes.of(report) if report.attempts or report.losses or report.repairs else {}
        # An answer that failed does not end the turn: it can be requested again.
        if self.ended and self.stop_reason != FAILED and not self.purpose:
            extra["ended"] = self.ended
        if self._allowance is not None:
            missing = self._allowance.missing_in(tracker.usage, is_complete=not self.stop_reason)
            if missing is not None:
                extra |= estimate(missing)
        self.usage = tracker.usage
        metadata = EntryMetadata(
            source=self.source, duration=int(seconds * 1e6) / 1e6, usage=tracker.usage, error=error, extra=extra or None
        )
        if self.purpose:
            self._note("side call", self.purpose, metadata)
            return
        chat.turn  # noqa: B018 - takes in the ids of all calls so far
        output = None
        if not self._withheld:
            output = tracker.entry(report.origin, chat.used_call_ids, metadata, self.stop_reason)
        if output is None:
            kind = tracker.error.kind if tracker.error else self._withheld or self.stop_reason
            who = report.origin.provider or self.client.name
            self._note("model call", f"{who}: {kind}: {error or 'no output'}", structs.replace(metadata, source=""))
            chat.note_refusal(tracker.error, self._tools, self._asked)
        else:
            kinds = {*map(type, output.content)}
            if ToolCallRequest in kinds:
                # Before the output, so that its calls are never in the log without the request (law L11).
                executor = self.executor or chat.executor
                if for_approval := executor.calls_for_approval(output.content):
                    request_approval(chat.history, for_approval, self.source)
            output = chat.history.append(output)
            if Native in kinds and not self.stop_reason:
                from antiphon.conversation.compaction.native import record_compaction

                record_compaction(chat, output)
        if report.bodies:
            body_metadata = EntryMetadata(source=report.origin.name)
            for body in report.bodies:
                chat.history.append(DebugLogEntry("request body", body.decode(), metadata=body_metadata))

    def _note(self, category: str, text: str, metadata: EntryMetadata) -> None:
        if self._tracker.usage is not None or self.purpose:
            metadata = with_model_calls(metadata, [ModelCallUsage(self.options.report.origin, self._tracker.usage)])
        self.chat.history.append(DebugLogEntry(category, text, metadata=metadata))

    @property
    def answer(self) -> SideAnswer:
        """The answer of a side call that finished."""
        tracker = self._tracker
        parts = tracker.final_parts
        text = "".join(part.text for part in parts if isinstance(part, Text))
        return SideAnswer(text, parts, self.options.report.origin, tracker.usage, tracker.stop_reason)

    def _start_span(self, active: Telemetry) -> None:
        options = self.options
        self._span = active.start_model_call(
            options.model,
            ModelName.parse(options.model).provider or self.client.name,
            settings=options.settings,
            context=self.sent,
            tools=options.tools,
            conversation_id=self.chat.key,
            agent=self.source.partition(":")[2],
        )
        options.headers = {**(options.headers or {}), **self._span.headers()}

    def _end_span(self, span: ModelCallSpan) -> None:
        report, tracker, output = self.options.report, self._tracker, self._tracker.output
        if self._withheld:
            output = structs.replace(output, parts=())
        elif tracker.replaced is not None:
            output = structs.replace(output, parts=tracker.replaced)
        error = "" if not self.stop_reason else self.ended if self.stop_reason == INTERRUPTED else FAILED
        span.end(
            output,
            provider=report.origin.provider or self.client.name,
            model=report.origin.model or self.options.model,
            base_url=report.base_url,
            error=tracker.error.kind if tracker.error is not None else error,
            failed_attempts=[
                {"gen_ai.provider.name": one.provider, "gen_ai.request.model": one.model, "error.type": one.error.kind}
                for one in report.attempts
                if one.error is not None
            ],
        )


class ReportNotes:
    """What the log keeps of the reports of a conversation's calls. Losses and repairs are recorded once, not with every call."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def of(self, report: CallReport) -> dict[str, Any]:
        """Failed attempts, and losses and repairs not recorded before."""
        extra: dict[str, Any] = {}
        if report.losses or report.repairs:
            for name, things in (("losses", report.losses), ("repairs", report.repairs)):
                if news := [thing for thing in map(str, things) if thing not in self._known]:
                    self._known.update(news)
                    extra[name] = news
        for attempt in report.attempts:
            if attempt.error is not None:
                extra.setdefault("failed_attempts", []).append(f"{attempt.provider}: {attempt.error.message}")
        return extra


class EmbeddedCallPolicy:
    """The setting of a conversation, and the models that turned out to have no tools."""

    def __init__(self, setting: EmbeddedSetting) -> None:
        if setting != "auto":
            from antiphon.tools.embedded.text_tools import check_setting

            check_setting(setting)
        self.setting = setting
        self._without_tools: set[str] = set()
        self.concerns_all = setting not in (False, "auto")
        """Whether calls without tools are prepared, too."""

    @cached_property
    def _reading(self) -> ModuleType:
        """What reads calls in text; imported by the first call with tools."""
        from antiphon.tools import embedded

        return embedded

    def prepare(
        self, context: LiveContext, options: ProviderCallOptions, version: int
    ) -> tuple[LiveContext, ProviderCallOptions, Callable[[int, str], EmbeddedCalls] | None]:
        """The call as the model can read it, and what makes a reader of its answer."""
        if self.setting is False:
            return context, options, None
        embedded, mode = self._reading, self.setting
        if mode != "auto" and not isinstance(mode, str | bool):
            mode = embedded.mode_for(mode, options.model)
        if mode == "auto" and options.model in self._without_tools:
            mode = "prompt"
        reads_text = None
        if options.tools and mode is not False:
            reads_text = partial(embedded.EmbeddedCalls, options.tools, str(version), mode == "auto")
        if mode == "prompt":
            entries, options = embedded.with_text_tools(context, options)
            context = LiveContext(entries, context.left_out, screen=context.screen)
        return context, options, reads_text

    def can_retry(self, error: ProviderError, model: str) -> bool:
        """Whether the provider answered that `model` has no tools. It is called without them from then on."""
        from antiphon.tools.embedded.text_tools import is_unsupported, mode_for

        if model in self._without_tools or mode_for(self.setting, model) != "auto" or not is_unsupported(error):
            return False
        logger.info("%s does not support tools; describing them in the prompt", model)
        self._without_tools.add(model)
        self.concerns_all = True
        return True
