"""`ToolLoop`: runs turns: model and tools in rounds, within limits, streamed as events.

The turn runs in a task of its own (`TurnRunner`) that puts events into a queue; `stream` yields them. So tools report progress
in parallel and a slow reader does not block them. An interruption cancels that task: by `interrupt`, by a reader that stops or
is cancelled (Ctrl-C), or by a new message to the same conversation.

Calls that need approval suspend the turn. `approve`, `deny` and `edit` record decisions; `resume` continues, in any process.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from threading import get_ident
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack, overload

from msgspec import UNSET, Struct, UnsetType

from antiphon.closing import run_sync
from antiphon.conversation.agent import Agent, AgentTeam, Participants, RouteFunction
from antiphon.conversation.approval import Decision, decide
from antiphon.conversation.conversation import Conversation
from antiphon.conversation.events import (
    EndReason,
    EntryAppended,
    EventQueue,
    LoopEvent,
    LoopFinished,
    StepResult,
    explain_empty_answer,
)
from antiphon.conversation.message import make_entry
from antiphon.conversation.model_settings import SettingsLike, read_settings
from antiphon.conversation.output.typed_output import OutputParticipants, OutputRequest, OutputType
from antiphon.conversation.run import LimitOptions, RunLimits
from antiphon.conversation.run_meter import RunMeter
from antiphon.conversation.turn import AGENT_CHANNEL
from antiphon.conversation.turn_runner import ActiveTurn, TurnRunner
from antiphon.errors import AntiphonError, ConversationError, InvalidOutput
from antiphon.history import HistoryEntry, ModelInputEntry, ModelOutputEntry, ToolCallResultsEntry
from antiphon.parts import InputPart, TokenUsage, ToolCallRequest, ToolCallResult
from antiphon.providers.call import ModelCallFailed
from antiphon.telemetry import switch
from antiphon.tools.call_runner import OnInterrupt
from antiphon.wire.output import ProviderError
from antiphon.wire.request import ModelRequest

if TYPE_CHECKING:
    from antiphon.telemetry.spans import Telemetry


T = TypeVar("T")

_UNFINISHED = ("approval", "waiting", "interrupted", "stepped")
"""The ends of a run that is to go on."""


class LoopResult(Struct, Generic[T], frozen=True):
    """How a run ended. `text` is the last answer, or why there is none; `entry` is its entry; `pending` are the calls that wait
    for a person. `rounds` and `usage` are those of the whole run: everything since the last message of a person."""

    reason: EndReason
    text: str
    rounds: int
    usage: TokenUsage
    entry: ModelOutputEntry | None = None
    pending: tuple[ToolCallRequest, ...] = ()
    value: T | UnsetType = UNSET

    @property
    def output(self) -> T:
        """The checked value of `run(…, output=T)`; without `output=` the entry of the last answer.

        Raises `InvalidOutput` if the turn ended before the model gave one, as when it waits for a person.
        """
        if self.value is UNSET:
            raise InvalidOutput(f"the turn ended ({self.reason}) without an answer of the requested type")
        return self.value

    def __str__(self) -> str:
        return self.text


class ToolLoop:
    """Runs the turns of a conversation.

    `limits`, or its fields (`max_rounds=10`, `max_cost=0.50`), limit a turn and its run. `on_interrupt` decides whether
    running tools are cancelled or awaited. `agents` share the conversation (the first begins); `route` decides who is next after
    an answer. `settings` go before those of the conversation. With `rolls_back_failures`, a turn that fails (a model
    call, or any other error that is raised) is rolled back, its question included. `name` is the agent's name in traces.
    """

    def __init__(
        self,
        chat: Conversation,
        *,
        limits: RunLimits | None = None,
        on_interrupt: OnInterrupt = "cancel",
        agents: Sequence[Agent] = (),
        route: RouteFunction | None = None,
        rolls_back_failures: bool = False,
        settings: SettingsLike | None = None,
        name: str = "",
        **limit_options: Unpack[LimitOptions],
    ) -> None:
        if not isinstance(chat, Conversation):
            raise ConversationError(f"ToolLoop({chat!r}): expected a Conversation: ToolLoop(Conversation({chat!r}))")
        if on_interrupt not in ("cancel", "await"):
            raise ConversationError(f"on_interrupt is 'cancel' or 'await', not {on_interrupt!r}")
        if route is not None and not agents:
            raise ConversationError("route= needs agents=")
        if route is not None and not callable(route):
            raise ConversationError(f"route={route!r}: expected a function of agent and answer")
        self.chat = chat
        self.name = name
        self.limits = RunLimits.of(limits, limit_options)
        self._on_interrupt: OnInterrupt = on_interrupt
        self._participants = AgentTeam(chat, agents) if agents else Participants(chat)
        self._route = route
        self._rolls_back = rolls_back_failures
        self._settings = None if settings is None else read_settings(settings)
        self.meter: RunMeter | None = None
        """Of an agent that works as a tool: compares what it uses with its limits and with those of its caller."""

    async def stream(
        self,
        *content: InputPart | str,
        output: Any = None,
        output_retries: int = 2,
        settings: SettingsLike | None = None,
        steps: int | None = None,
    ) -> AsyncGenerator[LoopEvent, None]:
        """Send a message and yield events, up to one `LoopFinished`. Without content, continue the current turn.

        With `output`, a type, the answer is a value of it: `PartialOutput` events while it comes in, and the checked value in
        `LoopFinished.output`. An answer that does not fit is requested again, `output_retries` times.

        A failed model call ends with `LoopFinished("failed")`; a failed tool is a result for the model. With `steps`, it
        stops after so many calls of the model or runs of the calls of one output (`LoopFinished("stepped")`).
        """
        events: EventQueue[LoopEvent] = EventQueue()
        request = self._output_request(output, output_retries)
        async with self._start_turn(content, events.put, steps, settings, request) as active_turn:
            active_turn.task.add_done_callback(events.close)
            async for event in events:
                yield event
            finished = self._result_event(active_turn)
            async for event in events:  # of a turn that was interrupted before its first step
                yield event
            yield finished
            await active_turn.wait()

    def resume(self, *, steps: int | None = None) -> AsyncGenerator[LoopEvent, None]:
        """Continue the turn after a crash, a decision or a failure. If it is over, only `LoopFinished` is yielded."""
        return self.stream(steps=steps)

    @overload
    async def run(
        self, *content: InputPart | str, settings: SettingsLike | None = None
    ) -> LoopResult[ModelOutputEntry | None]: ...

    @overload
    async def run(
        self,
        *content: InputPart | str,
        output: type[T],
        output_retries: int = 2,
        settings: SettingsLike | None = None,
    ) -> LoopResult[T]: ...

    @overload
    async def run(
        self, *content: InputPart | str, output: Any, output_retries: int = 2, settings: SettingsLike | None = None
    ) -> LoopResult[Any]: ...

    async def run(
        self,
        *content: InputPart | str,
        output: Any = None,
        output_retries: int = 2,
        settings: SettingsLike | None = None,
    ) -> LoopResult[Any]:
        """Run a turn and return its result. Raises `ModelCallFailed` if no provider answered.

        `output` is the type of the answer: a msgspec Struct, dataclass, TypedDict, pydantic model, Literal, list or union. The
        model is asked again, `output_retries` times, if its answer does not fit; then `InvalidOutput` is raised. `settings` go
        before those of the loop and the conversation.
        """
        finished = await self.run_to_end(*content, output=output, output_retries=output_retries, settings=settings)
        if finished.error is not None:
            raise ModelCallFailed(finished.error, self.chat.report)
        entry = self.chat.turn.output
        value = entry if output is None else finished.output
        if output is not None and value is None and finished.reason not in _UNFINISHED:
            value = OutputType[Any](output).read(entry)  # raises, unless the value is None
        return LoopResult(
            finished.reason,
            finished.text or explain_empty_answer(finished.reason, self.chat.turn.output),
            finished.rounds,
            finished.usage,
            entry,
            self.pending if finished.reason == "approval" else (),
            UNSET if output is not None and value is None and finished.reason != "answered" else value,
        )

    async def run_to_end(
        self,
        *content: InputPart | str,
        on_event: Callable[[LoopEvent], None] | None = None,
        output: Any = None,
        output_retries: int = 2,
        settings: SettingsLike | None = None,
        steps: int | None = None,
    ) -> LoopFinished:
        """Run a turn (or continue it, without content) and return its last event, a failed call of the model included.

        `on_event` is called with every event; if it raises, the turn is interrupted. Other arguments as for `stream`.
        """
        finished: LoopFinished | None = None
        if on_event is None:
            request = self._output_request(output, output_retries)
            async with self._start_turn(content, None, steps, settings, request) as active_turn:
                await asyncio.wait((active_turn.task,))
                finished = self._result_event(active_turn)
                await active_turn.wait()
        else:
            stream = self.stream(*content, output=output, output_retries=output_retries, settings=settings, steps=steps)
            async with aclosing(stream) as events:
                async for event in events:
                    on_event(event)
                    if isinstance(event, LoopFinished):
                        finished = event
        assert finished is not None, "a stream ends with LoopFinished"
        return finished

    async def step(self, *content: InputPart | str, steps: int = 2) -> StepResult:
        """Run one round (a call of the model and the calls it made) and say what follows. Without content, continue the turn."""
        finished = await self.run_to_end(*content, steps=steps)
        if finished.error is not None:
            raise ModelCallFailed(finished.error, self.chat.report)
        turn = self.chat.turn
        results: tuple[ToolCallResult, ...] = ()
        for entry in reversed(self.chat.history.effective):
            if entry is turn.input:
                break
            if isinstance(entry, ToolCallResultsEntry):
                results = entry.results
                break
        is_open = finished.reason in ("stepped", "approval", "waiting")
        prompt = "\n\n".join(result.result_markdown for result in results) if is_open and not turn.open_calls else ""
        return StepResult(finished.text, is_open, results[-1] if results else None, prompt)

    @overload
    def run_sync(
        self, *content: InputPart | str, settings: SettingsLike | None = None
    ) -> LoopResult[ModelOutputEntry | None]: ...

    @overload
    def run_sync(
        self,
        *content: InputPart | str,
        output: type[T],
        output_retries: int = 2,
        settings: SettingsLike | None = None,
    ) -> LoopResult[T]: ...

    @overload
    def run_sync(
        self, *content: InputPart | str, output: Any, output_retries: int = 2, settings: SettingsLike | None = None
    ) -> LoopResult[Any]: ...

    def run_sync(
        self,
        *content: InputPart | str,
        output: Any = None,
        output_retries: int = 2,
        settings: SettingsLike | None = None,
    ) -> LoopResult[Any]:
        """`run` from code that does not await."""
        return run_sync(self.run(*content, output=output, output_retries=output_retries, settings=settings))

    async def interrupt(self) -> bool:
        """Interrupt the running turn and wait until it is closed, keeping the partial answer; False if none is running."""
        active_turn = self.chat.active_turn
        if active_turn is None or active_turn.task.done():
            return False
        task = active_turn.task
        if task.get_loop() is not asyncio.get_running_loop():
            raise ConversationError("a turn of this conversation is running in another event loop; interrupt it there")
        active_turn.is_interrupted = True
        task.cancel()
        await asyncio.wait([task])
        return True

    @property
    def pending(self) -> tuple[ToolCallRequest, ...]:
        """The calls that need approval, according to the log or to the tools of this process."""
        return TurnRunner(self._participants, self.limits, None).plan().pending_calls

    def approve(self, tool_call_id: str, reason: str = "") -> None:
        """Allow a call. It runs when the turn is resumed."""
        self.decide(Decision(tool_call_id=tool_call_id, decision="approve", reason=reason))

    def deny(self, tool_call_id: str, reason: str = "") -> None:
        """Deny a call. The model sees that, with the reason."""
        self.decide(Decision(tool_call_id=tool_call_id, decision="deny", reason=reason))

    def edit(self, tool_call_id: str, arguments: dict[str, Any] | str, reason: str = "") -> None:
        """Allow a call with other arguments. The model sees them."""
        self.decide(Decision(tool_call_id=tool_call_id, decision="edit", reason=reason, arguments=arguments))

    def decide(self, *decisions: Decision) -> None:
        """Record decisions, all or none. Repeating one changes nothing."""
        decide(self.chat.history, *decisions)

    @asynccontextmanager
    async def _start_turn(
        self,
        content: Sequence[InputPart | str],
        emit: Callable[[LoopEvent], None] | None,
        steps: int | None,
        settings: SettingsLike | None,
        output: OutputRequest[Any] | None,
    ) -> AsyncIterator[ActiveTurn]:
        """Start the turn as a task. Leaving the block early interrupts it."""
        question = make_entry("user", content) if content else None
        while await self.interrupt():  # again, if another turn was started meanwhile
            pass
        participants = self._participants
        if output is not None and not output.is_native:
            participants = OutputParticipants(participants, output.type.tool)
        runner = TurnRunner(
            participants,
            self.limits,
            emit,
            self._on_interrupt,
            steps=steps,
            settings=self._turn_settings(settings),
            output=output,
            meter=self.meter,
        )
        stop_listening = None if emit is None else self.chat.history.on_append(_EntryEvents(emit))
        try:
            if isinstance(question, ModelInputEntry):
                runner.start(question)
        except BaseException:
            if stop_listening is not None:
                stop_listening()
            raise
        active_turn = self.chat.active_turn = ActiveTurn(runner, output)
        running = (
            self._run_turn(active_turn) if switch.active is None else self._run_in_span(active_turn, switch.active)
        )
        active_turn.task = task = asyncio.ensure_future(running)
        try:
            yield active_turn
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait([task])
                if not task.cancelled():
                    task.exception()  # retrieved: the caller left for a reason of its own (a lease that was lost, say)
            if stop_listening is not None:
                stop_listening()
            if self.chat.active_turn is active_turn:
                self.chat.active_turn = None

    def _turn_settings(self, settings: SettingsLike | None) -> ModelRequest | None:
        if self._settings is None and settings is None:
            return None  # the conversation's, as they are when the model is called
        return read_settings(settings, read_settings(self._settings, self.chat.settings))

    def _output_request(self, output: Any, retries: int) -> OutputRequest[Any] | None:
        if output is None:
            return None
        if retries < 0:
            raise ConversationError(f"output_retries={retries}: must not be negative")
        with_tools = bool(self.chat.registry.sources or len(self.chat.registry)) or self._route is not None
        model = self._participants.model
        client, name = self.chat.resolve_model(model)
        is_native = client.has_structured_output(name, with_tools=with_tools)
        return OutputRequest(OutputType[Any](output), retries, is_native=is_native)

    async def _run_turn(self, active_turn: ActiveTurn) -> None:
        runner, output = active_turn.runner, active_turn.output
        try:
            reason = await runner.run()
            while reason == "answered" and (self._hand_off(runner) or (output and self._correct(runner, output))):
                reason = await runner.run()
            active_turn.finished = self._finished_event(reason, None, output)
        except ModelCallFailed as failure:
            runner.close_calls("the answer that asked for it was cut off")
            active_turn.finished = self._finished_event("failed", failure.error)
            self._roll_back(failure.error.kind)
        except asyncio.CancelledError:
            active_turn.finished = self._finish_interrupted(runner)
            if not active_turn.is_interrupted:
                raise
        except Exception as error:
            # Raised too, once the listener knows that the turn is over: a model that raises, a store that fails, a mistake.
            problem = ProviderError(_describe(error), "server", code=type(error).__name__)
            active_turn.finished = LoopFinished("failed", error=problem)
            with suppress(AntiphonError):  # a store that failed, or a lost lease: the first error says so
                active_turn.finished = self._finished_event("failed", problem)
                self._roll_back(type(error).__name__)
            raise

    def _roll_back(self, reason: str) -> None:
        """Take back the question and all that followed, if the caller wants that of failed turns."""
        if self._rolls_back and (question := self.chat.turn.input) is not None:
            self.chat.history.rollback(question.sequence_number - 1, f"the turn failed ({reason})")

    async def _run_in_span(self, active_turn: ActiveTurn, active: Telemetry) -> None:
        """Run the turn as the span `invoke_agent`; a turn of several agents as `invoke_workflow`, with a span for each agent."""
        chat, team = self.chat, self._participants
        descriptions = team.descriptions if isinstance(team, AgentTeam) else None
        span = active.start_turn(self.name, model=chat.model, conversation_id=chat.key, descriptions=descriptions)
        active_turn.runner.span = span
        error = ""
        try:
            await self._run_turn(active_turn)
        except BaseException as raised:
            error = type(raised).__name__
            raise
        finally:
            finished = active_turn.finished or self._finished_event("failed")
            if not error and finished.reason in ("failed", "interrupted"):
                error = finished.error.kind if finished.error is not None else finished.reason
            span.end(finished.reason, finished.rounds, chat.totals.calls, finished.usage, error)

    def _result_event(self, active_turn: ActiveTurn) -> LoopFinished:
        """The last event of the turn."""
        if active_turn.finished is None:  # interrupted before its first step, or the process ends
            if not active_turn.was_interrupted:
                active_turn.task.result()
            active_turn.finished = self._finish_interrupted(active_turn.runner)
        return active_turn.finished

    def _finish_interrupted(self, runner: TurnRunner) -> LoopFinished:
        runner.finish_interrupted()
        return self._finished_event("interrupted")

    def _hand_off(self, runner: TurnRunner) -> bool:
        """Start the next agent that the route chooses, or record that the limit is reached; False if the route ends the turn."""
        participants = self._participants
        if self._route is None or not isinstance(participants, AgentTeam):
            return False
        chosen = participants.route_next(self._route)
        if chosen is None:
            return False
        agent, text = chosen
        if runner.may_hand_off():
            participants.activate(agent)
            runner.start(ModelInputEntry.of(text, channel=AGENT_CHANNEL))
        return True

    def _correct(self, runner: TurnRunner, output: OutputRequest[Any]) -> bool:
        """Request an answer again that does not have the requested type; False if it fits or was requested often enough."""
        correction = output.correction(self.chat.turn)
        if correction is None:
            return False
        runner.start(correction)
        return True

    def _finished_event(
        self,
        reason: EndReason,
        error: ProviderError | None = None,
        output: OutputRequest[Any] | None = None,
    ) -> LoopFinished:
        turn, totals = self.chat.turn, self.chat.totals
        value = None
        if output is not None and reason not in ("approval", "waiting"):
            with suppress(InvalidOutput):
                value = output.type.read(turn.output)
        return LoopFinished(reason, turn.refusal or turn.answer, totals.rounds, totals.usage, error, value)


def _describe(error: Exception) -> str:
    """What a listener may read: the text of an error that is not ours may have anything in it (law L10)."""
    return str(error) if isinstance(error, AntiphonError) else f"{type(error).__name__} was raised; the log says more"


class _EntryEvents:
    """What is appended to the log, as events; also by a tool that runs in a thread."""

    def __init__(self, emit: Callable[[LoopEvent], None]) -> None:
        self._emit = emit
        self._thread = get_ident()
        self._event_loop = asyncio.get_running_loop()

    def __call__(self, entry: HistoryEntry) -> None:
        if get_ident() == self._thread:
            self._emit(EntryAppended(entry))
        else:
            self._event_loop.call_soon_threadsafe(self._emit, EntryAppended(entry))
