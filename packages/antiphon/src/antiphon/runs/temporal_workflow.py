"""The turn as a Temporal workflow: which activity is next, and the signals it received. Everything else is in the log.

One activity is one step of the turn, so Temporal shows, times and retries each: `look` reads the turn's status if the starter
did not give it, `ask_model` calls the model once, `run_calls` records decisions and runs the calls, `call_off` interrupts the
turn. The workflow keeps a `TurnStatus` of a few bytes and continues as a new run after `steps_per_run` steps.

The file is replayed: it may read only its input, activity results and signals, and changing the order of activities needs
`workflow.patched`. Values are dataclasses, because Temporal's converter reads those in every language. It runs outside the SDK's
sandbox, which would import this package again for each workflow (160 ms); a test replays real histories instead.
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
    raise ExtraMissing("Temporal runs need its SDK; install it with: pip install 'antiphon[temporal]'") from error

LOOK = "antiphon.look"
ASK_MODEL = "antiphon.ask_model"
RUN_CALLS = "antiphon.run_calls"
CALL_OFF = "antiphon.call_off"

_NEXT = {"": LOOK, "model": ASK_MODEL, "calls": RUN_CALLS, "approval": RUN_CALLS}
_LONGEST_RETRY = timedelta(seconds=60)


@dataclass(frozen=True)
class TurnStatus:
    """The status of a turn. `state` is what is next: `model`, `calls`, `approval` of the `pending` calls, or `over`."""

    state: str = ""
    reason: str = ""
    """Why it is over: the reason of `RunResult`."""
    version: int = 0
    """The version of the log."""
    rounds: int = 0
    pending: list[str] = field(default_factory=list)
    note: str = ""
    """The error of a decision that could not be recorded."""


@dataclass(frozen=True)
class Decision:
    """A person's decision on a call: `approve`, `deny`, or `edit` with other arguments."""

    decision: str
    call: str
    reason: str = ""
    arguments: dict[str, Any] | None = None


@dataclass(frozen=True)
class TurnInput:
    """The turn in the log of `conversation`, to run as this `kind` of run.

    `lease_seconds` is the time until another worker gets the step of one that died, `step_seconds` the longest a step may take,
    `max_attempts` how often a step is tried. `standing` and `decisions` pass from one workflow run to the next.
    """

    conversation: str
    kind: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    code: int = 0
    lease_seconds: float = 15.0
    step_seconds: float = 3600.0
    max_attempts: int = 25
    steps_per_run: int = 200
    standing: TurnStatus = field(default_factory=TurnStatus)
    decisions: list[Decision] = field(default_factory=list)


@dataclass(frozen=True)
class Step:
    """The input of an activity: the turn, its status before the step, and the decisions to record."""

    conversation: str
    kind: str
    options: dict[str, Any]
    code: int
    lease_seconds: float
    standing: TurnStatus
    decisions: list[Decision] = field(default_factory=list)


@workflow.defn(name="antiphon.turn", sandboxed=False)
class TurnWorkflow:
    """Runs one turn to its end and returns its last status."""

    @workflow.init
    def __init__(self, turn: TurnInput) -> None:
        self._turn = turn
        self._status = turn.standing
        self._decisions = list(turn.decisions)
        self._is_cancelled = False
        self._is_woken = False
        self._steps = 0
        self._running: workflow.ActivityHandle[TurnStatus] | None = None

    @workflow.run
    async def run(self, turn: TurnInput) -> TurnStatus:  # noqa: ARG002 - `__init__` has it
        try:
            return await self._run_turn()
        except asyncio.CancelledError:  # the workflow itself was cancelled
            self._is_cancelled = True
            await self._run_turn()
            raise

    @workflow.signal
    def approve(self, call: str, reason: str = "") -> None:
        """Approve a call."""
        self._decisions.append(Decision("approve", call, reason))

    @workflow.signal
    def deny(self, call: str, reason: str = "") -> None:
        """Deny a call. The model reads the reason."""
        self._decisions.append(Decision("deny", call, reason))

    @workflow.signal
    def edit(self, call: str, arguments: dict[str, Any], reason: str = "") -> None:
        """Approve a call with other arguments. The model reads them."""
        self._decisions.append(Decision("edit", call, reason, arguments))

    @workflow.signal
    def wake(self) -> None:
        """Read the log again: a pending call was decided there."""
        self._is_woken = True

    @workflow.signal
    def cancel(self) -> None:
        """End the turn, keeping the partial answer."""
        self._is_cancelled = True

    @workflow.query
    def standing(self) -> TurnStatus:
        """The status of the turn."""
        return self._status

    async def _run_turn(self) -> TurnStatus:
        if self._running is not None:
            await self._finish(self._running)
        while self._status.state != "over":
            if self._is_cancelled:
                self._status = await asyncio.shield(self._start_activity(CALL_OFF))
                break
            if self._status.state == "approval" and not (self._decisions or self._is_woken):
                await workflow.wait_condition(lambda: bool(self._decisions) or self._is_woken or self._is_cancelled)
                continue
            if self._steps >= self._turn.steps_per_run or workflow.info().is_continue_as_new_suggested():
                workflow.continue_as_new(self._continued_input())
            self._steps += 1
            self._is_woken = False
            self._running = self._start_activity(_NEXT[self._status.state])
            await self._finish(self._running)
        return self._status

    def _continued_input(self) -> TurnInput:
        """The input of the next workflow run. It must not wait again for decisions that have arrived."""
        status = self._status
        if status.state == "approval":
            status = replace(status, state="calls")
        return replace(self._turn, standing=status, decisions=self._decisions)

    async def _finish(self, running: workflow.ActivityHandle[TurnStatus]) -> None:
        """Wait for a step, or cancel it if the turn is cancelled; `call_off` then closes its open calls."""
        await workflow.wait_condition(lambda: running.done() or self._is_cancelled)
        if not running.done():
            running.cancel()
        try:
            self._status = await running
        except (ActivityError, asyncio.CancelledError):
            if not self._is_cancelled:
                raise
        self._running = None

    def _start_activity(self, name: str) -> workflow.ActivityHandle[TurnStatus]:
        turn = self._turn
        decisions: list[Decision] = []
        if name == RUN_CALLS:
            decisions, self._decisions = self._decisions, decisions
        step = Step(turn.conversation, turn.kind, turn.options, turn.code, turn.lease_seconds, self._status, decisions)
        return workflow.start_activity(
            name,
            step,
            result_type=TurnStatus,
            start_to_close_timeout=timedelta(seconds=turn.step_seconds),
            heartbeat_timeout=timedelta(seconds=turn.lease_seconds),
            retry_policy=RetryPolicy(maximum_interval=_LONGEST_RETRY, maximum_attempts=turn.max_attempts),
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            summary=f"round {self._status.rounds + (name == ASK_MODEL)}",
        )
