"""The live context: what a model sees of a history now.

`render_live_context` reads a snapshot and touches nothing. In order: the system instruction with the memory notebook; a
summary, if the history was compacted; the effective entries, as many as the window lets through; and on the last observation
the LiveScreen, what is true only at this moment.

Prefixes hold (law L9): entries are passed on as they are, never rewritten, and the one volatile thing, the LiveScreen, stands
at the very end. So rendering a longer history gives the same beginning, until the system instruction, the notebook or the
window's place changes, the history is compacted or rolled back.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Literal

from msgspec import Struct

from antiphon.context.tokens import TokenLedger
from antiphon.context.window import Unit, units_of, window
from antiphon.errors import ContextError
from antiphon.history import (
    AgentHistorySnapshot,
    ContextEntry,
    ContextEntryRole,
    DecoratedContextEntry,
    HistoryEntry,
    LiveContextInjectedEntry,
    ModelInputEntry,
    ModelOutputEntry,
    OpaqueEntry,
    ToolCallResultsEntry,
)
from antiphon.history.snapshot import InForce
from antiphon.parts import Part, Text, ToolCallRequest

NOTEBOOK_TITLE = "[Memory Notebook]"
SUMMARY_TITLE = "[Summary of the conversation so far]"

_CONTEXT = frozenset({ModelInputEntry, ModelOutputEntry, ToolCallResultsEntry})


class LiveContextOptions(Struct, frozen=True, kw_only=True):
    """How to render.

    `max_tokens` and `max_entries` bound the history (the LiveScreen comes on top); past a bound the window shrinks to
    `shrink_to` of it. `notebook` says where the memory notebook stands: behind the `system` instruction, or on the
    `screen`, where editing it disturbs no prompt cache, or nowhere.
    """

    live_screen: str | None = None
    max_tokens: int | None = None
    max_entries: int | None = None
    shrink_to: float = 0.7
    notebook: Literal["system", "screen", "none"] = "system"

    def __post_init__(self) -> None:
        for name in ("max_tokens", "max_entries"):
            limit: int | None = getattr(self, name)
            if limit is not None and limit < 0:
                raise ContextError(f"{name} must not be negative, and it is {limit}; leave it out to have no limit")
        if not 0 < self.shrink_to <= 1:
            raise ContextError(f"shrink_to must be above 0 and at most 1, and it is {self.shrink_to}")


_EVERYTHING = LiveContextOptions()


class RenderedContextEntry(Struct, frozen=True):
    """A context entry that was made for this call, not taken from the log: instructions, a summary."""

    role: ContextEntryRole
    content: tuple[Part, ...]
    live_screen: str | None = None

    @property
    def tool_calls(self) -> tuple[ToolCallRequest, ...]:
        return ()


class LeftOut(Struct, frozen=True):
    """Entries of the effective history that the model does not see, and why."""

    sequence_numbers: tuple[int, ...]
    why: Literal["window", "compaction", "written by a newer version"]


class LiveContext(list[ContextEntry]):
    """The rendered entries, with word of what was left out.

    `memo` is a place where whoever turns contexts into something keeps it for the next context of the same conversation; a
    `LiveContextRenderer` hands it on from one to the next.
    """

    __slots__ = ("left_out", "memo", "screen")

    def __init__(
        self,
        entries: Iterable[ContextEntry] = (),
        left_out: Sequence[LeftOut] = (),
        memo: dict[Hashable, Any] | None = None,
        screen: str | None = None,
    ) -> None:
        super().__init__(entries)
        self.left_out = tuple(left_out)
        self.screen = screen
        self.memo: dict[Hashable, Any] = {} if memo is None else memo

    def injected(self) -> LiveContextInjectedEntry | None:
        """An entry that records the LiveScreen shown here, for whoever wants it in the log."""
        if self.screen is None:
            return None
        decorated = (
            entry.entry.sequence_number for entry in reversed(self) if isinstance(entry, DecoratedContextEntry)
        )
        return LiveContextInjectedEntry(self.screen, next(decorated, 0))


class LiveContextRenderer:
    """Renders one history again and again, and looks only at what is new.

    What it gives equals `render_live_context`. As long as nothing bounds the context (no limits, no compaction) and nothing was
    rolled back, a rendering costs what was appended since the last one, and a copy of a list.
    """

    def __init__(self, ledger: TokenLedger | None = None) -> None:
        self.memo: dict[Hashable, Any] = {}
        self._ledger = ledger or TokenLedger()
        self._seen: AgentHistorySnapshot | None = None
        self._shown: list[ContextEntry] = []
        self._opaque: list[int] = []
        self._in_force: InForce | None = None
        self._options: LiveContextOptions | None = None
        self._is_bounded = False
        self._before: list[ContextEntry] = []
        self._screen: str | None = None

    def render(self, snapshot: AgentHistorySnapshot, options: LiveContextOptions | None = None) -> LiveContext:
        """What a model sees of `snapshot` now."""
        options = options or _EVERYTHING
        if snapshot.in_force is not self._in_force or options is not self._options:
            self._prepare(snapshot, options)
        if self._is_bounded:
            rendered = render_live_context(snapshot, options, ledger=self._ledger)
            rendered.memo = self.memo
            return rendered
        new = snapshot.effective_since(self._seen) if self._seen is not None else None
        if new is None:
            self._shown, self._opaque, new = [], [], snapshot.effective.since(0)
        for entry in new:
            kind = type(entry)
            if kind in _CONTEXT:
                self._shown.append(entry)  # type: ignore[arg-type]
            elif kind is OpaqueEntry:
                self._opaque.append(entry.sequence_number)
        self._seen = snapshot
        left_out = (LeftOut(tuple(self._opaque), "written by a newer version"),) if self._opaque else ()
        rendered = LiveContext(self._before, left_out, self.memo, self._screen)
        rendered += self._shown if self._screen is None else _with_screen(self._shown, self._screen)
        return rendered

    def _prepare(self, snapshot: AgentHistorySnapshot, options: LiveContextOptions) -> None:
        """Find out what is the same for every rendering until something is set, or wanted otherwise."""
        before = _system(snapshot, options)
        if before != self._before:  # the instructions are the same object as long as they say the same
            self._before = before
        self._screen = _screen(snapshot, options)
        self._is_bounded = (
            snapshot.compaction is not None or options.max_tokens is not None or options.max_entries is not None
        )
        self._in_force, self._options = snapshot.in_force, options


def render_live_context(
    snapshot: AgentHistorySnapshot, options: LiveContextOptions | None = None, *, ledger: TokenLedger | None = None
) -> LiveContext:
    """What a model sees of `snapshot` now. `ledger` keeps token counts from one rendering to the next."""
    options = options or LiveContextOptions()
    left_out: list[LeftOut] = []
    before = _system(snapshot, options)
    entries: list[Any] = [entry for entry in snapshot.effective if type(entry) in _CONTEXT]
    units = units_of(entries)
    if snapshot.compaction is not None:
        before.append(_titled(ContextEntryRole.MODEL_INPUT, SUMMARY_TITLE, snapshot.compaction.summary))
        units, summarised = _after(snapshot.compaction.up_to, entries, units)
        left_out += _left_out(summarised, entries, "compaction")
    kept = _fitting(before, entries, units, options, ledger or TokenLedger())
    left_out += _left_out([unit for unit in units if unit not in kept], entries, "window")
    if opaque := tuple(entry.sequence_number for entry in snapshot.effective if isinstance(entry, OpaqueEntry)):
        left_out.append(LeftOut(opaque, "written by a newer version"))
    shown = [entry for unit in units if unit in kept for entry in entries[unit.start : unit.stop]]
    screen = _screen(snapshot, options)
    return LiveContext([*before, *_with_screen(shown, screen)], left_out, screen=screen)


def _system(snapshot: AgentHistorySnapshot, options: LiveContextOptions) -> list[ContextEntry]:
    texts: list[Part] = [Text(snapshot.system_instruction)] if snapshot.system_instruction else []
    if snapshot.memory_notebook and options.notebook == "system":
        texts.append(Text(f"{NOTEBOOK_TITLE}\n{snapshot.memory_notebook}"))
    return [RenderedContextEntry(ContextEntryRole.SYSTEM, tuple(texts))] if texts else []


def _screen(snapshot: AgentHistorySnapshot, options: LiveContextOptions) -> str | None:
    if options.notebook == "screen" and snapshot.memory_notebook:
        notebook = f"{NOTEBOOK_TITLE}\n{snapshot.memory_notebook}"
        return f"{notebook}\n\n{options.live_screen}" if options.live_screen else notebook
    return options.live_screen or None


def _titled(role: ContextEntryRole, title: str, text: str) -> RenderedContextEntry:
    return RenderedContextEntry(role, (Text(f"{title}\n{text}"),))


def _after(up_to: int, entries: Sequence[HistoryEntry], units: list[Unit]) -> tuple[list[Unit], list[Unit]]:
    """The units that reach beyond `up_to`, and those a summary stands for. One that straddles it is shown whole."""
    first = next((i for i, unit in enumerate(units) if entries[unit.stop - 1].sequence_number > up_to), len(units))
    return units[first:], units[:first]


def _fitting(
    before: Sequence[ContextEntry],
    entries: Sequence[ContextEntry],
    units: Sequence[Unit],
    options: LiveContextOptions,
    ledger: TokenLedger,
) -> set[Unit]:
    kept = set(units)
    if options.max_tokens is not None:
        limit = max(0, options.max_tokens - sum(map(ledger.tokens_of, before)))
        kept &= window(entries, units, ledger.tokens_of, limit=limit, shrink_to=options.shrink_to)
    if options.max_entries is not None:
        kept &= window(entries, units, lambda _: 1, limit=options.max_entries, shrink_to=options.shrink_to)
    return kept


def _left_out(
    units: Sequence[Unit], entries: Sequence[HistoryEntry], why: Literal["window", "compaction"]
) -> list[LeftOut]:
    numbers = tuple(entry.sequence_number for unit in units for entry in entries[unit.start : unit.stop])
    return [LeftOut(numbers, why)] if numbers else []


def _with_screen(shown: Sequence[ContextEntry], screen: str | None) -> list[ContextEntry]:
    """The entries, the last observation among them carrying the LiveScreen."""
    if screen is None:
        return list(shown)
    for index in range(len(shown) - 1, -1, -1):
        entry = shown[index]
        if isinstance(entry, ModelInputEntry | ToolCallResultsEntry):
            return [*shown[:index], entry.with_live_screen(screen), *shown[index + 1 :]]
    return [*shown, RenderedContextEntry(ContextEntryRole.MODEL_INPUT, (), screen)]
