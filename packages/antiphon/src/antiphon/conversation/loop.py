"""`ToolLoop`: runs turns: model and tools in rounds, within bounds, streamed as events.

The turn runs in a task of its own (`TurnRunner`) that puts events into a queue; `stream` yields them. So tools report progress
in parallel and a slow reader does not block them. An interruption cancels that task: by `interrupt`, by a reader that stops or
is cancelled (Ctrl-C), or by a new message to the same conversation.

Calls that need approval suspend the turn. `approve`, `deny` and `edit` record decisions; `resume` continues, in any process.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from msgspec import UNSET, Struct, UnsetType

from antiphon.conversation.agent import Agent, AgentTeam, Participants, RouteFunction
from antiphon.conversation.approval import Decision, decide
from antiphon.conversation.conversation import Conversation
from antiphon.conversation.events import EndReason, EventQueue, LoopEvent, LoopFinished, StepResult, without_text
from antiphon.conversation.message import make_entry
from antiphon.conversation.model_settings import SettingsLike, read_settings
from antiphon.conversation.output.typed_output import OutputParticipants, OutputRequest, OutputType
from antiphon.conversation.run import RunMeter
from antiphon.conversation.sync import run_sync
from antiphon.conversation.turn import AGENT_CHANNEL, Bounds
from antiphon.conversation.turn_runner import ActiveTurn, TurnRunner
from antiphon.errors import AntiphonError, ConversationError, InvalidOutput
from antiphon.history import ModelInputEntry, ModelOutputEntry, ToolCallResultsEntry
from antiphon.parts import InputPart, TokenUsage, ToolCallRequest, ToolCallResult
from antiphon.providers.call import ModelCallFailed
from antiphon.telemetry import switch
from antiphon.tools.call_runner import OnInterrupt
from antiphon.wire.request import ModelRequest

if TYPE_CHECKING:
    from antiphon.telemetry.spans import Telemetry


T = TypeVar("T")


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

    `bounds`, or its fields (`max_rounds=10`, `seconds=60`), limit a turn and its run. `on_interrupt` decides whether
    running tools are cancelled or awaited. `agents` share the conversation (the first begins); `route` decides who is next after
    an answer. `settings` go before those of the conversation. With `rolls_back_failures`, a turn that fails (a model
    call, or any other error that is raised) is rolled back, its question included. `name` is the agent's name in traces.
    """

    def __init__(
        self,
        chat: Conversation,
        *,
        bounds: Bounds | None = None,
        on_interrupt: OnInterrupt = "cancel",
        agents: Sequence[Agent] = (),
        route: RouteFunction | None = None,
        max_hand_overs: int = 10,
        rolls_back_failures: bool = False,
        settings: SettingsLike | None = None,
        name: str = "",
        max_rounds: int | None = None,
        max_failed_rounds: int | None = None,
        max_repeats: int | None = None,
        tokens: int | None = None,
        seconds: float | None = None,
        calls: int | None = None,
    ) -> None:
        if not isinstance(chat, Conversation):
            raise ConversationError(f"ToolLoop({chat!r}): expected a Conversation: ToolLoop(Conversation({chat!r}))")
        if on_interrupt not in ("cancel", "await"):
            raise ConversationError(f"on_interrupt is 'cancel' or 'await', not {on_interrupt!r}")
        if max_hand_overs < 0:
            raise ConversationError(f"max_hand_overs={max_hand_overs}: must not be negative")
        if route is not None and not agents:
            raise ConversationError("route= needs agents=")
        if route is not None and not callable(route):
            raise ConversationError(f"route={route!r}: expected a function of agent and answer")
        self.chat = chat
        self.name = name
        self.bounds = Bounds.of(
            bounds,
            max_rounds=max_rounds,
            max_failed_rounds=max_failed_rounds,
            max_repeats=max_repeats,
            tokens=tokens,
            seconds=seconds,
            calls=calls,
        )
        self._on_interrupt: OnInterrupt = on_interrupt
        self._participants = AgentTeam(chat, agents) if agents else Participants(chat)
        self._route = route
        self._max_hand_overs = max_hand_overs
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
        events = EventQueue()
        request = self._output_request(output, output_retries)
        async with self._start_turn(content, events.put, steps, settings, request) as active_turn:
            active_turn.task.add_done_callback(events.close)
            async for event in events:
                yield event
            if (finished := self._result_event(active_turn)) is not None:
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
        if output is not None and value is None and finished.reason not in ("approval", "interrupted", "stepped"):
            value = OutputType[Any](output).read(entry)  # raises, unless the value is None
        return LoopResult(
            finished.reason,
            finished.text or without_text(finished.reason, self.chat.turn.output),
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
        is_open = finished.reason in ("stepped", "approval")
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
        return TurnRunner(self._participants, self.bounds, None).plan().pending_calls

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
            self.bounds,
            emit,
            self._on_interrupt,
            steps=steps,
            settings=self._turn_settings(settings),
            output=output,
            meter=self.meter,
        )
        if isinstance(question, ModelInputEntry):
            runner.start(question)
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
        client, name = self.chat.resolve_model(self.chat.model_or_client if model is None else model)
        is_native = client.has_structured_output(name, with_tools=with_tools)
        return OutputRequest(OutputType[Any](output), retries, is_native=is_native)

    async def _run_turn(self, active_turn: ActiveTurn) -> None:
        runner, output = active_turn.runner, active_turn.output
        try:
            reason = await runner.run()
            while reason == "answered" and (self._hand_over(runner) or (output and self._correct(runner, output))):
                reason = await runner.run()
            active_turn.finished = self._finished_event(reason, None, output)
        except ModelCallFailed as failure:
            runner.close_calls("the answer that asked for it was cut off")
            active_turn.finished = self._finished_event("failed", failure)
            self._roll_back(failure.error.kind)
        except asyncio.CancelledError:
            active_turn.finished = self._finish_interrupted(runner)
            if not active_turn.is_interrupted:
                raise
        except Exception as error:
            with suppress(AntiphonError):  # a store that failed, or a lost lease: the first error says so
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

    def _result_event(self, active_turn: ActiveTurn) -> LoopFinished | None:
        """The last event of the turn; None if the turn failed with an error."""
        if active_turn.finished is None and active_turn.was_interrupted:  # before its first step
            active_turn.finished = self._finish_interrupted(active_turn.runner)
        return active_turn.finished

    def _finish_interrupted(self, runner: TurnRunner) -> LoopFinished:
        runner.finish_interrupted()
        return self._finished_event("interrupted")

    def _hand_over(self, runner: TurnRunner) -> bool:
        """Start the next agent that the route chooses, or record that the limit is reached; False if the route ends the turn."""
        participants = self._participants
        if self._route is None or not isinstance(participants, AgentTeam):
            return False
        chosen = participants.route_next(self._route)
        if chosen is None:
            return False
        agent, text = chosen
        if runner.may_hand_over(self._max_hand_overs):
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
        failure: ModelCallFailed | None = None,
        output: OutputRequest[Any] | None = None,
    ) -> LoopFinished:
        turn, totals = self.chat.turn, self.chat.totals
        value = None
        if output is not None and reason != "approval":
            with suppress(InvalidOutput):
                value = output.type.read(turn.output)
        return LoopFinished(
            reason, turn.refusal or turn.answer, totals.rounds, totals.usage, failure.error if failure else None, value
        )
