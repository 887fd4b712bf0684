"""Turns on Temporal (extra `temporal`): for those who run it already, or outgrow one database.

Temporal says when a step is played and on which machine, and tries again what failed. What the step is, it does not know: that is
`resume`, for one step, under a lease. So the guarantees are those of the log, and hold for whatever Temporal does:

- the messages are in the store; Temporal's history has ids and versions;
- a step that is tried again looks at the log first. What is done there is not done again, and what was begun is gone on with as
  after any crash: a finished tool is not repeated, a `once` tool that may have half-run is told of;
- two attempts at one step, or a worker that wakes up after its time, cannot both write: the later claim has the higher epoch;
- the bounds of the loop are counted in the log, and its seconds are handed on from step to step.

    worker = temporal_worker(client, store, book)           # book: a RunBook, or one function (history, run) -> ToolLoop
    handle = await start_turn(client, store, "What does IELTS 7 need?", kind="research")
    end = await handle.result()

A provider that is away is tried again when it said it would be back. One that will never take the request fails the workflow;
the turn stays as it is in the log, and `start_turn` with that conversation goes on with it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import TYPE_CHECKING, Any

from antiphon.conversation import Decision as CallDecision
from antiphon.conversation import LoopFinished, ToolLoop, Turn
from antiphon.conversation.message import make_entry
from antiphon.conversation.model_call import FAILED
from antiphon.errors import (
    AntiphonError,
    ConversationError,
    RunBookRefused,
    RunRefused,
    UnknownConversation,
    WriterConflict,
)
from antiphon.history import AgentHistory, HistoryStore, Lease, ModelOutputEntry, OpaqueEntry, Run, ToolCallResultsEntry
from antiphon.parts import InputPart
from antiphon.providers.retry import may_retry
from antiphon.runs.book import Build, RunBook
from antiphon.runs.hook import kind_for
from antiphon.runs.idle_turn import close_open_calls, mark_interrupted
from antiphon.runs.sitting import sit
from antiphon.runs.temporal_workflow import (
    ASK_MODEL,
    CALL_OFF,
    LOOK,
    RUN_CALLS,
    Decision,
    Standing,
    Step,
    TurnInput,
    TurnWorkflow,
)
from antiphon.wire.output import ProviderError

if TYPE_CHECKING:
    from temporalio.client import Client, WorkflowHandle
    from temporalio.exceptions import ApplicationError
    from temporalio.worker import Worker

logger = logging.getLogger("antiphon.runs")

TASK_QUEUE = "antiphon"
_BEAT = 1.0
_HOLDER = "whoever starts a turn on Temporal"


def temporal_worker(
    client: Client, store: HistoryStore, build: RunBook | Build, *, task_queue: str = TASK_QUEUE, **options: Any
) -> Worker:
    """A worker of Temporal that plays turns of `store`. `options` are those of `temporalio.worker.Worker`.

    Stopped, it lets the steps it plays come to their end for `graceful_shutdown_timeout`, and leaves the rest to others.
    """
    from temporalio.worker import Worker

    # A cancel is heard with a heartbeat. And a workflow is first offered to whoever had it, who may have been killed.
    options.setdefault("max_heartbeat_throttle_interval", timedelta(seconds=_BEAT))
    options.setdefault("sticky_queue_schedule_to_start_timeout", timedelta(seconds=2))
    options.setdefault("graceful_shutdown_timeout", timedelta(seconds=10))
    return Worker(
        client,
        task_queue=task_queue,
        workflows=[TurnWorkflow, *options.pop("workflows", ())],
        activities=[*turn_activities(store, build), *options.pop("activities", ())],
        **options,
    )


def turn_activities(store: HistoryStore, build: RunBook | Build) -> Sequence[Callable[..., Any]]:
    """The steps of a turn as activities, for a worker of your own or to start from a workflow of your own."""
    from temporalio import activity

    turns = _Turns(store, build)
    steps = {LOOK: turns.look, ASK_MODEL: turns.step, RUN_CALLS: turns.step, CALL_OFF: turns.call_off}

    def named(name: str) -> Callable[..., Any]:
        @activity.defn(name=name)
        async def play(step: Step) -> Standing:
            return await steps[name](step)

        play.__name__ = name
        return play

    return [named(name) for name in steps]


async def start_turn(
    client: Client,
    store: HistoryStore,
    *content: InputPart | str,
    conversation: str | None = None,
    kind: str = "",
    options: Mapping[str, Any] | None = None,
    title: str = "",
    task_queue: str = TASK_QUEUE,
    **limits: Any,
) -> WorkflowHandle[TurnWorkflow, Standing]:
    """Ask something, in a new conversation or a known one, and have it played. With nothing to say, go on with what is there.

    `limits` are the other fields of `TurnInput`. Raises `RunRefused` if the conversation has a turn that is being played.
    """
    from temporalio.common import WorkflowIDConflictPolicy

    if conversation is not None:
        conversation = (await asyncio.to_thread(store.info, conversation)).id
        if content and await _is_played_now(client, conversation):
            raise RunRefused(
                f"conversation {conversation} has a turn on Temporal that is not over; wait for it, or cancel it"
            )
    turn = await asyncio.to_thread(_asked, store, content, conversation, title)
    standing = Standing("model", version=turn.version) if content else Standing()
    return await client.start_workflow(
        TurnWorkflow.run,
        TurnInput(conversation=turn.id, kind=kind, options=dict(options or {}), standing=standing, **limits),
        id=workflow_id(turn.id),
        task_queue=task_queue,
        id_conflict_policy=WorkflowIDConflictPolicy.FAIL if content else WorkflowIDConflictPolicy.USE_EXISTING,
    )


def turn_handle(client: Client, conversation: str) -> WorkflowHandle[TurnWorkflow, Standing]:
    """The turn of a conversation: to wait for, to signal, to ask for its standing."""
    return client.get_workflow_handle_for(TurnWorkflow.run, workflow_id(conversation))


def workflow_id(conversation: str) -> str:
    """The id of the workflow that plays a conversation; Temporal lets only one of that id run."""
    return f"antiphon-{conversation}"


def _asked(
    store: HistoryStore, content: tuple[InputPart | str, ...], conversation: str | None, title: str
) -> AgentHistory:
    if conversation is None and not content:
        raise RunRefused("there is nothing to play: give a question, or a conversation to go on with")
    question = make_entry("user", content) if content else None
    if conversation is not None:
        if any(not run.is_over for run in store.runs.list(conversation=conversation, limit=1)):
            raise RunRefused(
                f"conversation {conversation} has a run that is not over, for `antiphon worker`; cancel that first"
            )
        if question is not None:
            close_open_calls(store, conversation, _HOLDER)
    history = store.create(title) if conversation is None else store.open(conversation)
    if question is not None:
        history.append(question)
    return history


async def _is_played_now(client: Client, conversation: str) -> bool:
    from temporalio.client import WorkflowExecutionStatus
    from temporalio.service import RPCError, RPCStatusCode

    try:
        known = await client.get_workflow_handle(workflow_id(conversation)).describe()
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return False
        raise
    return known.status is WorkflowExecutionStatus.RUNNING


class _Turns:
    """The steps, each in a sitting of its own."""

    def __init__(self, store: HistoryStore, build: RunBook | Build) -> None:
        self._store = store
        self._build = build

    async def look(self, step: Step) -> Standing:
        """Where the turn stands, with nothing played."""
        return await self._sit(step, lambda history, loops: self._played(step, history, loops, steps=0))

    async def step(self, step: Step) -> Standing:
        """One step of the turn, unless it is in the log already."""
        return await self._sit(step, lambda history, loops: self._played(step, history, loops, steps=1))

    async def call_off(self, step: Step) -> Standing:
        """End the turn; what is over stays as it is."""

        async def work(history: AgentHistory, _: list[ToolLoop]) -> Standing:
            mark_interrupted(history)
            turn = Turn.of(history.snapshot())
            seconds = step.standing.seconds
            return Standing("over", turn.ended or "answered", history.version, turn.rounds, seconds=seconds)

        return await self._sit(step, work)

    async def _sit(
        self, step: Step, work: Callable[[AgentHistory, list[ToolLoop]], Coroutine[Any, Any, Standing]]
    ) -> Standing:
        """Do it under the lease, with heartbeats. What goes wrong becomes a failure that Temporal knows what to do about."""
        from temporalio import activity
        from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

        loops: list[ToolLoop] = []

        async def beaten(history: AgentHistory, _: Lease) -> Standing:
            beating = asyncio.ensure_future(_beat(history, min(_BEAT, step.lease_seconds / 5)))
            try:
                return await work(history, loops)
            finally:
                beating.cancel()

        async def halt() -> bool:
            return _is_called_off() and bool(loops) and await loops[0].interrupt()

        benign = ApplicationErrorCategory.BENIGN
        try:
            info = activity.info()
            holder = f"{info.workflow_id} on {socket.gethostname()}:{os.getpid()}, attempt {info.attempt}"
            return await sit(
                self._store, step.conversation, beaten, holder=holder, seconds=step.lease_seconds, halt=halt
            )
        except asyncio.CancelledError:
            if _is_called_off():
                raise
            raise ApplicationError("left for another worker", type="Left", category=benign) from None
        except WriterConflict as error:
            raise ApplicationError(str(error), type=type(error).__name__, category=benign) from None
        except AntiphonError as error:
            is_lasting = isinstance(error, UnknownConversation)
            raise ApplicationError(str(error), type=type(error).__name__, non_retryable=is_lasting) from None

    async def _played(self, step: Step, history: AgentHistory, loops: list[ToolLoop], steps: int) -> Standing:
        run = _run(step)
        kind = kind_for(self._build, run)
        strange = next((entry for entry in history.effective if isinstance(entry, OpaqueEntry)), None)
        if strange is not None:
            number = strange.sequence_number
            raise RunBookRefused(
                f"entry {number} ({strange.kind}) was written by a newer version; a worker of that is needed"
            )
        is_done = _is_done(history, step.standing.version)
        async with kind.loop(history, run) as loop:
            loops.append(loop)
            note = "" if is_done else _decide(loop, step.decisions)
            began = monotonic()
            finished = await loop.run_to_end(steps=0 if is_done else steps, spent=step.standing.seconds)
            if finished.error is not None:
                raise _failure(finished.error)
            return _standing(loop, finished, step.standing.seconds + monotonic() - began, note)


def _run(step: Step) -> Run:
    """The turn as the code of its kind is told of it."""
    from temporalio import activity

    now = datetime.now(UTC)
    return Run(
        id=activity.info().workflow_id or "",
        conversation=step.conversation,
        kind=step.kind,
        code=step.code,
        options=step.options,
        created=now,
        updated=now,
        due=now,
        attempts=activity.info().attempt,
    )


def _is_done(history: AgentHistory, version: int) -> bool:
    """Whether the step that began at `version` is in the log: an answer, or results. An answer that was cut is not one."""
    return any(
        isinstance(entry, ToolCallResultsEntry) or (isinstance(entry, ModelOutputEntry) and entry.stop_reason != FAILED)
        for entry in history.entries[version:]
    )


def _decide(loop: ToolLoop, decisions: Sequence[Decision]) -> str:
    """Record what people decided; the reason if a decision cannot be recorded."""
    note = ""
    for given in decisions:
        arguments = (given.arguments or {}) if given.decision == "edit" else None
        try:
            loop.decide(
                CallDecision(
                    tool_call_id=given.call,
                    decision=given.decision,  # type: ignore[arg-type]  # `decide` checks it
                    reason=given.reason,
                    arguments=arguments,
                )
            )
        except ConversationError as error:
            note = str(error)
            logger.warning("a decision was not recorded: %s", error)
    return note


def _standing(loop: ToolLoop, finished: LoopFinished, seconds: float, note: str) -> Standing:
    state, reason, pending = "over", finished.reason, []
    if finished.reason == "approval":
        state, pending = "approval", [call.tool_call_id for call in loop.pending]
    elif finished.reason == "stepped":
        state = "calls" if loop.chat.turn.open_calls else "model"
    return Standing(
        state,
        reason if state == "over" else "",
        loop.chat.history.version,
        finished.rounds,
        pending,
        round(seconds, 3),
        note,
    )


def _failure(error: ProviderError) -> ApplicationError:
    """A provider that did not answer: tried again when it asks to be, or not at all if that would change nothing."""
    from temporalio.exceptions import ApplicationError

    asked = error.retry_after
    return ApplicationError(
        error.message,
        type=error.kind,
        non_retryable=not may_retry(error),
        next_retry_delay=timedelta(seconds=asked) if asked is not None else None,
    )


def _is_called_off() -> bool:
    """Whether the activity was cancelled by its workflow; and not by a worker that stops, or because its time was over."""
    from temporalio import activity

    details = activity.cancellation_details()
    return details is not None and details.cancel_requested


async def _beat(history: AgentHistory, seconds: float) -> None:
    from temporalio import activity

    while True:
        activity.heartbeat(history.version)
        await asyncio.sleep(seconds)
