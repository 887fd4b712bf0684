"""The events of a `ToolLoop`: small frozen values, in the order in which things happen.

    turn     := calls? round* LoopFinished
    round    := AgentSwitched? RoundStarted CompactionNeeded? RetryScheduled* ModelSwitched? delta* RoundUsage? calls?
    delta    := TextDelta | ThinkingDelta | ToolCallDelta | PartialOutput
    calls    := (ToolCallStarted | ToolCallProgress | ToolCallFinished | ToolCallFailed)* ApprovalNeeded?

Every entry of the log is an event too, `EntryAppended`, between them, where it was appended: the question before the first round;
an output after all deltas of its round and before the start of its calls; the mark of a started call before its
`ToolCallStarted`. So code that draws or mirrors a conversation reads one stream and guesses nothing.

A resumed turn may start with the calls of an earlier round. Exactly one `LoopFinished` ends a stream, with the reason; a mistake
of the caller, or a store that cannot write, is raised after it.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from threading import get_ident
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec import Struct

from antiphon.history import HistoryEntry, ModelOutputEntry
from antiphon.parts import Refusal, Text, Thinking, TokenUsage, ToolCallRequest, ToolCallResult, ToolExecutionStatus
from antiphon.providers.call import RetryScheduled as RetryScheduled
from antiphon.wire.delta import PartDelta, PartStarted
from antiphon.wire.output import ProviderError

if TYPE_CHECKING:
    from antiphon.conversation.conversation import Conversation
    from antiphon.conversation.output.typed_output import OutputRequest, PartialOutputs
    from antiphon.tools.hooks import CallOutcome
    from antiphon.tools.tool import Tool

logger = logging.getLogger(__name__)

EndReason: TypeAlias = Literal[
    "answered",
    "max_rounds",
    "failed_rounds",
    "repeated_calls",
    "token_budget",
    "cost_budget",
    "time_budget",
    "call_budget",
    "context_limit",
    "max_hand_offs",
    "approval",
    "waiting",
    "interrupted",
    "failed",
    "refused",
    "stepped",
]
"""Why a loop ended. `answered`: the model had nothing more to call. The limits: the model answered with what it had.
`max_hand_offs`: the route would have led on. `approval`: a person must decide first. `waiting`: the result of a call comes from
outside. `failed`: the provider did not answer.
`refused`: a hook refused the model call. `context_limit`: the request was too large, and nothing more could be left out.
`stepped`: the requested steps are done, and the turn continues when it is resumed."""

LIMIT_REASONS = frozenset(
    {"max_rounds", "failed_rounds", "repeated_calls", "token_budget", "cost_budget", "time_budget", "call_budget"}
)
"""The reasons that are limits; past one, the model gets one last call without tools."""


_LIMIT_TEXTS: dict[str, str] = {
    "max_rounds": "all rounds of the turn are used; max_rounds= allows more",
    "failed_rounds": "tool calls kept failing",
    "repeated_calls": "the model repeated the same calls",
    "token_budget": "the tokens of the run are used; max_tokens= allows more",
    "cost_budget": "the money of the run is used; max_cost= allows more",
    "time_budget": "the time of the run is used; max_seconds= allows more",
    "call_budget": "the tool calls of the run are used; max_calls= allows more",
    "max_hand_offs": "too many hand-offs between agents; max_hand_offs= allows more",
    "interrupted": "the turn was interrupted",
}


def explain_empty_answer(reason: str, output: ModelOutputEntry | None) -> str:
    """What to show when a turn ends and its last answer has no text, so that it never ends silently."""
    if reason in ("approval", "waiting", "stepped", "failed"):
        return ""
    if output is None and reason == "answered":
        return "(No answer: there is no message to answer.)"
    if output is not None and reason == "answered" and output.content:
        return ""  # an image, or anything else that is not text
    stop = f" (stop reason: {output.stop_reason})" if output is not None and output.stop_reason else ""
    limit = _LIMIT_TEXTS.get(reason, "")
    if output is None:
        return f"(No answer: {limit or 'the model was not called'}.)"
    return f"(No answer: {limit + '; ' if limit else ''}the model's last response has no text{stop}.)"


class EntryAppended(Struct, frozen=True, tag=True):
    """The log has grown by this entry."""

    entry: HistoryEntry


class RoundStarted(Struct, frozen=True, tag=True, gc=False):
    """The model is called. Rounds count from 1 in each turn; `is_last` when it must answer without tools; `agent` is the agent
    that speaks, if there are agents."""

    round: int
    model: str
    is_last: bool = False
    agent: str = ""


class ModelSwitched(Struct, frozen=True, tag=True, gc=False):
    """This answer comes from a different model than the previous one."""

    before: str
    after: str


class TextDelta(Struct, frozen=True, tag=True, gc=False):
    """More text of the answer."""

    text: str


class ThinkingDelta(Struct, frozen=True, tag=True, gc=False):
    """More of the model's reasoning."""

    text: str


class ToolCallDelta(Struct, frozen=True, tag=True, gc=False):
    """More of the arguments of a call that the model is writing: JSON text, in pieces. The first piece may be empty.

    `index` tells calls of one answer apart. The id may still change in the log if another call has it.
    """

    index: int
    tool_call_id: str
    tool_name: str
    text: str


class PartialOutput(Struct, frozen=True, tag=True):
    """The typed answer as far as it has come: plain values (dicts, lists, texts) that are not checked yet."""

    value: Any


class RoundUsage(Struct, frozen=True, tag=True, gc=False):
    """What the round cost, and the run so far."""

    usage: TokenUsage
    run: TokenUsage


class ToolCallStarted(Struct, frozen=True, tag=True, gc=False):
    """A tool starts."""

    call: ToolCallRequest
    round: int


class ToolCallProgress(Struct, frozen=True, tag=True, gc=False):
    """A running tool reports progress."""

    call: ToolCallRequest
    message: str
    fraction: float | None = None


class ToolCallFinished(Struct, frozen=True, tag=True, gc=False):
    """A call has its result."""

    call: ToolCallRequest
    result: ToolCallResult
    seconds: float = 0.0
    is_cached: bool = False


class ToolCallFailed(Struct, frozen=True, tag=True, gc=False):
    """A call failed; its result has the reason, which the model sees too."""

    call: ToolCallRequest
    result: ToolCallResult
    seconds: float = 0.0


class ApprovalNeeded(Struct, frozen=True, tag=True, gc=False):
    """These calls need approval: `approve`, `deny` or `edit` each, in this or a later process, and resume."""

    calls: tuple[ToolCallRequest, ...]


class CompactionNeeded(Struct, frozen=True, tag=True, gc=False):
    """The conversation exceeds its token limit. The subscribers were called and may have compacted it."""

    tokens: int
    limit: int


class AgentSwitched(Struct, frozen=True, tag=True, gc=False):
    """Another agent takes over."""

    before: str
    after: str


class LoopFinished(Struct, frozen=True, tag=True):
    """The end of a turn, or of its steps. `text` is the model's last answer, `error` the provider's error if it `failed`."""

    reason: EndReason
    text: str = ""
    rounds: int = 0
    usage: TokenUsage = TokenUsage()
    error: ProviderError | None = None
    output: Any = None
    """The checked value, if the turn was run with `output=`."""


LoopEvent: TypeAlias = (
    EntryAppended
    | RoundStarted
    | RetryScheduled
    | ModelSwitched
    | TextDelta
    | ThinkingDelta
    | ToolCallDelta
    | PartialOutput
    | RoundUsage
    | ToolCallStarted
    | ToolCallProgress
    | ToolCallFinished
    | ToolCallFailed
    | ApprovalNeeded
    | CompactionNeeded
    | AgentSwitched
    | LoopFinished
)


class EventQueue:
    """Events from the running task to the reader, and what is appended to the log; closed when that task is done."""

    def __init__(self) -> None:
        self._events: list[LoopEvent] = []
        self._waiter: asyncio.Future[None] | None = None
        self._is_closed = False
        self._thread = get_ident()
        self._event_loop = asyncio.get_running_loop()

    def put(self, event: LoopEvent) -> None:
        self._events.append(event)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def put_entry(self, entry: HistoryEntry) -> None:
        """An entry was appended; also by a tool that runs in a thread."""
        if get_ident() != self._thread:
            self._event_loop.call_soon_threadsafe(self.put, EntryAppended(entry))
            return
        self._events.append(EntryAppended(entry))
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def close(self, _: object = None) -> None:
        self._is_closed = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def take(self) -> Sequence[LoopEvent]:
        """The events that are there, as soon as there is one; none when it is closed."""
        while not self._events and not self._is_closed:
            self._waiter = self._event_loop.create_future()
            await self._waiter
            self._waiter = None
        events, self._events = self._events, []
        return events


class EventListener:
    """Calls a function with the events of a turn, in order and soon after they happened. If it raises, `stop` is called."""

    def __init__(self, listener: Callable[[LoopEvent], object] | None) -> None:
        self._listener = listener or bool
        self._events: list[LoopEvent] = []
        self._thread = get_ident()
        self._event_loop = asyncio.get_running_loop()
        self.stop: Callable[[], object] = bool
        self.error: BaseException | None = None

    def put(self, event: LoopEvent) -> None:
        if not self._events:
            self._event_loop.call_soon(self.deliver)
        self._events.append(event)

    def put_entry(self, entry: HistoryEntry) -> None:
        """An entry was appended; also by a tool that runs in a thread."""
        if get_ident() != self._thread:
            self._event_loop.call_soon_threadsafe(self.put, EntryAppended(entry))
            return
        if not self._events:
            self._event_loop.call_soon(self.deliver)
        self._events.append(EntryAppended(entry))

    def deliver(self) -> None:
        """Call the function with what has happened."""
        events, self._events = self._events, []
        try:
            for event in events if self.error is None else ():
                self._listener(event)
        except BaseException as error:
            self.error = error
            self.stop()

    def close(self) -> None:
        """Call nothing any more: the listener has left."""
        self._events, self._listener = [], bool

    def end(self, *last: LoopEvent) -> None:
        """Deliver what is left, with the `last` events, and raise the error of the function."""
        self._events += last
        self.deliver()
        if self.error is not None:
            raise self.error


class TurnEvents:
    """What happens in a turn, as events: the deltas of its answers, and its tool calls (it observes a `ToolCallRunner`)."""

    def __init__(
        self, emit: Callable[[LoopEvent], None], chat: Conversation, output: OutputRequest[Any] | None
    ) -> None:
        self._emit = emit
        self._chat = chat
        self._output = output
        self._before = chat.last_origin
        self.round = 0
        """The round whose calls run."""
        self._is_new = True
        self._outputs: PartialOutputs | None = None
        self._events: dict[int, type[TextDelta] | type[ThinkingDelta] | None] = {}
        self._calls: dict[int, ToolCallRequest] = {}

    def start_answer(self) -> None:
        """A model is called."""
        self._is_new = True
        self._outputs = None if self._output is None else self._output.partial_outputs(self._emit)
        self._events, self._calls = {}, {}

    def add_delta(self, delta: PartDelta | PartStarted) -> None:
        """A part of the answer begins, or continues."""
        index = delta.index
        if isinstance(delta, PartDelta):
            event = self._events.get(index)
            if event is not None:
                self._emit(event(delta.text))
            elif call := self._calls.get(index):
                self._emit(ToolCallDelta(index, call.tool_call_id, call.tool_name, delta.text))
            if self._outputs is not None:
                self._outputs.feed(index, delta.text)
            return
        if self._is_new:
            self._is_new, before, self._before = False, self._before, self._chat.report.origin
            if before is not None and before != self._before:
                self._emit(ModelSwitched(before.name, self._before.name))
        if delta.candidate:  # of several candidates the log keeps the first, so only that one has events
            return
        part: Any = delta.part
        event = self._events[index] = _EVENT_TYPES.get(type(part))
        if event is not None and part.text:
            self._emit(event(part.text))
        elif type(part) is ToolCallRequest:
            self._calls[index] = part
            self._emit(ToolCallDelta(index, part.tool_call_id, part.tool_name, part.arguments))
        if self._outputs is not None:
            self._outputs.start(index, part)

    def started(self, call: ToolCallRequest, tool: Tool | None, idempotency_key: str) -> None:  # noqa: ARG002
        self._emit(ToolCallStarted(call, self.round))

    def progress(self, call: ToolCallRequest, message: str, fraction: float | None) -> None:
        self._emit(ToolCallProgress(call, message, fraction))

    def finished(self, call: ToolCallRequest, result: ToolCallResult, outcome: CallOutcome) -> None:
        if result.status is ToolExecutionStatus.SUCCESS:
            self._emit(ToolCallFinished(call, result, outcome.seconds, outcome.is_cached))
        else:
            self._emit(ToolCallFailed(call, result, outcome.seconds))

    def settled(self, call: ToolCallRequest, result: ToolCallResult) -> None:
        is_success = result.status is ToolExecutionStatus.SUCCESS
        self._emit(ToolCallFinished(call, result, 0.0) if is_success else ToolCallFailed(call, result))

    def waits(self, call: ToolCallRequest) -> None:
        self._emit(ToolCallProgress(call, "waits for its result from outside", None))


_EVENT_TYPES: dict[type, type[TextDelta] | type[ThinkingDelta]] = {
    Text: TextDelta,
    Refusal: TextDelta,
    Thinking: ThinkingDelta,
}


CompactionCallback: TypeAlias = Callable[["Conversation", CompactionNeeded], Awaitable[None] | None]


class CompactionCallbacks:
    """What is called when a conversation outgrows its token limit."""

    def __init__(self) -> None:
        self._callbacks: list[CompactionCallback] = []

    def add(self, callback: CompactionCallback) -> Callable[[], None]:
        """Add a callback; call the returned function to remove it."""
        self._callbacks.append(callback)

        def remove() -> None:
            if callback in self._callbacks:
                self._callbacks.remove(callback)

        return remove

    async def call(self, chat: Conversation, event: CompactionNeeded) -> None:
        """Call all of them. One that fails is logged: the turn continues."""
        for callback in tuple(self._callbacks):
            try:
                pending = callback(chat, event)
                if inspect.isawaitable(pending):
                    await pending
            except Exception:
                logger.exception("[%s] a compaction callback failed; the turn continues", chat.id or "memory")
