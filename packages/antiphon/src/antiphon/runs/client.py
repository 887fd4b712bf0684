"""`Runs`: submit runs, follow them, decide on their calls, cancel and retry them. It executes nothing.

    runs = Runs(store)
    run = runs.submit("What does IELTS 7 need?", kind="research")
    run = await runs.wait(run.id)

Everything is in the store when a call returns, so another process can continue with the run's id. A decision takes two steps: it
is appended to the log, then the run is woken. If the process dies in between, repeat the decision: it is found in the log, and
the run is woken. A run continues when all of its pending calls are decided.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from msgspec import structs

from antiphon.conversation import Conversation, Decision, RunLimits, Turn, decide
from antiphon.conversation.inbox import put_result, put_steering
from antiphon.conversation.message import make_entry
from antiphon.conversation.turn_runner import Participants, TurnRunner
from antiphon.errors import ConversationError, RunStateError
from antiphon.history import AgentHistory, HistoryEntry, HistoryStore, ModelInputEntry, Run
from antiphon.parts import InputPart, ToolCallRequest
from antiphon.runs.registry import RunRegistry
from antiphon.runs.retry import record_note
from antiphon.threads import STORES

_POLL_SECONDS = 0.2
_LEASE_SECONDS = 10.0
_HOLDER = "runs client"


class Runs:
    """The runs of a store. With the workers' `registry`, submitted runs get the code version and provider of their kind."""

    def __init__(self, store: HistoryStore, registry: RunRegistry | None = None) -> None:
        self.store = store
        self.table = store.runs
        self._registry = registry

    def submit(
        self,
        *content: InputPart | str,
        kind: str = "chat",
        conversation: str | None = None,
        title: str = "",
        code: int | None = None,
        provider: str | None = None,
        options: Mapping[str, Any] | None = None,
        max_waiting: int | None = None,
    ) -> Run:
        """Submit a message for a worker to answer, in a new conversation or in one without an unfinished run.

        Without content, the turn in the log is continued. Raises `TooManyRuns` if `max_waiting` runs are already queued.
        """
        question = make_entry("user", content) if content else None
        if question is not None and not isinstance(question, ModelInputEntry):
            raise ConversationError(f"expected text or parts as the message of a run, got a {question.kind} entry")
        known = self._registry.get(kind) if self._registry is not None else None
        if self._registry is not None and known is None:
            raise RunStateError(f"unknown kind of run {kind!r}; the registry has {', '.join(self._registry.codes)}")
        if conversation is not None and question is not None:
            conversation = self.store.info(conversation).id
            close_open_calls(self.store, conversation, _HOLDER)
        return self.table.submit(
            question,
            kind=kind,
            conversation=conversation,
            title=title,
            code=code if code is not None else known.code if known else 0,
            provider=provider if provider is not None else known.provider if known else "",
            options=options,
            max_waiting=max_waiting,
        )

    def pending(self, run: str) -> tuple[ToolCallRequest, ...]:
        """The calls of a suspended run that need approval."""
        known = self.table.get(run)
        return Turn.of(self.store.open(known.conversation).snapshot()).pending if known.state == "suspended" else ()

    def approve(self, run: str, call: str | None = None, reason: str = "") -> Run:
        """Approve a call; without an id, the only pending one."""
        return self._decide(run, call, Decision(tool_call_id="", decision="approve", reason=reason))

    def deny(self, run: str, call: str | None = None, reason: str = "") -> Run:
        """Deny a call; without an id, the only pending one. The model reads the reason."""
        return self._decide(run, call, Decision(tool_call_id="", decision="deny", reason=reason))

    def edit(self, run: str, arguments: dict[str, Any] | str, call: str | None = None, reason: str = "") -> Run:
        """Approve a call with other arguments; without an id, the only pending one. The model reads the new arguments."""
        decision = Decision(tool_call_id="", decision="edit", reason=reason, arguments=arguments)
        return self._decide(run, call, decision)

    def settle(self, run: str, call: str, result: Any) -> Run:
        """Bring the result of a call that comes from outside (`Settled.later`), and continue the run."""
        known = self.table.get(run)
        put_result(self.store.open(known.conversation), call, result)
        return self.table.wake(known.id) if known.state == "suspended" else known

    def steer(self, run: str, *content: InputPart | str, key: str = "") -> Run:
        """Send a message to a run; the same `key` again changes nothing. If the run is over, another one begins with it.

        Returns the run that reads it.
        """
        entry = make_entry("user", content)
        if not isinstance(entry, ModelInputEntry):
            raise ConversationError(f"steer() takes text or parts, not a {entry.kind} entry")
        known = self.table.get(run)
        put_steering(self.store.inbox(known.conversation), entry, key)
        return continue_steered(self.store, self.table.get(run))

    def cancel(self, run: str, reason: str = "") -> Run:
        """Cancel a run: at once if no worker executes it, else with the next lease renewal of its worker."""
        cancelled = self.table.cancel(run, reason or "cancelled")
        if cancelled.state == "cancelled":
            interrupt_turn(self.store, cancelled.conversation, _HOLDER)
        return cancelled

    def retry(self, run: str) -> Run:
        """Queue a failed run again."""
        known = self.table.get(run)
        if known.state != "failed":
            hint = "decide its pending calls" if known.state == "suspended" else "only failed runs can be retried"
            raise RunStateError(f"run {known.id} is {known.display_state}; {hint}")
        record_note(self.store.open(known.conversation), "retry requested")
        return self.table.wake(known.id)

    async def wait(self, run: str, *, until_suspended: bool = False) -> Run:
        """Wait until the run is over, or with `until_suspended` until it needs approval."""
        while True:
            known = await STORES.run(self.table.get, run)
            if known.is_over or (until_suspended and known.state == "suspended"):
                return known
            await asyncio.sleep(_POLL_SECONDS)

    async def follow(self, run: str) -> AsyncIterator[HistoryEntry]:
        """The entries of the run's turn, including new ones as they are appended, until the run is over."""
        known = await STORES.run(self.table.get, run)
        turn = Turn.of((await STORES.run(self.store.open, known.conversation)).snapshot())
        last = turn.input.sequence_number - 1 if turn.input else 0
        entries = self.store.tail(known.conversation, last)
        upcoming: asyncio.Future[HistoryEntry] | None = None
        try:
            while True:
                upcoming = upcoming or asyncio.ensure_future(anext(entries))
                await asyncio.wait([upcoming], timeout=_POLL_SECONDS)
                if upcoming.done():
                    entry, upcoming = upcoming.result(), None
                    last = entry.sequence_number
                    yield entry
                elif (await STORES.run(self.table.get, known.id)).is_over:
                    info = await STORES.run(self.store.info, known.conversation)
                    if info.version <= last:
                        return
        finally:
            if upcoming is not None:
                upcoming.cancel()
                with suppress(asyncio.CancelledError, StopAsyncIteration):
                    await upcoming
            if hasattr(entries, "aclose"):
                await entries.aclose()

    def answer(self, run: str) -> str:
        """The text of the last answer in the run's conversation."""
        return Turn.of(self.store.open(self.table.get(run).conversation).snapshot()).answer

    def _decide(self, run: str, call: str | None, decision: Decision) -> Run:
        known = self.table.get(run)
        if known.state != "suspended":
            raise RunStateError(f"run {known.id} is {known.display_state}; it has no pending calls")
        history = self.store.open(known.conversation)
        pending = Turn.of(history.snapshot()).pending
        if call is None and len(pending) > 1:
            names = ", ".join(f"{each.tool_call_id} ({each.tool_name})" for each in pending)
            raise RunStateError(f"run {known.id} has several pending calls; name one: {names}")
        if call is None and pending:
            call = pending[0].tool_call_id
        if call is not None:
            decide(history, structs.replace(decision, tool_call_id=call))
        still_pending = Turn.of(history.snapshot()).pending
        return self.table.get(known.id) if still_pending else self.table.wake(known.id)


def continue_steered(store: HistoryStore, run: Run) -> Run:
    """The run that reads what steers this one: itself, or if it is over another one, while its inbox has something."""
    if not run.is_over or not any(item.kind == "steering" for item in store.inbox(run.conversation).items()):
        return run
    newest = store.runs.list(conversation=run.conversation, limit=1)
    if newest and not newest[0].is_over:
        return newest[0]
    return store.runs.submit(
        None, kind=run.kind, conversation=run.conversation, code=run.code, provider=run.provider, options=run.options
    )


def can_continue(store: HistoryStore, conversation: str) -> bool:
    """Whether a suspended run can go on: no call needs a person, and a result from outside that was waited for is there."""
    history = store.open(conversation)
    turn = Turn.of(history.snapshot())
    if turn.pending:
        return False
    waiting = [call for call, state in turn.open_calls.items() if state.is_later and not state.result]
    return not waiting or any(item.key in waiting for item in history.inbox.items())


def record_interrupted(history: AgentHistory) -> None:
    """Record that the turn was interrupted, unless it is over."""
    _turn_runner(history).finish_interrupted()


def interrupt_turn(store: HistoryStore, conversation: str, holder: str) -> None:
    """Interrupt the turn of a stored conversation, unless a holder or another run is using it."""
    with _idle_history(store, conversation, holder) as history:
        if history is not None:
            record_interrupted(history)


def close_open_calls(store: HistoryStore, conversation: str, holder: str) -> None:
    """Give the open calls of an idle conversation a result, before a new message is added."""
    if not Turn.of(store.open(conversation).snapshot()).open_calls:
        return
    with _idle_history(store, conversation, holder) as history:
        if history is not None:
            _turn_runner(history).close_calls("the conversation went on without it")


@contextmanager
def _idle_history(store: HistoryStore, conversation: str, holder: str) -> Iterator[AgentHistory | None]:
    """The history, under a lease, of a conversation without a holder and without an unfinished run; else None."""
    lease = store.claim(conversation, holder, _LEASE_SECONDS)
    if lease is None:
        yield None
        return
    try:
        is_idle = all(run.is_over for run in store.runs.list(conversation=conversation, limit=1))
        yield store.open(conversation, lease=lease) if is_idle else None
    finally:
        store.release(lease)


def _turn_runner(history: AgentHistory) -> TurnRunner:
    return TurnRunner(Participants(Conversation(history=history)), RunLimits(), lambda _: None)
