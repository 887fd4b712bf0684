"""`ToolLoop`: runs turns: model and tools in rounds, within bounds, streamed as events.

The turn runs in a task of its own (`TurnRunner`) that puts events into a queue; `stream` yields them. So tools report progress
in parallel and a slow reader does not block them. An interruption cancels that task: by `interrupt`, by a reader that stops or
is cancelled (Ctrl-C), or by a new message to the same conversation.

Calls that need approval suspend the turn. `approve`, `deny` and `edit` record decisions; `resume` continues, in any process.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from antiphon.conversation.agent import Agent, AgentTeam, RouteFunction
from antiphon.conversation.approval import Decision, decide
from antiphon.conversation.conversation import Conversation
from antiphon.conversation.events import EndReason, LoopEvent, LoopFinished
from antiphon.conversation.message import make_entry
from antiphon.conversation.sync import run_sync
from antiphon.conversation.turn import AGENT_CHANNEL, Bounds
from antiphon.conversation.turn_runner import Participants, TurnRunner
from antiphon.errors import ConversationError
from antiphon.history import ModelInputEntry, ModelOutputEntry, TokenUsage
from antiphon.parts import InputPart, ToolCallRequest
from antiphon.providers.call import ModelCallFailed
from antiphon.tools.call_runner import OnInterrupt

if TYPE_CHECKING:
    from antiphon.conversation.turn_runner import TurnRunner


class LoopResult(Struct, frozen=True):
    """How a turn ended. `text` is the model's last answer; `pending` are the calls that wait for a person."""

    reason: EndReason
    text: str
    rounds: int
    usage: TokenUsage
    output: ModelOutputEntry | None = None
    pending: tuple[ToolCallRequest, ...] = ()

    def __str__(self) -> str:
        return self.text


class ToolLoop:
    """Runs the turns of a conversation.

    `bounds`, or its fields (`max_rounds=10`, `seconds=60`), limit a turn. `on_interrupt` decides whether
    running tools are cancelled or awaited. `agents` share the conversation (the first begins); `route` decides who is next after
    an answer.
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
        **limits: Any,
    ) -> None:
        if bounds is not None and limits:
            raise ConversationError("give bounds= or single limits, not both")
        unknown = set(limits) - set(Bounds.__struct_fields__)
        if unknown:
            known = ", ".join(Bounds.__struct_fields__)
            raise ConversationError(f"unknown setting {', '.join(sorted(unknown))}; the bounds are {known}")
        if on_interrupt not in ("cancel", "await"):
            raise ConversationError(f"on_interrupt is 'cancel' or 'await', not {on_interrupt!r}")
        if max_hand_overs < 0:
            raise ConversationError(f"max_hand_overs={max_hand_overs}: must not be negative")
        if route is not None and not agents:
            raise ConversationError("route= needs agents=")
        self.chat = chat
        self.bounds = bounds or Bounds(**limits)
        self._on_interrupt: OnInterrupt = on_interrupt
        self._participants = AgentTeam(chat, agents) if agents else Participants(chat)
        self._route = route
        self._max_hand_overs = max_hand_overs

    async def stream(
        self, *content: InputPart | str, steps: int | None = None, spent: float = 0.0
    ) -> AsyncGenerator[LoopEvent, None]:
        """Send a message and yield events, up to one `LoopFinished`. Without content, continue the current turn.

        A failed model call ends with `LoopFinished("failed")`; a failed tool is a result for the model. With `steps`, it
        stops after so many calls of the model or runs of the calls of one output (`LoopFinished("stepped")`); `spent` is how
        many seconds the turn was played before, for its time budget.
        """
        events = _EventQueue()
        async with self._start_turn(content, events.put, steps, spent) as active_turn:
            loose = self.chat.on_compaction(lambda _, event: events.put(event))
            active_turn.task.add_done_callback(events.close)
            try:
                async for event in events:
                    yield event
                if (finished := self._result_event(active_turn)) is not None:
                    yield finished
                await active_turn.wait()
            finally:
                loose()

    def resume(self, *, steps: int | None = None, spent: float = 0.0) -> AsyncGenerator[LoopEvent, None]:
        """Continue the turn after a crash, a decision or a failure. If it is over, only `LoopFinished` is yielded."""
        return self.stream(steps=steps, spent=spent)

    async def run(self, *content: InputPart | str) -> LoopResult:
        """Run a turn and return its result. Raises `ModelCallFailed` if no provider answered."""
        finished = await self.run_to_end(*content)
        if finished.error is not None:
            raise ModelCallFailed(finished.error, self.chat.report)
        return LoopResult(
            finished.reason,
            finished.text,
            finished.rounds,
            finished.usage,
            self.chat.turn.output,
            self.pending if finished.reason == "approval" else (),
        )

    async def run_to_end(
        self,
        *content: InputPart | str,
        on_event: Callable[[LoopEvent], None] | None = None,
        steps: int | None = None,
        spent: float = 0.0,
    ) -> LoopFinished:
        """Run a turn (or continue it, without content) and return its last event, a failed call of the model included.

        `on_event` is called with every event; if it raises, the turn is interrupted. Other arguments as for `stream`.
        """
        finished: LoopFinished | None = None
        if on_event is None:
            async with self._start_turn(content, None, steps, spent) as active_turn:
                await asyncio.wait((active_turn.task,))
                finished = self._result_event(active_turn)
                await active_turn.wait()
        else:
            async with aclosing(self.stream(*content, steps=steps, spent=spent)) as events:
                async for event in events:
                    on_event(event)
                    if isinstance(event, LoopFinished):
                        finished = event
        assert finished is not None, "a stream ends with LoopFinished"
        return finished

    def run_sync(self, *content: InputPart | str) -> LoopResult:
        """`run` from code that does not await."""
        return run_sync(self.run(*content))

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
        steps: int | None = None,
        spent: float = 0.0,
    ) -> AsyncIterator[ActiveTurn]:
        """Start the turn as a task. Leaving the block early interrupts it."""
        question = make_entry("user", content) if content else None
        while await self.interrupt():  # again, if another turn was started meanwhile
            pass
        runner = TurnRunner(self._participants, self.bounds, emit, self._on_interrupt, steps=steps, spent=spent)
        if isinstance(question, ModelInputEntry):
            runner.start(question)
        active_turn = self.chat.active_turn = ActiveTurn(runner)
        active_turn.task = task = asyncio.ensure_future(self._run_turn(active_turn))
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

    async def _run_turn(self, active_turn: ActiveTurn) -> None:
        runner = active_turn.runner
        try:
            reason = await runner.run()
            while reason == "answered" and self._hand_over(runner):
                reason = await runner.run()
            active_turn.finished = self._finished(reason)
        except ModelCallFailed as failure:
            runner.close_calls("the answer that asked for it was cut off")
            active_turn.finished = self._finished("failed", failure)
        except asyncio.CancelledError:
            active_turn.finished = self._finish_interrupted(runner)
            if not active_turn.is_interrupted:
                raise

    def _result_event(self, active_turn: ActiveTurn) -> LoopFinished | None:
        """The last event of the turn; None if the turn failed with an error."""
        if active_turn.finished is None and active_turn.was_interrupted:  # before its first step
            active_turn.finished = self._finish_interrupted(active_turn.runner)
        return active_turn.finished

    def _finish_interrupted(self, runner: TurnRunner) -> LoopFinished:
        runner.finish_interrupted()
        return self._finished("interrupted")

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

    def _finished(self, reason: EndReason, failure: ModelCallFailed | None = None) -> LoopFinished:
        turn = self.chat.turn
        text = turn.output.response_markdown if turn.output else ""
        return LoopFinished(reason, text, turn.rounds, turn.usage, failure.error if failure else None)


class _EventQueue:
    """Events from the running task to the reader; closed when that task is done."""

    def __init__(self) -> None:
        self._events: deque[LoopEvent] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._is_closed = False

    def put(self, event: LoopEvent) -> None:
        self._events.append(event)
        self._wake()

    def close(self, _: object = None) -> None:
        self._is_closed = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def __aiter__(self) -> _EventQueue:
        return self

    async def __anext__(self) -> LoopEvent:
        while not self._events:
            if self._is_closed:
                raise StopAsyncIteration
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
            self._waiter = None
        return self._events.popleft()


class ActiveTurn:
    """The running turn of a conversation: its task, how it ended, and whether `interrupt` was called."""

    __slots__ = ("finished", "is_interrupted", "runner", "task")

    task: asyncio.Task[None]

    def __init__(self, runner: TurnRunner) -> None:
        self.runner = runner
        self.finished: LoopFinished | None = None
        self.is_interrupted = False

    @property
    def was_interrupted(self) -> bool:
        """Whether the task was cancelled before it could close the turn."""
        return self.task.cancelled() and self.is_interrupted

    async def wait(self) -> None:
        """Wait for the task and raise its error, if it has one."""
        if not self.was_interrupted:
            await self.task
