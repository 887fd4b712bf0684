"""A run: everything since the last message of a person. `RunLimits` bound it (law L8), `RunTotals` is what it has used, and
`RunResult` how it ended.

The turns of all agents are part of a run, and so are requests for a typed answer again, side calls such as a summary, and agents
that work as tools, in whatever process. The totals are a fold over the log, and the only one: no counter is passed by hand, so
every engine that continues a run has the same figures. What was rolled back counts, for it was paid for.

Seconds are those in which a model or a tool was busy, as the entries record them: parallel calls count once, waiting for a
person or for a worker not at all. A crash loses the calls that were in flight, and no more. Money is derived from a price table,
call by call, and never stored.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Generic, TypedDict

from msgspec import UNSET, Struct, UnsetType

from antiphon.context.model_usage import estimated_usage
from antiphon.conversation.events import EndReason
from antiphon.conversation.turn import AGENT_CHANNEL, Turn, is_from_person
from antiphon.errors import ConversationError, InvalidOutput
from antiphon.history import (
    AgentHistorySnapshot,
    DebugLogEntry,
    HistoryEntry,
    ModelInputEntry,
    ModelOutputEntry,
    Origin,
    RollbackEntry,
    SetSystemInstructionEntry,
    ToolCallResultsEntry,
    ToolCallStartedEntry,
)
from antiphon.parts import OutputPart, TokenUsage, ToolCallRequest, ToolCallResult
from antiphon.prices import PriceTable, Spend, spend_of
from antiphon.wire.output import ProviderError

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from antiphon.conversation.conversation import Conversation

    T = TypeVar("T", default=Any)
else:
    from typing import TypeVar

    T = TypeVar("T")

TOOL_CALLS = "tool_calls"
"""Where the note about an agent that worked as a tool has how many calls it made."""


class LimitOptions(TypedDict, total=False):
    """The fields of `RunLimits` as arguments: `ToolLoop(chat, max_rounds=10, max_cost=0.50)`. None: as if it were not given."""

    max_rounds: int | None
    max_failed_rounds: int | None
    max_repeats: int | None
    max_hand_offs: int | None
    max_tokens: int | None
    max_cost: Decimal | float | None
    max_seconds: float | None
    max_calls: int | None


class RunLimits(Struct, frozen=True, kw_only=True):
    """Where a run ends. Past a limit the model gets one last call without tools, so that it answers with what it has.

    Of each turn: `max_rounds` rounds of calls, `max_failed_rounds` in a row without a call that succeeded, `max_repeats` times
    the same calls with the same results (0: not looked for). Of the run, which is everything since the last message of a person:
    `max_hand_offs` from agent to agent, `max_tokens`, `max_cost` in US dollars, `max_seconds` of work, `max_calls` of tools.
    """

    max_rounds: int = 5
    max_failed_rounds: int = 2
    max_repeats: int = 2
    max_hand_offs: int = 10
    max_tokens: int | None = None
    max_cost: Decimal | float | None = None
    max_seconds: float | None = None
    max_calls: int | None = None

    @classmethod
    def of(cls, limits: RunLimits | None, given: Mapping[str, Any]) -> RunLimits:
        """`limits`, or those with the values of `given` that are not None."""
        if limits is None and not given:
            return _LIMITS
        given = {name: value for name, value in given.items() if value is not None}
        if limits is not None and given:
            raise ConversationError("give limits= or single limits, not both")
        if limits is not None and not isinstance(limits, RunLimits):
            raise ConversationError(f"limits={limits!r}: expected RunLimits(max_rounds=…)")
        if unknown := given.keys() - set(cls.__struct_fields__):
            known = ", ".join(cls.__struct_fields__)
            raise TypeError(
                f"unexpected argument {', '.join(sorted(unknown))}; the limits are {known}; what a conversation has (state, "
                "store, hooks, …) is given to Conversation"
            )
        return limits or cls(**given)

    def __post_init__(self) -> None:
        for name in ("max_rounds", "max_failed_rounds", "max_repeats", "max_hand_offs", "max_tokens", "max_calls"):
            least = 0 if name in ("max_repeats", "max_hand_offs") else 1
            value = getattr(self, name)
            if not isinstance(value, int | None):
                raise ConversationError(f"{name}={value!r}: must be a whole number")
            if value is not None and value < least:
                raise ConversationError(f"{name}={value}: must be at least {least}")
        for name in ("max_cost", "max_seconds"):
            value = getattr(self, name)
            if not isinstance(value, int | float | Decimal | None) or isinstance(value, bool):
                raise ConversationError(f"{name}={value!r}: must be a number")
            if value is not None and not value > 0:
                raise ConversationError(f"{name}={value}: must be above 0")

    def notice(self, reason: EndReason, turn: Turn) -> str:
        """The text about the limit that the model sees."""
        text = {
            "max_rounds": f"All {self.max_rounds} rounds of tool calls are used.",
            "failed_rounds": f"{turn.failed_rounds} rounds in a row brought no tool call to success.",
            "repeated_calls": "The same calls were made again and again with the same results.",
            "token_budget": f"The limit of {self.max_tokens} tokens is reached.",
            "cost_budget": f"The limit of {self.max_cost or 'the caller, in'} US dollars is reached.",
            "time_budget": f"The limit of {self.max_seconds:g} seconds is reached." if self.max_seconds else "",
            "call_budget": f"The limit of {self.max_calls} tool calls is reached.",
        }[reason]
        return f"{text} No tool can be called any more in this turn: answer now with what you have, and say what is missing."


_LIMITS = RunLimits()


class RunTotals:
    """What a run has used so far. `start` is the sequence number of the message that began it; 0 if there was none.

    `hand_offs` are those of a route, a graph or an agent's own call; `usage` is as far as providers reported it. Entries are
    counted when they are asked for (`count`); what they cost and how long they took, when that is.
    """

    __slots__ = (
        "_estimated",
        "_intervals",
        "_seconds",
        "_spend",
        "_unpriced",
        "_untimed",
        "calls",
        "hand_offs",
        "prices",
        "rounds",
        "start",
        "usage",
        "version",
    )

    def __init__(self, start: int = 0, prices: PriceTable | None = None) -> None:
        self.start = self.version = start
        """`version` is that of the log up to which it counts."""
        self.rounds = 0
        self.calls = 0
        self.hand_offs = 0
        self.usage = TokenUsage()
        self._estimated = 0
        self.prices = prices
        self._unpriced: list[HistoryEntry] = []
        self._spend = Spend()
        self._untimed: list[HistoryEntry] = []
        self._seconds = 0.0
        self._intervals: list[tuple[float, float]] = []  # apart from each other, the latest last

    @classmethod
    def of(cls, snapshot: AgentHistorySnapshot, prices: PriceTable | None = None) -> RunTotals:
        """The totals of the current run, with what was rolled back."""
        entries = snapshot.entries.since(0)
        starts = [*_run_at_each(entries)]
        totals = cls(starts[-1] if starts else 0, prices)
        run = [entry for entry, start in zip(entries, starts, strict=True) if start == totals.start]
        totals.count([entry for entry in run if entry.sequence_number != totals.start], snapshot.version)
        return totals

    def count(self, entries: Sequence[HistoryEntry], version: int) -> None:
        """Count these entries of the run, with which the log has that version."""
        self.version = version
        self._unpriced += entries
        self._untimed += entries
        for entry in entries:
            kind = type(entry)
            if kind is ToolCallStartedEntry:  # most entries of many calls, and nothing was used by then
                continue
            if kind is ModelOutputEntry:
                self.rounds += 1
                for part in entry.content:  # type: ignore[attr-defined]  # an output
                    if type(part) is ToolCallRequest:
                        self.calls += 1
            elif kind is ModelInputEntry:
                self.hand_offs += entry.channel == AGENT_CHANNEL  # type: ignore[attr-defined]  # an input
            metadata = entry.metadata
            if metadata is None:
                continue
            if metadata.usage is not None:
                self.usage += metadata.usage
            if metadata.extra is None:
                continue
            if estimated := estimated_usage(entry):
                self._estimated += estimated.total
            if kind is SetSystemInstructionEntry:
                self.hand_offs += "call" in (entry.hand_off or ())  # type: ignore[attr-defined]  # an instruction
            elif kind is DebugLogEntry:
                self.calls += metadata.extra.get(TOOL_CALLS, 0)

    def copy(self) -> RunTotals:
        """The totals as they are now; these continue with the run."""
        copied = RunTotals.__new__(RunTotals)
        for name in self.__slots__:
            setattr(copied, name, getattr(self, name))
        copied._unpriced, copied._untimed = self._unpriced.copy(), self._untimed.copy()
        copied._intervals = self._intervals.copy()
        return copied

    @property
    def tokens(self) -> int:
        """The tokens of all calls: as reported, and counted here where a limited call reported none."""
        return self.usage.total + self._estimated

    @property
    def spend(self) -> Spend:
        """What the calls cost; `unpriced_calls` are those whose price or usage is not known."""
        if self._unpriced:
            more, before = spend_of(self._unpriced, self.prices), self._spend
            self._unpriced.clear()
            by_model = {**before.by_model}
            for model, amount in more.by_model.items():
                by_model[model] = by_model.get(model, Decimal(0)) + amount
            self._spend = Spend(before.total + more.total, by_model, before.unpriced_calls + more.unpriced_calls)
        return self._spend

    @property
    def seconds(self) -> float:
        """How long models and tools were busy; what overlaps counts once."""
        intervals = self._intervals
        for entry in self._untimed:
            if entry.timestamp is None or entry.metadata is None or not entry.metadata.duration:
                continue
            end = entry.timestamp.timestamp()
            start = end - entry.metadata.duration
            while intervals and intervals[-1][1] >= start and intervals[-1][0] <= end:
                before_start, before_end = intervals.pop()
                self._seconds -= before_end - before_start
                start, end = min(start, before_start), max(end, before_end)
            self._seconds += end - start
            intervals.append((start, end))
        self._untimed.clear()
        return self._seconds


class RunResult(Struct, Generic[T], frozen=True, kw_only=True, eq=False):
    """How a run ended. `text` is the last answer, or why there is none, and `entry` its entry; `pending` are the calls that wait
    for a person; `totals` is what the whole run used, `error` the provider's error if it failed. `chat` can continue."""

    reason: EndReason
    text: str
    chat: Conversation
    totals: RunTotals
    version: int
    """The version of the log when it ended."""
    entry: ModelOutputEntry | None = None
    pending: tuple[ToolCallRequest, ...] = ()
    error: ProviderError | None = None
    value: T | UnsetType = UNSET

    @property
    def output(self) -> T:
        """The checked value of a run with `output=T`; without `output=` the text.

        Raises `InvalidOutput` if the run ended before the model gave one, as when it waits for a person.
        """
        if self.value is UNSET:
            raise InvalidOutput(f"the run ended ({self.reason}) without an answer of the requested type")
        return self.value

    @property
    def rounds(self) -> int:
        """The rounds of the run."""
        return self.totals.rounds

    @property
    def usage(self) -> TokenUsage:
        """The tokens of the run, as far as providers reported them."""
        return self.totals.usage

    @property
    def cost(self) -> Decimal | None:
        """What the run cost, in US dollars; None if the price or the usage of a call is not known."""
        spend = self.totals.spend
        return None if spend.unpriced_calls else spend.total

    @property
    def requires_follow_up(self) -> bool:
        """Whether the run is not over: it did the steps it was asked for, or waits for a person or a result."""
        return self.reason in ("stepped", "approval", "waiting")

    @property
    def last_tool_result(self) -> ToolCallResult | None:
        """The last result of a tool in this run."""
        found = self._last_entry(ToolCallResultsEntry)
        return found.results[-1] if isinstance(found, ToolCallResultsEntry) and found.results else None

    @property
    def next_prompt(self) -> str:
        """The results that the model reads next, if the run continues with them."""
        found = self._last_entry(ToolCallResultsEntry, ModelOutputEntry) if self.requires_follow_up else None
        if not isinstance(found, ToolCallResultsEntry):
            return ""
        return "\n\n".join(result.result_markdown for result in found.results)

    def _last_entry(self, *kinds: type[HistoryEntry]) -> HistoryEntry | None:
        entries = self.chat.history.entries[self.totals.start : self.version]
        return next((entry for entry in reversed(entries) if isinstance(entry, kinds)), None)

    def __str__(self) -> str:
        return self.text


class SideAnswer(Struct, frozen=True):
    """The answer of a side call. It is not part of the conversation; the log has what the call used."""

    text: str
    parts: tuple[OutputPart, ...] = ()
    origin: Origin = Origin()
    usage: TokenUsage | None = None
    stop_reason: str = ""


def _run_at_each(entries: list[HistoryEntry]) -> Iterator[int]:
    """The start of the run that each entry belongs to, in the order of the log. A rollback returns to the run of that version.

    A message of a person begins a run unless calls are open: then it belongs to the run that waits for them.
    """
    versions: list[int] = [0]
    states: list[tuple[int, frozenset[str]]] = [
        (0, frozenset())
    ]  # the run and the open calls from each of those versions on
    for entry in entries:
        start, open_calls = states[-1]
        if isinstance(entry, RollbackEntry):
            states.append(states[bisect_right(versions, entry.to) - 1])
            versions.append(entry.sequence_number)
        elif isinstance(entry, ModelOutputEntry):
            asked = frozenset([call.tool_call_id for call in entry.tool_calls])
            if asked != open_calls:
                states.append((start, asked))
                versions.append(entry.sequence_number)
        elif isinstance(entry, ToolCallResultsEntry) and open_calls:
            states.append((start, open_calls - {result.tool_call_id for result in entry.results}))
            versions.append(entry.sequence_number)
        elif not open_calls and is_from_person(entry):
            states.append((entry.sequence_number, open_calls))
            versions.append(entry.sequence_number)
        yield states[-1][0]
