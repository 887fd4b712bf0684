"""`ToolLoop`: rounds of a model and its tools until there is nothing left to call, with bounds, and streamed as it happens.

The turn is played by a task of its own (`TurnRunner`), which puts events into an inbox; `stream` hands them on. So several tools
can tell of their progress at once, a slow reader does not slow a tool down, and an interruption is one thing: that task is
cancelled. It is cancelled when `interrupt` is called, when whoever reads the stream stops reading or is cancelled (Ctrl-C), and
when something new is said while the turn is still being played, be it through another `ToolLoop` of the same conversation.

Calls that need a person suspend the turn. `approve`, `deny` and `edit` append what was decided, and `resume` goes on, in this
process or in any later one: all that is known of the turn is in the log.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from msgspec import Struct

from antiphon.conversation.agent import CHANNEL, Agent, AgentStage, RouteFunction
from antiphon.conversation.approval import Decision, decide
from antiphon.conversation.blocking import run_blocking
from antiphon.conversation.bounds import Bounds
from antiphon.conversation.conversation import Conversation
from antiphon.conversation.events import EndReason, LoopEvent, LoopFinished
from antiphon.conversation.message import message
from antiphon.conversation.playing import Playing
from antiphon.conversation.stage import Stage
from antiphon.conversation.turn_runner import TurnRunner
from antiphon.errors import ConversationError
from antiphon.history import ModelInputEntry, ModelOutputEntry, TokenUsage
from antiphon.parts import InputPart, ToolCallRequest
from antiphon.providers.call import ModelCallFailed
from antiphon.tools.call_runner import OnInterrupt


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
    """Plays the turns of a conversation.

    `bounds`, or its fields one by one (`max_rounds=10`, `seconds=60`), say how far a turn may go. `on_interrupt` says whether
    running tools are cancelled or awaited. `agents` share the conversation (the first begins); `route` says who is next after
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
            raise ConversationError("give bounds as one value or one by one, not both")
        unknown = set(limits) - set(Bounds.__struct_fields__)
        if unknown:
            known = ", ".join(Bounds.__struct_fields__)
            raise ConversationError(f"a ToolLoop has no setting {', '.join(sorted(unknown))}; its bounds are {known}")
        if on_interrupt not in ("cancel", "await"):
            raise ConversationError(f"on_interrupt is 'cancel' or 'await', not {on_interrupt!r}")
        if max_hand_overs < 0:
            raise ConversationError(f"max_hand_overs must not be negative, and it is {max_hand_overs}")
        if route is not None and not agents:
            raise ConversationError("a route leads from agent to agent: give agents too")
        self.chat = chat
        self.bounds = bounds or Bounds(**limits)
        self._on_interrupt: OnInterrupt = on_interrupt
        self._stage = AgentStage(chat, agents) if agents else Stage(chat)
        self._route = route
        self._max_hand_overs = max_hand_overs

    async def stream(
        self, *content: InputPart | str, steps: int | None = None, spent: float = 0.0
    ) -> AsyncIterator[LoopEvent]:
        """Say something and hear what happens, up to one `LoopFinished`. With nothing to say, go on where the turn stands.

        A failed call of the model is told as `LoopFinished("failed")`; a tool's failure is told to the model. With `steps`, it
        stops after so many calls of the model or runs of the calls of one output (`LoopFinished("stepped")`); `spent` is how
        many seconds the turn was played before, for its time budget.
        """
        inbox = _Inbox()
        async with self._playing(content, inbox.put, steps, spent) as playing:
            loose = self.chat.on_compaction(lambda _, event: inbox.put(event))
            playing.task.add_done_callback(inbox.close)
            try:
                async for event in inbox:
                    yield event
                if (finished := self._end_of(playing)) is not None:
                    yield finished
                await playing.over()
            finally:
                loose()

    def resume(self, *, steps: int | None = None, spent: float = 0.0) -> AsyncIterator[LoopEvent]:
        """Go on with the turn: after a crash, a decision, a failure. If it is over, this only says so."""
        return self.stream(steps=steps, spent=spent)

    async def run(self, *content: InputPart | str) -> LoopResult:
        """Say something and get how the turn ended. Raises `ModelCallFailed` if no provider answered."""
        async with self._playing(content, None) as playing:
            await asyncio.wait((playing.task,))
            finished = self._end_of(playing)
            await playing.over()
        assert finished is not None, "a stream ends with LoopFinished"
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

    def run_sync(self, *content: InputPart | str) -> LoopResult:
        """`run` from code that does not await."""
        return run_blocking(self.run(*content))

    async def interrupt(self) -> bool:
        """End the turn that is being played, keeping what was said; False if none is. Returns when all is in order."""
        playing = self.chat.playing
        if playing is None or playing.task.done():
            return False
        task = playing.task
        if task.get_loop() is not asyncio.get_running_loop():
            raise ConversationError("a turn of this conversation is being played in another thread; interrupt it there")
        playing.is_interrupted = True
        task.cancel()
        await asyncio.wait([task])
        return True

    @property
    def pending(self) -> tuple[ToolCallRequest, ...]:
        """The calls that wait for a person: as the log says, or as the tools of this process do."""
        return TurnRunner(self._stage, self.bounds, None).plan().pending_calls

    def approve(self, tool_call_id: str, reason: str = "") -> None:
        """Allow a call. It runs when the turn is resumed."""
        self.decide(Decision(tool_call_id=tool_call_id, decision="approve", reason=reason))

    def deny(self, tool_call_id: str, reason: str = "") -> None:
        """Refuse a call. The model reads that, with the reason."""
        self.decide(Decision(tool_call_id=tool_call_id, decision="deny", reason=reason))

    def edit(self, tool_call_id: str, arguments: dict[str, Any] | str, reason: str = "") -> None:
        """Allow a call with other arguments. The model reads which."""
        self.decide(Decision(tool_call_id=tool_call_id, decision="edit", reason=reason, arguments=arguments))

    def decide(self, *decisions: Decision) -> None:
        """Record decisions, all or none. Repeating one changes nothing."""
        decide(self.chat.history, *decisions)

    @asynccontextmanager
    async def _playing(
        self,
        content: Sequence[InputPart | str],
        emit: Callable[[LoopEvent], None] | None,
        steps: int | None = None,
        spent: float = 0.0,
    ) -> AsyncIterator[Playing]:
        """Begin the turn, as a task of its own. Whoever leaves before it is over interrupts it."""
        question = message("user", content) if content else None
        while await self.interrupt():  # again, if somebody else began to speak meanwhile
            pass
        runner = TurnRunner(self._stage, self.bounds, emit, self._on_interrupt, steps=steps, spent=spent)
        if isinstance(question, ModelInputEntry):
            runner.start(question)
        playing = self.chat.playing = Playing(runner)
        playing.task = task = asyncio.ensure_future(self._play(playing))
        try:
            yield playing
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait([task])
            if self.chat.playing is playing:
                self.chat.playing = None

    async def _play(self, playing: Playing) -> None:
        runner = playing.runner
        try:
            reason = await runner.run()
            while reason == "answered" and self._hand_over(runner):
                reason = await runner.run()
            playing.finished = self._finished(reason)
        except ModelCallFailed as failure:
            runner.close_calls("the answer that asked for it was cut off")
            playing.finished = self._finished("failed", failure)
        except asyncio.CancelledError:
            playing.finished = self._cut(runner)
            if not playing.is_interrupted:
                raise

    def _end_of(self, playing: Playing) -> LoopFinished | None:
        """How the turn ended; None if something went wrong in it that is not an event."""
        if playing.finished is None and playing.is_cut:  # before its first step
            playing.finished = self._cut(playing.runner)
        return playing.finished

    def _cut(self, runner: TurnRunner) -> LoopFinished:
        runner.finish_interrupted()
        return self._finished("interrupted")

    def _hand_over(self, runner: TurnRunner) -> bool:
        """Ask the route who is next and begin with it, or note that it leads on for too long; False if nobody is next."""
        stage = self._stage
        if self._route is None or not isinstance(stage, AgentStage) or (chosen := stage.routed(self._route)) is None:
            return False
        agent, words = chosen
        if stage.hand_overs >= self._max_hand_overs:
            runner.record_end("max_hand_overs")
        else:
            stage.take_stage(agent)
            runner.start(ModelInputEntry.of(words, channel=CHANNEL))
        return True

    def _finished(self, reason: EndReason, failure: ModelCallFailed | None = None) -> LoopFinished:
        turn = self.chat.turn
        text = turn.output.response_markdown if turn.output else ""
        return LoopFinished(reason, text, turn.rounds, turn.usage, failure.error if failure else None)


class _Inbox:
    """Events from the task that plays to whoever reads; closed when that task is done."""

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

    def __aiter__(self) -> _Inbox:
        return self

    async def __anext__(self) -> LoopEvent:
        while not self._events:
            if self._is_closed:
                raise StopAsyncIteration
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
            self._waiter = None
        return self._events.popleft()
