"""`RecordedCall`: one call of a model, always recorded in the log.

It is a context manager: however the block is left (end of the answer, error, cancellation, reader gone), one entry is appended.
`PartsTracker` assembles the deltas and makes call ids unique, `CallRecorder` turns the call into an entry with its cost, and
`EmbeddedCallPolicy` decides whether calls are read from the text of a model.

Fast path: without a listener and without embedded calls, each delta goes straight to the `PartsTracker`.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Sequence, Set
from time import perf_counter
from types import TracebackType
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field, structs

from antiphon.context import LiveContext
from antiphon.context.model_usage import ModelCallUsage, with_model_calls
from antiphon.errors import ConversationError
from antiphon.extensions import adapt
from antiphon.history import ContextEntry, DebugLogEntry, EntryMetadata, ModelOutputEntry, Origin
from antiphon.model_name import ModelName
from antiphon.parts import OutputPart, Text, Thinking, TokenUsage, ToolCallRequest
from antiphon.providers.call import CallReport, ModelCallFailed, ProviderCallOptions
from antiphon.providers.client import ProviderClient
from antiphon.telemetry import switch
from antiphon.tools.hooks import HookedModelCall, Hooks, checks_answers, run_after_model, run_before_model
from antiphon.wire.delta import Assembler, ModelOutputDelta
from antiphon.wire.output import ProviderError

if TYPE_CHECKING:
    import asyncio

    from antiphon.telemetry.spans import ModelCallSpan, Telemetry
    from antiphon.tools.embedded import EmbeddedCalls, EmbeddedSetting
    from antiphon.tools.executor import ToolExecutor

logger = logging.getLogger(__name__)

INTERRUPTED = "interrupted"
FAILED = "failed"


class PartsTracker(Assembler):
    """Puts the deltas of one model call together. `replaced` are parts that a hook put in place of them."""

    replaced: tuple[OutputPart, ...] | None = None

    def entry(
        self, origin: Origin, used_ids: Set[str], metadata: EntryMetadata, ended: str = ""
    ) -> ModelOutputEntry | None:
        """The entry for the log, or None if the answer is empty. `ended` marks an answer that was not finished."""
        parts = self.parts if self.replaced is None else self.replaced
        if ended or (len(parts) == 1 and _is_empty(parts[0])):
            parts = tuple(part for part in parts if not _is_empty(part))
            if ended and not parts:
                return None
        unique = _with_unique_ids(parts, used_ids)
        return ModelOutputEntry(unique, ended or self.stop_reason, origin, metadata=metadata)


def _is_empty(part: OutputPart) -> bool:
    return type(part) in (Text, Thinking) and not part.text and not part.native  # type: ignore[union-attr]


def _with_unique_ids(parts: tuple[OutputPart, ...], used: Set[str]) -> tuple[OutputPart, ...]:
    """The parts, each call under an id that no other call of the history has."""
    ids = [part.tool_call_id for part in parts if type(part) is ToolCallRequest]
    if all(ids) and used.isdisjoint(ids) and len(ids) == len(set(ids)):
        return parts
    taken: set[str] = set()
    unique: list[OutputPart] = []
    for part in parts:
        if type(part) is ToolCallRequest:
            call_id = part.tool_call_id
            stem, number = call_id or f"call_{part.tool_name}", 1
            while not call_id or call_id in taken or call_id in used:
                number += 1
                call_id = f"{stem}_{number}"
            taken.add(call_id)
            part = structs.replace(part, tool_call_id=call_id)
        unique.append(part)
    return tuple(unique)


TIME_BUDGET = "time_budget"
"""The end reason of a turn whose time limit cancelled an answer."""


class RecordedCall(Struct, eq=False):
    """A call of `client`. `record` is called once when it ends; `stop_reason` and `error_text` are set unless it finished.

    `source` is the agent; `ended` is why the turn ends with this answer, if it does. `executor` is the one for its calls;
    `time_limit` is the timeout that may cancel it.
    """

    client: ProviderClient
    context: LiveContext
    options: ProviderCallOptions
    record: Callable[[RecordedCall], None]
    embedded: EmbeddedCalls | None = None
    source: str = ""
    ended: str = ""
    executor: ToolExecutor | None = None
    time_limit: asyncio.Timeout | None = None
    tracker: PartsTracker = field(default_factory=PartsTracker)
    stop_reason: str = ""
    error_text: str = ""
    seconds: float = 0.0
    is_complete: bool = False
    hooks: Hooks = ()
    sent: Sequence[ContextEntry] | None = None
    """The context as the hooks left it, if there are hooks."""
    usage: TokenUsage | None = None
    purpose: str = ""
    """What a side call is for; empty for a call of the conversation itself."""
    withheld: bool = False
    """Whether a hook checks answers and has not let this one pass: then it must not be recorded."""
    conversation_id: str = ""
    span: ModelCallSpan | None = None

    def __enter__(self) -> AsyncGenerator[ModelOutputDelta, None]:
        """The deltas of the provider; pass each to `feed`."""
        if switch.active is not None:
            self._start_span(switch.active)
        self.seconds = -perf_counter()
        deltas: Any = self.client.call_model(self.context if self.sent is None else self.sent, self.options)
        return deltas  # type: ignore[no-any-return]  # clients are async generators, though their type does not show it

    async def run(self, listener: Callable[[ModelOutputDelta], None] | None) -> None:
        """Make the whole call; `listener` is called with each delta."""
        if self.hooks:
            await self.run_before_hooks()
        with self as deltas:
            try:
                if self.span is not None:
                    self.span.attach()
                if listener is None and self.embedded is None and self.span is None:
                    add = self.tracker.add
                    async for delta in deltas:
                        add(delta)
                    self.is_complete = True
                else:
                    async for delta in deltas:
                        _notify(self.feed(delta), listener)
                    _notify(self.finish(), listener)
                if self.hooks:
                    await self.run_after_hooks()
            except BaseException:
                await deltas.aclose()
                raise

    async def run_before_hooks(self) -> None:
        """Let the hooks change the call. Raises `CallRefused`: then it is not made, and nothing is recorded."""
        if not self.hooks:
            return
        self.withheld = checks_answers(self.hooks)
        options = self.options
        call = HookedModelCall(
            model=options.model,
            context=self.context,
            settings=options.settings,
            tools=options.tools,
            usage=self.usage or TokenUsage(),
            purpose=self.purpose,
        )
        await run_before_model(self.hooks, call)
        self.sent = call.context
        options.model, options.settings, options.tools = call.model, call.settings, tuple(call.tools)

    async def run_after_hooks(self) -> None:
        """Let the hooks change a complete answer before it is recorded. Raises `CallRefused`: then it is withheld."""
        if self.hooks and self.tracker.is_finished and self.tracker.error is None:
            self.tracker.replaced = await run_after_model(self.hooks, self.tracker.parts)
            self.withheld = False

    def feed(self, delta: ModelOutputDelta) -> Sequence[ModelOutputDelta]:
        """Add a delta; returns the deltas for a listener."""
        if self.span is not None:
            self.span.observe(delta)
        if self.embedded is None:
            self.tracker.add(delta)
            return (delta,)
        return self._track(self.embedded.feed(delta))

    def finish(self) -> Sequence[ModelOutputDelta]:
        """Mark the answer as complete; returns the deltas that were held back."""
        self.is_complete = True
        return self._track(self.embedded.close()) if self.embedded is not None else ()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        tracker = self.tracker
        if isinstance(error, Exception):
            self.stop_reason, self.error_text = FAILED, f"{type(error).__name__}: {error}"
        elif error is not None or not self.is_complete:
            self.stop_reason = INTERRUPTED
            is_timeout = self.time_limit is not None and self.time_limit.expired()
            self.ended = TIME_BUDGET if is_timeout else INTERRUPTED
        elif not tracker.is_finished:
            self.stop_reason = FAILED
        self.seconds += perf_counter()
        if self.span is not None:
            self._end_span(self.span)
        self.record(self)
        if error is None and self.stop_reason == FAILED:
            if tracker.error is not None:
                raise ModelCallFailed(tracker.error, self.options.report)
            raise ConversationError(f"the provider {self.client.name!r} ended its stream without a terminal event")

    @property
    def failure(self) -> str:
        """Why the call failed, if it did."""
        error = self.tracker.error
        return f"{error.kind}: {error.message}" if error is not None else self.error_text or "no terminal event"

    def _start_span(self, active: Telemetry) -> None:
        options = self.options
        self.span = active.start_model_call(
            options.model,
            ModelName.parse(options.model).provider or self.client.name,
            settings=options.settings,
            context=self.context if self.sent is None else self.sent,
            tools=options.tools,
            conversation_id=self.conversation_id,
            agent=self.source.partition(":")[2],
        )
        options.headers = {**(options.headers or {}), **self.span.headers()}

    def _end_span(self, span: ModelCallSpan) -> None:
        report, tracker, output = self.options.report, self.tracker, self.tracker.output
        if self.withheld:
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

    def _track(self, deltas: list[ModelOutputDelta]) -> list[ModelOutputDelta]:
        for delta in deltas:
            self.tracker.add(delta)
        return deltas


def _notify(deltas: Sequence[ModelOutputDelta], listener: Callable[[ModelOutputDelta], None] | None) -> None:
    if listener is not None:
        for delta in deltas:
            listener(delta)


class CallRecorder:
    """Turns model calls into entries. Losses and repairs are recorded once, not with every call."""

    def __init__(self) -> None:
        self._reported: set[str] = set()

    def entry(self, model_call: RecordedCall, used_ids: Set[str]) -> ModelOutputEntry | DebugLogEntry:
        """The entry for the log; its calls get ids that are not among `used_ids`."""
        tracker, report, stop_reason = model_call.tracker, model_call.options.report, model_call.stop_reason
        error = str(tracker.error.message) if tracker.error else model_call.error_text
        extra = self._report_notes(report)
        # An answer that failed does not end the turn: it can be requested again.
        if model_call.ended and stop_reason != FAILED:
            extra["ended"] = model_call.ended
        metadata = EntryMetadata(
            source=model_call.source,
            duration=int(model_call.seconds * 1e6) / 1e6,
            usage=tracker.usage,
            error=error,
            extra=extra or None,
        )
        if not model_call.withheld:
            output = tracker.entry(report.origin, used_ids, metadata, stop_reason)
            if output is not None:
                return output
        kind = tracker.error.kind if tracker.error else "withheld" if model_call.withheld else stop_reason
        text = f"{report.origin.provider or model_call.client.name}: {kind}: {error or 'no output'}"
        metadata = structs.replace(metadata, source="")
        if tracker.usage is not None:
            metadata = with_model_calls(metadata, [ModelCallUsage(report.origin, tracker.usage)])
        return DebugLogEntry("model call", text, metadata=metadata)

    def debug_notes(self, report: CallReport) -> list[DebugLogEntry]:
        """What the log keeps of a call with `debug`: each body that was sent."""
        metadata = EntryMetadata(source=report.origin.name)
        return [DebugLogEntry("request body", body.decode(), metadata=metadata) for body in report.bodies]

    def _report_notes(self, report: CallReport) -> dict[str, Any]:
        """What the log keeps of a report: failed attempts, and losses and repairs not recorded before."""
        extra: dict[str, Any] = {}
        if report.losses or report.repairs:
            for name, things in (("losses", report.losses), ("repairs", report.repairs)):
                if news := [thing for thing in map(str, things) if thing not in self._reported]:
                    self._reported.update(news)
                    extra[name] = news
        if failed := [f"{attempt.provider}: {attempt.error.message}" for attempt in report.attempts if attempt.error]:
            extra["failed_attempts"] = failed
        return extra


class EmbeddedCallPolicy:
    """The setting of a conversation, and the models that turned out to have no tools."""

    def __init__(self, setting: EmbeddedSetting) -> None:
        if setting != "auto":
            from antiphon.tools.embedded.text_tools import check_setting

            check_setting(setting)
        self.setting = setting
        self._without_tools: set[str] = set()

    def concerns(self, options: ProviderCallOptions) -> bool:
        """Whether a call may have to be changed, or its answer to be read. A call without tools rarely has."""
        return self.setting is not False and (
            bool(options.tools) or self.setting != "auto" or bool(self._without_tools)
        )

    def prepare(
        self, context: LiveContext, options: ProviderCallOptions, version: int
    ) -> tuple[LiveContext, ProviderCallOptions, EmbeddedCalls | None]:
        """The call as the model can read it, and the reader of its answer."""
        from antiphon.tools.embedded import EmbeddedCalls, with_text_tools
        from antiphon.tools.embedded.text_tools import mode_for

        mode = mode_for(self.setting, options.model)
        if mode == "auto" and options.model in self._without_tools:
            mode = "prompt"
        reader = None
        if options.tools and mode is not False:
            reader = EmbeddedCalls(options.tools, id_seed=str(version), only_closed=mode == "auto")
        if mode == "prompt":
            entries, options = with_text_tools(context, options)
            context = LiveContext(entries, context.left_out, screen=context.screen)
        return context, options, reader

    def can_retry(self, error: ProviderError, model: str) -> bool:
        """Whether the provider answered that `model` has no tools. It is called without them from then on."""
        from antiphon.tools.embedded.text_tools import is_unsupported, mode_for

        if model in self._without_tools or mode_for(self.setting, model) != "auto" or not is_unsupported(error):
            return False
        logger.info("%s does not support tools; describing them in the prompt", model)
        self._without_tools.add(model)
        return True


def check_model(model: object) -> str | ProviderClient:
    """A model as a name or a client; an empty name is the default. Raises `ConversationError`."""
    if model is None or isinstance(model, str | ProviderClient):
        return model or ""
    adapted: ProviderClient | None = adapt("model", model)
    if adapted is None:
        raise ConversationError(f"a model is a name or a ProviderClient, not {type(model).__name__}")
    return adapted
