"""`Runs`: the side of whoever asks for runs: submit, follow, decide, cancel, try again. It plays nothing itself.

    runs = Runs(store)
    run = runs.submit("What does IELTS 7 need?", kind="research")
    run = await runs.wait(run.id)

Everything is in the store when a call returns, so the process may end, and another look at the run by its id.

A decision is two steps: it is appended to the log, and the run is woken. Whoever dies between the two has decided and woken
nobody; deciding the same again finds the decision made, and wakes the run. A run goes on when every call that waits is decided.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Any

from msgspec import structs

from antiphon.conversation import Decision, Turn, decide
from antiphon.conversation.message import make_entry
from antiphon.errors import ConversationError, RunRefused
from antiphon.history import HistoryEntry, HistoryStore, ModelInputEntry, Run
from antiphon.parts import InputPart, ToolCallRequest
from antiphon.runs.book import RunBook
from antiphon.runs.course import note
from antiphon.runs.idle_turn import close_open_calls, interrupt_turn, undecided

_LOOK = 0.2
_HOLDER = "whoever asks for runs"


class Runs:
    """The runs of a store. With the `book` of the workers, what is submitted asks for the code and the provider it says."""

    def __init__(self, store: HistoryStore, book: RunBook | None = None) -> None:
        self.store = store
        self.table = store.runs
        self._book = book

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
        """Ask something, for some worker to answer: in a new conversation, or in one that has no run which is not over.

        With nothing to say, the turn in the log is gone on with. Raises `TooManyRuns` if `max_waiting` others wait already.
        """
        question = make_entry("user", content) if content else None
        if question is not None and not isinstance(question, ModelInputEntry):
            raise ConversationError(f"a run is asked with an input, not with a {question.kind} entry")
        known = self._book.get(kind) if self._book is not None else None
        if self._book is not None and known is None:
            raise RunRefused(f"there is no kind of run {kind!r}; there are {', '.join(self._book.codes)}")
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
        """The calls of a suspended run that wait for a person."""
        known = self.table.get(run)
        return undecided(self.store.open(known.conversation)) if known.state == "suspended" else ()

    def approve(self, run: str, call: str | None = None, reason: str = "") -> Run:
        """Allow a call, or the one that waits."""
        return self._decide(run, call, Decision(tool_call_id="", decision="approve", reason=reason))

    def deny(self, run: str, call: str | None = None, reason: str = "") -> Run:
        """Refuse a call, or the one that waits. The model is told, with the reason."""
        return self._decide(run, call, Decision(tool_call_id="", decision="deny", reason=reason))

    def edit(self, run: str, arguments: dict[str, Any] | str, call: str | None = None, reason: str = "") -> Run:
        """Allow a call, or the one that waits, with other arguments. The model is told which."""
        decision = Decision(tool_call_id="", decision="edit", reason=reason, arguments=arguments)
        return self._decide(run, call, decision)

    def cancel(self, run: str, reason: str = "") -> Run:
        """End a run: at once if nobody plays it, else within the heartbeat of whoever does."""
        cancelled = self.table.cancel(run, reason or "cancelled")
        if cancelled.state == "cancelled":
            interrupt_turn(self.store, cancelled.conversation, _HOLDER)
        return cancelled

    def retry(self, run: str) -> Run:
        """Let a run that has failed be tried again."""
        known = self.table.get(run)
        if known.state != "failed":
            hint = "it waits for a decision" if known.state == "suspended" else "only what has failed is tried again"
            raise RunRefused(f"run {known.id} is {known.standing}; {hint}")
        note(self.store.open(known.conversation), "somebody asked for another try")
        return self.table.wake(known.id)

    async def wait(self, run: str, *, until_suspended: bool = False) -> Run:
        """The run once it is over, or once it waits for a person if that is asked for."""
        while True:
            known = await asyncio.to_thread(self.table.get, run)
            if known.is_over or (until_suspended and known.state == "suspended"):
                return known
            await asyncio.sleep(_LOOK)

    async def follow(self, run: str) -> AsyncIterator[HistoryEntry]:
        """The entries of the run's turn, those to come as they are appended, until the run is over."""
        known = await asyncio.to_thread(self.table.get, run)
        turn = Turn.of((await asyncio.to_thread(self.store.open, known.conversation)).snapshot())
        last = turn.input.sequence_number - 1 if turn.input else 0
        entries = self.store.tail(known.conversation, last)
        coming: asyncio.Future[HistoryEntry] | None = None
        try:
            while True:
                coming = coming or asyncio.ensure_future(anext(entries))
                await asyncio.wait([coming], timeout=_LOOK)
                if coming.done():
                    entry, coming = coming.result(), None
                    last = entry.sequence_number
                    yield entry
                elif (await asyncio.to_thread(self.table.get, known.id)).is_over:
                    info = await asyncio.to_thread(self.store.info, known.conversation)
                    if info.version <= last:
                        return
        finally:
            if coming is not None:
                coming.cancel()
                with suppress(asyncio.CancelledError, StopAsyncIteration):
                    await coming
            if hasattr(entries, "aclose"):
                await entries.aclose()

    def answer(self, run: str) -> str:
        """What the model said last in the run's conversation."""
        output = Turn.of(self.store.open(self.table.get(run).conversation).snapshot()).output
        return output.response_markdown if output is not None else ""

    def _decide(self, run: str, call: str | None, decision: Decision) -> Run:
        known = self.table.get(run)
        if known.state != "suspended":
            raise RunRefused(f"run {known.id} is {known.standing}; no call of it waits for a decision")
        history = self.store.open(known.conversation)
        waiting = undecided(history)
        if call is None and len(waiting) > 1:
            names = ", ".join(f"{each.tool_call_id} ({each.tool_name})" for each in waiting)
            raise RunRefused(f"several calls of run {known.id} wait; say which: {names}")
        if call is None and waiting:
            call = waiting[0].tool_call_id
        if call is not None:
            decide(history, structs.replace(decision, tool_call_id=call))
        return self.table.get(known.id) if undecided(history) else self.table.wake(known.id)


def submit(store: HistoryStore, *content: InputPart | str, **how: Any) -> Run:
    """Ask something, for some worker to answer. `how` is as `Runs.submit` takes it."""
    return Runs(store).submit(*content, **how)
