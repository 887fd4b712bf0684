"""`ToolLoop`: runs turns: model and tools in rounds, within limits, streamed as events.

The turn runs in a task of its own (`TurnRunner`) that puts events into a queue; `stream` yields them. So tools report progress
in parallel and a slow reader does not block them. An interruption cancels that task: by `interrupt`, by a reader that stops or
is cancelled (Ctrl-C), or by a new message to the same conversation.

Calls that need approval suspend the run. `approve`, `deny` and `edit` record decisions; `run` without a message continues, in any
process.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, closing, suppress
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack, overload

from msgspec import UNSET

from antiphon.closing import run_sync
from antiphon.conversation.agent import Agent, AgentTeam, RouteFunction
from antiphon.conversation.approval import Decision, decide
from antiphon.conversation.conversation import Conversation
from antiphon.conversation.events import (
    EndReason,
    EventListener,
    EventQueue,
    LoopEvent,
    LoopFinished,
    explain_empty_answer,
)
from antiphon.conversation.message import make_entry
from antiphon.conversation.model_settings import SettingsLike, read_settings
from antiphon.conversation.output.typed_output import OutputRequest, OutputType
from antiphon.conversation.run import LimitOptions, RunLimits, RunResult
from antiphon.conversation.run_meter import RunMeter
from antiphon.conversation.turn import AGENT_CHANNEL
from antiphon.conversation.turn_runner import ActiveTurn, Participants, TurnRunner
from antiphon.errors import AntiphonError, ConversationError, InvalidOutput
from antiphon.history import ModelInputEntry
from antiphon.parts import InputPart, ToolCallRequest
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


class TurnOptions(TypedDict, total=False):
    """What `stream` takes besides the message and `output`."""

    output_retries: int
    settings: SettingsLike | None
    steps: int | None


class RunOptions(TurnOptions, total=False):
    """What `run` and `run_sync` take besides the message and `output`."""

    on_event: Callable[[LoopEvent], None] | None
    check: bool


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
        self, *content: InputPart | str, output: Any = None, **options: Unpack[TurnOptions]
    ) -> AsyncGenerator[LoopEvent, None]:
        """Send a message and yield events, up to one `LoopFinished`. Without content, continue the current run.

        With `output`, a type, the answer is a value of it: `PartialOutput` events while it comes in, and the checked value in
        `LoopFinished.output`. An answer that does not fit is requested again, `output_retries` times (2). `settings` go before
        those of the loop and the conversation.

        A failed model call ends with `LoopFinished("failed")`; a failed tool is a result for the model. With `steps`, it
        stops after so many calls of the model or runs of the calls of one output (`LoopFinished("stepped")`).
        """
        events = EventQueue()
        async with self._start_turn(content, events, output, **options) as active_turn:
            active_turn.task.add_done_callback(events.close)
            while batch := await events.take():
                for event in batch:
                    yield event
            finished = self._result_event(active_turn)
            for event in await events.take():  # of a turn that was interrupted before its first step
                yield event
            yield finished
            await active_turn.wait()

    @overload
    async def run(self, *content: InputPart | str, **options: Unpack[RunOptions]) -> RunResult[str]: ...

    @overload
    async def run(self, *content: InputPart | str, output: type[T], **options: Unpack[RunOptions]) -> RunResult[T]: ...

    @overload
    async def run(self, *content: InputPart | str, output: Any, **options: Unpack[RunOptions]) -> RunResult[Any]: ...

    async def run(
        self,
        *content: InputPart | str,
        output: Any = None,
        on_event: Callable[[LoopEvent], None] | None = None,
        check: bool = True,
        **options: Unpack[TurnOptions],
    ) -> RunResult[Any]:
        """Send a message, run to the end and return the result. Without content, continue the current run.

        `output` is the type of the answer: a msgspec Struct, dataclass, TypedDict, pydantic model, Literal, list or union; any
        text is a `str`. The model is asked again, `output_retries` times, if its answer does not fit. `on_event` is called with
        every event; if it raises, the turn is interrupted. Other arguments are as for `stream`.

        Raises `ModelCallFailed` if no provider answered, and `InvalidOutput` if no answer fits. With `check=False` the result has
        it: `error`, or an `output` that raises.
        """
        with closing(EventListener(on_event)) as listener:
            async with self._start_turn(
                content, None if on_event is None else listener, output, **options
            ) as active_turn:
                listener.stop = active_turn.task.cancel
                await asyncio.wait((active_turn.task,))
                listener.end()
                finished = self._result_event(active_turn)
                listener.end(finished)
                await active_turn.wait()
        if finished.error is not None and check:
            raise ModelCallFailed(finished.error, self.chat.report)
        return self._result(finished, active_turn.output, check)

    async def step(self, *content: InputPart | str) -> RunResult[str]:
        """Run one round (a call of the model and the calls it made): `requires_follow_up` says whether another follows."""
        return await self.run(*content, steps=2)

    @overload
    def run_sync(self, *content: InputPart | str, **options: Unpack[RunOptions]) -> RunResult[str]: ...

    @overload
    def run_sync(self, *content: InputPart | str, output: type[T], **options: Unpack[RunOptions]) -> RunResult[T]: ...

    @overload
    def run_sync(self, *content: InputPart | str, output: Any, **options: Unpack[RunOptions]) -> RunResult[Any]: ...

    def run_sync(self, *content: InputPart | str, output: Any = None, **options: Unpack[RunOptions]) -> RunResult[Any]:
        """`run` from code that does not await."""
        return run_sync(self.run(*content, output=output, **options))

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
        """The calls that wait for a person."""
        return self.chat.pending

    def approve(self, tool_call_id: str = "", reason: str = "") -> None:
        """Allow a call; without an id, the only one that waits. It runs when the run continues."""
        self.decide(Decision(tool_call_id=tool_call_id or self._only_pending(), decision="approve", reason=reason))

    def deny(self, tool_call_id: str = "", reason: str = "") -> None:
        """Deny a call; without an id, the only one that waits. The model sees that, with the reason."""
        self.decide(Decision(tool_call_id=tool_call_id or self._only_pending(), decision="deny", reason=reason))

    def edit(self, tool_call_id: str, arguments: dict[str, Any] | str, reason: str = "") -> None:
        """Allow a call with other arguments. The model sees them."""
        self.decide(Decision(tool_call_id=tool_call_id, decision="edit", reason=reason, arguments=arguments))

    def _only_pending(self) -> str:
        if len(pending := self.pending) == 1:
            return pending[0].tool_call_id
        waiting = ", ".join(f"{call.tool_call_id} ({call.tool_name})" for call in pending) or "none"
        raise ConversationError(f"say which call is meant; those that wait for a person: {waiting}")

    def decide(self, *decisions: Decision) -> None:
        """Record decisions, all or none. Repeating one changes nothing."""
        decide(self.chat.history, *decisions)

    @asynccontextmanager
    async def _start_turn(
        self,
        content: Sequence[InputPart | str],
        events: EventQueue | EventListener | None,
        output_type: Any,
        output_retries: int = 2,
        settings: SettingsLike | None = None,
        steps: int | None = None,
    ) -> AsyncIterator[ActiveTurn]:
        """Start the turn as a task. Leaving the block early interrupts it."""
        question = make_entry("user", content) if content else None
        is_text = output_type is None or output_type is str  # any answer is one
        output = None if is_text else self._output_request(output_type, output_retries)
        while (
            self.chat.active_turn is not None and await self.interrupt()
        ):  # again, if another turn was started meanwhile
            pass
        runner = TurnRunner(
            self._participants,
            self.limits,
            None if events is None else events.put,
            self._on_interrupt,
            steps=steps,
            # None: the conversation's, as they are when the model is called
            settings=None if self._settings is settings is None else self._turn_settings(settings),
            output=output,
            meter=self.meter,
        )
        stop_listening = None if events is None else self.chat.history.on_append(events.put_entry)
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
                elif active_turn.finished is None:  # before its first step
                    with suppress(AntiphonError):
                        self._finish_interrupted(runner)
            if stop_listening is not None:
                stop_listening()
            if self.chat.active_turn is active_turn:
                self.chat.active_turn = None

    def _turn_settings(self, settings: SettingsLike | None) -> ModelRequest:
        return read_settings(settings, read_settings(self._settings, self.chat.settings))

    def _output_request(self, output: Any, retries: int) -> OutputRequest[Any]:
        if retries < 0:
            raise ConversationError(f"output_retries={retries}: must not be negative")
        with_tools = self._participants.has_tools or self._route is not None
        client, name = self.chat.resolve_model(self._participants.speaker.model)
        is_native = client.has_structured_output(name, with_tools=with_tools)
        return OutputRequest(OutputType[Any](output), retries, is_native=is_native)

    async def _run_turn(self, active_turn: ActiveTurn) -> None:
        runner, output = active_turn.runner, active_turn.output
        try:
            reason = await runner.run()
            while reason == "answered" and (
                (self._route is not None and self._hand_off(runner, self._route))
                or (output is not None and self._correct(runner, output))
            ):
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

    def _hand_off(self, runner: TurnRunner, route: RouteFunction) -> bool:
        """Start the next agent that the route chooses, or record that the limit is reached; False if the route ends the turn."""
        participants = self._participants
        chosen = participants.route_next(route) if isinstance(participants, AgentTeam) else None
        if chosen is None or not isinstance(participants, AgentTeam):
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

    def _result(self, finished: LoopFinished, output: OutputRequest[Any] | None, check: bool) -> RunResult[Any]:
        chat, reason, entry = self.chat, finished.reason, self.chat.turn.output
        text = finished.text or explain_empty_answer(reason, entry)
        value: Any = text
        if output is not None:
            value = UNSET if finished.output is None and reason in _UNFINISHED else finished.output
            if value is None:
                try:
                    value = output.type.read(entry)  # raises, unless the value is None
                except InvalidOutput:
                    if check:
                        raise
                    value = UNSET
        return RunResult(
            reason=reason,
            text=text,
            chat=chat,
            totals=chat.totals.copy(),
            version=chat.history.version,
            entry=entry,
            pending=self.pending if reason == "approval" else (),
            error=finished.error,
            value=value,
        )


def _describe(error: Exception) -> str:
    """What a listener may read: the text of an error that is not ours may have anything in it (law L10)."""
    return str(error) if isinstance(error, AntiphonError) else f"{type(error).__name__} was raised; the log says more"
