"""The turn as a workflow of Temporal: which activity is next, and what was said to it meanwhile. Everything else is in the log.

One activity is one step of the turn, the model asked once or the calls of one output run, so Temporal shows, times and retries
each by itself. What a workflow remembers between two steps is a `Standing`: versions, counts and ids, the same few bytes however
long the conversation is. After `steps_per_run` steps it goes on as a new run, so its own history stays short too.

    look         where does the turn stand? only where the starter did not say
    ask_model    the model is asked once
    run_calls    the calls of its answer run; decisions of people that came in are written down first
    call_off     the turn is ended, as an interruption ends it

Rules for whoever changes this file: it is replayed, so it may look at nothing but its input, the results of its activities and
the signals, and a change of the order in which it starts activities needs `workflow.patched`. Values are dataclasses, because
that is what Temporal's own converter reads and writes, in every language.

It is kept out of the SDK's sandbox, which would import this package anew for each workflow (160 ms) to keep out what is not here;
a test replays real histories instead. And it imports an extra when it is imported: a workflow must be a class of a module.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from antiphon.errors import ExtraMissing

try:
    from temporalio import workflow
    from temporalio.common import RetryPolicy
    from temporalio.exceptions import ActivityError
except ImportError as error:
    raise ExtraMissing("runs on Temporal need its SDK; install it with: pip install 'antiphon[temporal]'") from error

LOOK = "antiphon.look"
ASK_MODEL = "antiphon.ask_model"
RUN_CALLS = "antiphon.run_calls"
CALL_OFF = "antiphon.call_off"

_NEXT = {"": LOOK, "model": ASK_MODEL, "calls": RUN_CALLS, "approval": RUN_CALLS}
_LONGEST_RETRY = timedelta(seconds=60)


@dataclass(frozen=True)
class Standing:
    """Where a turn stands. `state` is what is next: `model`, `calls`, `approval` of the `pending` calls; or it is `over`."""

    state: str = ""
    reason: str = ""
    """Why it is over: the word that `LoopFinished` has for it."""
    version: int = 0
    """The version of the log."""
    rounds: int = 0
    pending: list[str] = field(default_factory=list)
    seconds: float = 0.0
    """How long it was played, which counts against its bound."""
    note: str = ""
    """What became of a decision that could not be taken."""


@dataclass(frozen=True)
class Decision:
    """What a person said of a call: `approve`, `deny`, or `edit` with other arguments."""

    decision: str
    call: str
    reason: str = ""
    arguments: dict[str, Any] | None = None


@dataclass(frozen=True)
class TurnInput:
    """A turn to be played: the one in the log of `conversation`, as the kind of run that workers know by that name.

    `lease_seconds` is after how long the step of a worker that died is given to another; `step_seconds` is how long a step may
    take; `max_attempts` is how often one is tried. `standing` and `decisions` are what a run hands on to the next.
    """

    conversation: str
    kind: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    code: int = 0
    lease_seconds: float = 15.0
    step_seconds: float = 3600.0
    max_attempts: int = 25
    steps_per_run: int = 200
    standing: Standing = field(default_factory=Standing)
    decisions: list[Decision] = field(default_factory=list)


@dataclass(frozen=True)
class Step:
    """What an activity is told: the turn, where it stood when the step was begun, and the decisions to write down."""

    conversation: str
    kind: str
    options: dict[str, Any]
    code: int
    lease_seconds: float
    standing: Standing
    decisions: list[Decision] = field(default_factory=list)


@workflow.defn(name="antiphon.turn", sandboxed=False)
class TurnWorkflow:
    """Plays one turn to its end, and gives its last standing."""

    @workflow.init
    def __init__(self, turn: TurnInput) -> None:
        self._turn = turn
        self._standing = turn.standing
        self._decisions = list(turn.decisions)
        self._is_called_off = False
        self._is_woken = False
        self._steps = 0
        self._running: workflow.ActivityHandle[Standing] | None = None

    @workflow.run
    async def run(self, turn: TurnInput) -> Standing:  # noqa: ARG002 - `__init__` has it
        try:
            return await self._played()
        except asyncio.CancelledError:  # somebody cancelled the workflow itself
            self._is_called_off = True
            await self._played()
            raise

    @workflow.signal
    def approve(self, call: str, reason: str = "") -> None:
        """Allow a call."""
        self._decisions.append(Decision("approve", call, reason))

    @workflow.signal
    def deny(self, call: str, reason: str = "") -> None:
        """Refuse a call. The model is told, with the reason."""
        self._decisions.append(Decision("deny", call, reason))

    @workflow.signal
    def edit(self, call: str, arguments: dict[str, Any], reason: str = "") -> None:
        """Allow a call with other arguments. The model is told which."""
        self._decisions.append(Decision("edit", call, reason, arguments))

    @workflow.signal
    def wake(self) -> None:
        """Look again: what a suspended turn waited for was decided in the log itself."""
        self._is_woken = True

    @workflow.signal
    def cancel(self) -> None:
        """End the turn, keeping what was said."""
        self._is_called_off = True

    @workflow.query
    def standing(self) -> Standing:
        """Where the turn stands."""
        return self._standing

    async def _played(self) -> Standing:
        if self._running is not None:
            await self._finish(self._running)
        while self._standing.state != "over":
            if self._is_called_off:
                self._standing = await asyncio.shield(self._begun(CALL_OFF))
                break
            if self._standing.state == "approval" and not (self._decisions or self._is_woken):
                await workflow.wait_condition(lambda: bool(self._decisions) or self._is_woken or self._is_called_off)
                continue
            if self._steps >= self._turn.steps_per_run or workflow.info().is_continue_as_new_suggested():
                workflow.continue_as_new(self._handed_on())
            self._steps += 1
            self._is_woken = False
            self._running = self._begun(_NEXT[self._standing.state])
            await self._finish(self._running)
        return self._standing

    def _handed_on(self) -> TurnInput:
        """What the next run begins with: what is decided, or was to be looked at, it has not to wait for again."""
        standing = self._standing
        if standing.state == "approval":
            standing = replace(standing, state="calls")
        return replace(self._turn, standing=standing, decisions=self._decisions)

    async def _finish(self, running: workflow.ActivityHandle[Standing]) -> None:
        """Wait for a step, or end it if the turn is called off; what it leaves open then is closed by `call_off`."""
        await workflow.wait_condition(lambda: running.done() or self._is_called_off)
        if not running.done():
            running.cancel()
        try:
            self._standing = await running
        except (ActivityError, asyncio.CancelledError):
            if not self._is_called_off:
                raise
        self._running = None

    def _begun(self, name: str) -> workflow.ActivityHandle[Standing]:
        turn = self._turn
        decisions: list[Decision] = []
        if name == RUN_CALLS:
            decisions, self._decisions = self._decisions, decisions
        step = Step(
            turn.conversation, turn.kind, turn.options, turn.code, turn.lease_seconds, self._standing, decisions
        )
        return workflow.start_activity(
            name,
            step,
            result_type=Standing,
            start_to_close_timeout=timedelta(seconds=turn.step_seconds),
            heartbeat_timeout=timedelta(seconds=turn.lease_seconds),
            retry_policy=RetryPolicy(maximum_interval=_LONGEST_RETRY, maximum_attempts=turn.max_attempts),
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            summary=f"round {self._standing.rounds + (name == ASK_MODEL)}",
        )
