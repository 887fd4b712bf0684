"""`AgentHistory`: the append-only log of one conversation.

There is one way in, `append`. It gives the entry its sequence number and time, has the journal write it (which returns when
the entry is durable), and only then adds it to the log in memory: a failed write leaves the history as it was. Nothing is
ever changed or removed (law L1): a rollback and a compaction are entries, a fork is a new history.

One writer at a time. A second thread that appends at the same time is refused, as is a second process by the
journal; both get a `WriterConflict` and lose nothing. Readers never wait: each append publishes a snapshot, in one assignment,
and reading is reading the last one.

The log speaks: `on_append` subscribes to every entry, after it is durable and in the order of the log. Code that draws, mirrors
or meters a conversation listens there.

The fast path: an entry that only adds to the log needs no further checks, and both views of the next snapshot are one.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import reduce
from operator import attrgetter
from typing import Any, Literal, TypeAlias, TypeVar, get_args

from msgspec.structs import replace

from antiphon.errors import InvalidEntry, SequenceError, WriterConflict
from antiphon.extensions import EXTENSIONS, load_part
from antiphon.history.codec import check_readable, encode_entry, encode_readable, sequence_number_of
from antiphon.history.entries import (
    CompactionEntry,
    HistoryEntry,
    KnownEntry,
    ModelOutputEntry,
    OpaqueEntry,
    RollbackEntry,
    SetMemoryNotebookEntry,
    SetSystemInstructionEntry,
    ShortenedResultsEntry,
    ToolCallFinishedEntry,
    ToolCallResultsEntry,
    ToolCallStartedEntry,
)
from antiphon.history.journal import Inbox, Journal, SealedJournal, inbox_of
from antiphon.history.snapshot import (
    SETTING_KINDS,
    ActiveSettings,
    AgentHistorySnapshot,
    EffectiveSpans,
    EntriesView,
    effective_entries,
)
from antiphon.parts import ToolCallRequest

logger = logging.getLogger(__name__)
is_logged = logger.isEnabledFor
DEBUG = logging.DEBUG

_call_id = attrgetter("tool_call_id")
_CALL_KINDS = frozenset({ToolCallStartedEntry, ToolCallFinishedEntry})
"""What is between the calls of an output and their results."""

E = TypeVar("E", bound=HistoryEntry)
AppendCallback: TypeAlias = Callable[[HistoryEntry], None]

_FAST_PATH_KINDS = frozenset(get_args(KnownEntry)) - SETTING_KINDS - {RollbackEntry}
"""Entries that add to the log and change nothing else."""


class AgentHistory:
    """An append-only log of typed entries. Without a journal it lives in memory only."""

    def __init__(
        self, entries: Iterable[HistoryEntry] = (), *, journal: Journal | None = None, imported: int = 0
    ) -> None:
        """A history of these entries. The first `imported` of them were imported: no decision among them counts (law L11)."""
        self._journal = journal
        self.id = "" if journal is None else journal.conversation_id
        """The id of the stored conversation; empty for a history in memory."""
        self.inbox: Inbox = inbox_of(journal)
        """What others have for this conversation, until its writer takes it in."""
        self._writing = threading.Lock()
        self._log: list[HistoryEntry] = []
        self._spans = EffectiveSpans()
        self._effective: list[HistoryEntry] | None = self._log
        self._in_force = ActiveSettings(imported=imported)
        self._listeners: tuple[AppendCallback, ...] = ()
        self._load(entries)
        self.current = self._refresh_snapshot()
        """The history as it is now: what `snapshot` returns, for who reads it with every step."""

    @classmethod
    def from_messages(
        cls,
        messages: Iterable[Mapping[str, Any]] | Mapping[str, Any],
        format: str = "openai-chat",  # noqa: A002 - as in `to_messages`
        *,
        model: str = "",
        report: list[object] | None = None,
    ) -> AgentHistory:
        """A history of existing messages (or of a request body) in a provider format, repaired.

        `model` is the model that wrote the answers (`anthropic/claude-…`), if one did: its signatures are then sent back to it.
        `report` collects the repairs (`Action`) and what a history does not keep (`Loss`). Raises `WireError`.
        """
        read = _interchange().read_messages(messages, format, model)
        history = cls()
        for entry in read.entries:
            history.append(entry)
        if report is not None:
            report += (*read.repairs, *read.losses)
        return history

    @classmethod
    def replay(cls, entries: Iterable[HistoryEntry]) -> Iterator[tuple[AgentHistorySnapshot, HistoryEntry]]:
        """Each entry of a log, with what the history was before it."""
        history = cls()
        for entry in entries:
            yield history.current, entry
            history._check_sequence(entry)
            history._add(entry)
            history.current = history._refresh_snapshot()

    def to_messages(
        self,
        format: str = "openai-chat",  # noqa: A002
        *,
        strategy: Literal["merged", "per_part", "iterations"] = "merged",
        report: list[object] | None = None,
    ) -> list[dict[str, Any]]:
        """The effective history as messages of a format, as a model would be sent them now; an empty answer is left out.

        `strategy` is for OpenAI Chat: `merged`, one assistant message per round; `per_part`, one message per part; `iterations`,
        the messages of each round with a common name. `report` collects repairs and losses. Formats that keep the instruction
        apart from the messages have it in `system_instruction`.
        """
        written = _interchange().write_messages(self, format, strategy)
        if report is not None:
            report += (*written.repairs, *written.losses)
        messages: list[dict[str, Any]] = written.messages
        return messages

    @property
    def version(self) -> int:
        """How many entries were ever appended."""
        return self.current.version

    @property
    def sequence_number(self) -> int:
        """The sequence number of the last entry; the version by another name."""
        return self.current.version

    @property
    def entries(self) -> EntriesView:
        """Everything that was appended so far, rolled back or not."""
        return self.current.entries

    @property
    def effective(self) -> EntriesView:
        """The entries that count: all but the rolled back ones and the rollbacks themselves."""
        return self.current.effective

    @property
    def system_instruction(self) -> str:
        """The system instruction in force, or an empty string."""
        return self.current.system_instruction

    @property
    def memory_notebook(self) -> str:
        """The text of the memory notebook, or an empty string."""
        return self.current.memory_notebook

    @property
    def memory_notebook_content(self) -> str:
        """The notebook as a person reads it: `（尚无内容）` while it is empty. No model is sent that."""
        return self.memory_notebook or "（尚无内容）"

    def snapshot(self) -> AgentHistorySnapshot:
        """The history as it is now, to hold and read while it grows. Copies nothing."""
        return self.current

    def append(self, entry: E, *, is_checked: bool = False) -> E:
        """Append an entry and return it as it was stored, with its sequence number and time.

        Results are stored in the order of their calls. Raises `InvalidEntry` for what is not an entry, for a value of a wrong
        type, and for results of calls that are unknown or have one already; `SequenceError` for an entry that has another place
        in a log; and `WriterConflict` if another writer is active. `is_checked`: it is made of values of an entry that is in the
        log, so that their types need no check.
        """
        if not self._writing.acquire(False):
            raise self._conflict()
        try:
            log = self._log
            kind = type(entry)
            if kind not in _FAST_PATH_KINDS or entry.sequence_number or self._effective is not log:
                entry = self._append_slow_path(entry)
            else:
                number = len(log) + 1
                entry = replace(entry, sequence_number=number, timestamp=entry.timestamp or datetime.now(UTC))
                journal = self._journal
                stored: bytes | None = None
                if not is_checked:
                    stored = encode_readable(entry)
                    if stored is None:
                        entry = check_readable(entry)
                if kind is ToolCallResultsEntry and (ordered := self._in_call_order(entry)) is not entry:  # type: ignore[arg-type]
                    entry, stored = ordered, None  # type: ignore[assignment]
                if journal is not None:
                    journal.write(entry, encode_entry(entry) if stored is None else stored)
                log.append(entry)
                self.current = AgentHistorySnapshot(number, self._in_force, log, log, number)
            if is_logged(DEBUG):
                log_append(self.id, entry)
            for callback in self._listeners:
                try:
                    callback(entry)
                except Exception:
                    self._log_failure(callback, entry)
            return entry
        finally:
            self._writing.release()

    def on_append(self, callback: AppendCallback) -> Callable[[], None]:
        """Call `callback` with every entry from now on; call the returned function to stop.

        It is called when the entry is durable, in the order of the log, in the thread that appends; entries of other processes
        are reported by `refresh`. One that raises is logged, and the entry stays. It must not append to this history: it runs
        inside of `append`, and gets a `WriterConflict`.
        """
        if not callable(callback):
            raise InvalidEntry(f"on_append({callback!r}): expected a function that takes an entry")
        self._listeners += (callback,)

        def stop() -> None:
            listeners = list(self._listeners)
            if callback in listeners:
                listeners.remove(callback)
                self._listeners = tuple(listeners)

        return stop

    def _log_failure(self, callback: AppendCallback, entry: HistoryEntry) -> None:
        logger.exception("[%s] on_append: %r failed for entry %d", self.id or "memory", callback, entry.sequence_number)

    def set_system_instruction(self, text: str) -> SetSystemInstructionEntry:
        """Append what is the system instruction from here on."""
        return self.append(SetSystemInstructionEntry(text))

    def set_memory_notebook(self, content: str) -> SetMemoryNotebookEntry:
        """Append the text of the memory notebook from here on."""
        return self.append(SetMemoryNotebookEntry(content))

    def compact(self, summary: str, up_to: int, *, since: int = 0, kept: Iterable[int] = ()) -> CompactionEntry:
        """Append a summary in place of the entries `since` to `up_to` from here on, but for those `kept`."""
        return self.append(CompactionEntry(summary, up_to, since, tuple(kept)))

    def rollback(self, to: int, reason: str = "", *, kept: Iterable[int] = ()) -> RollbackEntry:
        """Append a rollback: the effective view is again what it was at version `to`. A later rollback can undo it.

        Effective entries after `to` whose sequence numbers are in `kept` stay effective.
        """
        return self.append(RollbackEntry(to, reason, tuple(kept)))

    def refresh(self) -> Sequence[HistoryEntry]:
        """Take in what other writers appended to the stored conversation since; returns it."""
        known = self.version
        if self._journal is not None:
            if not self._writing.acquire(False):
                raise self._conflict()
            try:
                for entry in self._journal.read(known):
                    self._check_sequence(entry)
                    self._add(entry)
                if len(self._log) > known:  # an import may have grown
                    self._in_force = replace(self._in_force, imported=self._imported_by_now())
                self.current = self._refresh_snapshot()
                for entry in self.current.since(known):
                    for callback in self._listeners:
                        try:
                            callback(entry)
                        except Exception:
                            self._log_failure(callback, entry)
            finally:
                self._writing.release()
        return self.entries[known:]

    def stored_snapshot(self) -> AgentHistorySnapshot:
        """The history with what other writers appended since, which is not taken in. Callable from any thread."""
        known = self.current
        new = () if self._journal is None else tuple(self._journal.read(known.version))
        return AgentHistory([*known.entries, *new], imported=self._imported_by_now()).current if new else known

    def seal(self, reason: str) -> None:
        """Refuse every append from now on with `LeaseLost`. Callable from any thread; reading and forking still work.

        For a holder that lost its lease or hands its turn to another process: its last entries must not reach the log.
        """
        if self._journal is not None and not isinstance(self._journal, SealedJournal):
            self._journal = SealedJournal(self._journal, reason)

    def fork(self, at: int | None = None) -> AgentHistory:
        """A new history that starts with the first `at` entries (all of them by default) of this one."""
        at = self.version if at is None else at
        if not 0 <= at <= self.version:
            raise SequenceError(f"cannot fork {self._name} at {at}: it has the versions 0 to {self.version}")
        if self._journal is not None:
            return self._journal.fork(at)
        return AgentHistory(self._log[:at], imported=min(at, self._in_force.imported))

    def _append_slow_path(self, entry: E) -> E:
        """Append what is not just one entry more: it sets something, takes something back, or has a place already."""
        if not isinstance(entry, HistoryEntry):
            raise InvalidEntry(_not_appendable(entry))
        if not isinstance(entry, OpaqueEntry):
            entry = check_readable(entry)
            if type(entry) is ToolCallResultsEntry and not entry.sequence_number:
                entry = self._in_call_order(entry)  # type: ignore[arg-type, assignment]
            entry = replace(
                entry,
                sequence_number=entry.sequence_number or len(self._log) + 1,
                timestamp=entry.timestamp or datetime.now(UTC),
            )
        self._check(entry)
        if self._journal is not None:
            self._journal.write(entry, encode_entry(entry))
        self._add(entry)
        self.current = self._refresh_snapshot()
        return entry

    def _in_call_order(self, entry: ToolCallResultsEntry) -> ToolCallResultsEntry:
        """The entry with its results in the order of their calls.

        Raises `InvalidEntry` for a result without a call, and for one of a call that has its result.
        """
        results = entry.results
        known = self._log if self._effective is None else self._effective
        place = len(known) - 1
        while place > 0 and type(known[place]) in _CALL_KINDS:
            place -= 1
        last = known[place] if known else None
        if type(last) is ModelOutputEntry and [*map(_call_id, results)] == [
            part.tool_call_id for part in last.content if type(part) is ToolCallRequest
        ]:
            return entry  # the results of all calls of the last output, in their order
        excess: dict[str, int] = {}  # by id: results, these and earlier ones, without the calls
        for result in results:
            excess[result.tool_call_id] = excess.get(result.tool_call_id, 0) + 1
        missing = set(excess)
        places: dict[str, tuple[int, int]] = {}
        for earlier in reversed(known):
            if type(earlier) is ModelOutputEntry:
                for place, part in enumerate(earlier.content):
                    if type(part) is ToolCallRequest and part.tool_call_id in missing:
                        excess[part.tool_call_id] -= 1
                        places.setdefault(part.tool_call_id, (earlier.sequence_number, place))
                missing.difference_update(places)
                if not missing:
                    break
            elif type(earlier) is ToolCallResultsEntry:
                for result in earlier.results:
                    if result.tool_call_id in missing:
                        excess[result.tool_call_id] += 1
        if missing:
            unknown = ", ".join(repr(call) for call in sorted(missing))
            raise InvalidEntry(
                f"results for unknown calls: {unknown}; append the ModelOutputEntry with the calls first"
            )
        if answered := ", ".join(repr(call) for call, count in excess.items() if count > 0):
            raise InvalidEntry(
                f"a second result for answered calls: {answered}; a call has one result, and a correction is a new input"
            )
        ordered = (
            tuple(sorted(results, key=lambda result: places[result.tool_call_id])) if len(results) > 1 else results
        )
        return entry if ordered == results else replace(entry, results=ordered)

    def _conflict(self) -> WriterConflict:
        return WriterConflict(
            f"another thread is appending to {self._name}; a history has one writer, so append from one thread or lock"
        )

    def _check(self, entry: HistoryEntry) -> None:
        self._check_sequence(entry)
        if isinstance(entry, RollbackEntry) and not 0 <= entry.to <= self.version:
            raise SequenceError(f"cannot roll {self._name} back to {entry.to}: it has the versions 0 to {self.version}")
        if isinstance(entry, RollbackEntry) and entry.kept:
            self._check_kept(entry)
        if isinstance(entry, CompactionEntry | ShortenedResultsEntry) and not (
            0 <= entry.since <= entry.up_to <= self.version
        ):
            raise SequenceError(
                f"cannot compact {self._name} from {entry.since} to {entry.up_to}: it has {self.version} entries"
            )

    def _check_kept(self, entry: RollbackEntry) -> None:
        """Reject kept entries that are not effective now, or out of order: a rollback cannot restore entries."""
        effective = {known.sequence_number for known in self.effective}
        for before, number in zip((entry.to, *entry.kept), entry.kept, strict=False):
            if number <= before or number not in effective:
                raise SequenceError(
                    f"a rollback of {self._name} to {entry.to} cannot keep entry {number}; expected effective entries after "
                    f"{entry.to} in ascending order"
                )

    def _check_sequence(self, entry: HistoryEntry) -> None:
        if entry.sequence_number != len(self._log) + 1:
            raise SequenceError(
                f"entry {entry.sequence_number} ({entry.kind}) cannot follow entry {len(self._log)} of {self._name}; "
                "an entry that is appended again has no sequence number yet"
            )

    def _load(self, entries: Iterable[HistoryEntry]) -> None:
        """Add entries that were stored before, many at once: only those that change more than the log are looked at."""
        log = self._log
        log.extend(entries)
        given: list[Any] = log
        try:
            numbers = [*map(sequence_number_of, log)]
        except AttributeError:
            raise InvalidEntry(_not_appendable(next(e for e in given if not isinstance(e, HistoryEntry)))) from None
        if numbers != [*range(1, len(log) + 1)]:
            number, entry = next(
                (number, entry) for number, entry in enumerate(log, 1) if entry.sequence_number != number
            )
            hint = "" if entry.sequence_number else "; new entries have no number: append them"
            raise SequenceError(
                f"entry {entry.sequence_number} ({entry.kind}) of {self._name} is at position {number}{hint}"
            )
        if _FAST_PATH_KINDS.issuperset(map(type, log)):
            return
        for number, entry in enumerate(log, 1):
            if type(entry) is RollbackEntry:
                self._spans.roll_back(number, entry.to, entry.kept)
                self._effective = None
            elif type(entry) in SETTING_KINDS:
                self._in_force = self._in_force.after(entry)

    def _add(self, entry: HistoryEntry) -> None:
        self._log.append(entry)
        if type(entry) is RollbackEntry:
            self._spans.roll_back(entry.sequence_number, entry.to, entry.kept)
            self._effective = None
        elif self._effective is not None:
            if self._effective is not self._log:
                self._effective.append(entry)
            if type(entry) in SETTING_KINDS:
                self._in_force = self._in_force.after(entry)

    def _refresh_snapshot(self) -> AgentHistorySnapshot:
        """The snapshot of this moment. After a rollback, finds the effective view and what it leaves in force."""
        if self._effective is None:
            self._effective = effective_entries(self._log, self._spans.at(len(self._log)))
            start = ActiveSettings(imported=self._in_force.imported)
            self._in_force = reduce(ActiveSettings.after, self._effective, start)
        return AgentHistorySnapshot(len(self._log), self._in_force, self._log, self._effective, len(self._effective))

    def _imported_by_now(self) -> int:
        imported: int = getattr(self._journal, "imported", self._in_force.imported)
        return imported

    @property
    def _name(self) -> str:
        return f"conversation {self.id}" if self._journal else "this history"

    def __len__(self) -> int:
        return len(self._log)

    def __repr__(self) -> str:
        return f"<AgentHistory {self.id or 'in memory'} at version {self.version}>"


def log_append(conversation: str, entry: HistoryEntry) -> None:
    """One DEBUG line for an entry, or one for each of its results: sizes and ids, never text; as fields of the record, too."""
    lines: list[dict[str, object]] = [{}]
    if isinstance(entry, ToolCallResultsEntry):
        lines = [{"toolCallId": one.tool_call_id, "contentLength": len(one.result_markdown)} for one in entry.results]
    elif isinstance(entry, ModelOutputEntry):
        lines = [{"hasText": bool(entry.response_markdown), "toolCallsCount": len(entry.tool_calls)}]
    name, number, kind = conversation or "memory", entry.sequence_number, str(entry.kind)
    for values in lines:
        text = "".join([f" {field}={value}" for field, value in values.items()])
        fields = {"conversation": name, "sequenceNumber": number, "kind": kind, **values}
        logger.debug("[%s] append %d %s%s", name, number, kind, text, extra=fields)


def _not_appendable(value: object) -> str:
    name = type(value).__name__
    if name == "DecoratedContextEntry":
        return "a DecoratedContextEntry shows what is true only now and cannot be appended; append its `entry` if that is new"
    return f"a history takes HistoryEntry values, not {name}"


def _interchange() -> Any:
    """What reads and writes messages of provider formats; it stands above the history."""
    return load_part(EXTENSIONS, "interchange", "messages of provider formats")
