"""The live context: what a model sees of a history at this moment.

`render_live_context` is a pure function of a snapshot. The order is: system instruction with the memory notebook; the summary,
if the history was compacted; the effective entries that fit the window; the LiveScreen on the last observation.

Law L9 (prefixes hold): entries are passed on unchanged and the LiveScreen, the only volatile part, comes last. So a longer
history renders with the same beginning until the system instruction, the notebook or the window changes, or the history is
compacted or rolled back.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Literal

from msgspec import Struct

from antiphon.context.tokens import TokenLedger
from antiphon.context.window import MessageGroup, fit_window, group_messages
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
from antiphon.history.snapshot import ActiveSettings
from antiphon.parts import Part, Text, ToolCallRequest

NOTEBOOK_TITLE = "[Memory Notebook]"
SUMMARY_TITLE = "[Summary of the conversation so far]"

_CONTEXT = frozenset({ModelInputEntry, ModelOutputEntry, ToolCallResultsEntry})


class LiveContextOptions(Struct, frozen=True, kw_only=True):
    """Options for `render_live_context`.

    `max_tokens` and `max_entries` limit the history (the LiveScreen is extra); when a limit is exceeded the window shrinks to
    `shrink_to` of it. `notebook` places the memory notebook after the `system` instruction, on the `screen` (edits keep the
    prompt cache), or nowhere (`none`).
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
                raise ContextError(f"{name}={limit}: must not be negative; omit it for no limit")
        if not 0 < self.shrink_to <= 1:
            raise ContextError(f"shrink_to={self.shrink_to}: must be above 0 and at most 1")


_NO_LIMITS = LiveContextOptions()


class RenderedContextEntry(Struct, frozen=True):
    """A context entry made for this call, not stored in the log: instructions or a summary."""

    role: ContextEntryRole
    content: tuple[Part, ...]
    live_screen: str | None = None

    @property
    def tool_calls(self) -> tuple[ToolCallRequest, ...]:
        return ()


class OmittedEntries(Struct, frozen=True):
    """Effective entries the model does not see, and the reason."""

    sequence_numbers: tuple[int, ...]
    why: Literal["window", "compaction", "written by a newer version"]


class LiveContext(list[ContextEntry]):
    """The rendered entries and a report of what was left out.

    `memo` is a cache for code that converts contexts; `LiveContextRenderer` passes it from one context of a conversation to
    the next.
    """

    __slots__ = ("left_out", "memo", "screen")

    def __init__(
        self,
        entries: Iterable[ContextEntry] = (),
        left_out: Sequence[OmittedEntries] = (),
        memo: dict[Hashable, Any] | None = None,
        screen: str | None = None,
    ) -> None:
        super().__init__(entries)
        self.left_out = tuple(left_out)
        self.screen = screen
        self.memo: dict[Hashable, Any] = {} if memo is None else memo

    def without_screen(self) -> LiveContext:
        """The same context without its LiveScreen."""
        entries = (entry.entry if isinstance(entry, DecoratedContextEntry) else entry for entry in self)
        kept = [entry for entry in entries if not isinstance(entry, RenderedContextEntry) or entry.live_screen is None]
        return LiveContext(kept, self.left_out, self.memo)

    def injected(self) -> LiveContextInjectedEntry | None:
        """An entry that records the LiveScreen shown here, to be appended to the log if wanted."""
        if self.screen is None:
            return None
        decorated = (
            entry.entry.sequence_number for entry in reversed(self) if isinstance(entry, DecoratedContextEntry)
        )
        return LiveContextInjectedEntry(self.screen, next(decorated, 0))


class LiveContextRenderer:
    """Renders a growing history incrementally; the result equals `render_live_context`.

    Without limits, compaction or rollback, a rendering costs the entries appended since the last one plus a list copy.
    """

    def __init__(self, ledger: TokenLedger | None = None) -> None:
        self.memo: dict[Hashable, Any] = {}
        self._ledger = ledger or TokenLedger()
        self._seen: AgentHistorySnapshot | None = None
        self._visible: list[ContextEntry] = []
        self._opaque: list[int] = []
        self._settings: ActiveSettings | None = None
        self._options: LiveContextOptions | None = None
        self._has_limits = False
        self._system_entries: list[ContextEntry] = []
        self._screen: str | None = None

    def render(self, snapshot: AgentHistorySnapshot, options: LiveContextOptions | None = None) -> LiveContext:
        """Render `snapshot`."""
        options = options or _NO_LIMITS
        if snapshot.in_force is not self._settings or options is not self._options:
            self._prepare(snapshot, options)
        if self._has_limits:
            rendered = render_live_context(snapshot, options, ledger=self._ledger)
            rendered.memo = self.memo
            return rendered
        new = snapshot.effective_since(self._seen) if self._seen is not None else None
        if new is None:
            self._visible, self._opaque, new = [], [], snapshot.effective.since(0)
        for entry in new:
            kind = type(entry)
            if kind in _CONTEXT:
                if kind is not ModelOutputEntry or entry.content:  # type: ignore[attr-defined]
                    self._visible.append(entry)  # type: ignore[arg-type]
            elif kind is OpaqueEntry:
                self._opaque.append(entry.sequence_number)
        self._seen = snapshot
        left_out = (OmittedEntries(tuple(self._opaque), "written by a newer version"),) if self._opaque else ()
        rendered = LiveContext(self._system_entries, left_out, self.memo, self._screen)
        rendered += self._visible if self._screen is None else _attach_screen(self._visible, self._screen)
        return rendered

    def _prepare(self, snapshot: AgentHistorySnapshot, options: LiveContextOptions) -> None:
        """Compute what stays the same until a setting or an option changes."""
        prefix = _system(snapshot, options)
        if prefix != self._system_entries:  # same text, same object: converters compare by identity
            self._system_entries = prefix
        self._screen = _screen(snapshot, options)
        self._has_limits = (
            snapshot.compaction is not None or options.max_tokens is not None or options.max_entries is not None
        )
        self._settings, self._options = snapshot.in_force, options


def render_live_context(
    snapshot: AgentHistorySnapshot, options: LiveContextOptions | None = None, *, ledger: TokenLedger | None = None
) -> LiveContext:
    """Render what a model sees of `snapshot`. `ledger` keeps token counts between renderings."""
    options = options or LiveContextOptions()
    left_out: list[OmittedEntries] = []
    prefix = _system(snapshot, options)
    entries: list[Any] = [entry for entry in snapshot.effective if type(entry) in _CONTEXT and not _is_empty(entry)]
    groups = group_messages(entries)
    if snapshot.compaction is not None:
        prefix.append(_section(ContextEntryRole.MODEL_INPUT, SUMMARY_TITLE, snapshot.compaction.summary))
        groups, summarised = _after(snapshot.compaction.up_to, entries, groups)
        left_out += _omitted(summarised, entries, "compaction")
    kept = _fit(prefix, entries, groups, options, ledger or TokenLedger())
    left_out += _omitted([group for group in groups if group not in kept], entries, "window")
    if opaque := tuple(entry.sequence_number for entry in snapshot.effective if isinstance(entry, OpaqueEntry)):
        left_out.append(OmittedEntries(opaque, "written by a newer version"))
    visible = [entry for group in groups if group in kept for entry in entries[group.start : group.stop]]
    screen = _screen(snapshot, options)
    return LiveContext([*prefix, *_attach_screen(visible, screen)], left_out, screen=screen)


def _is_empty(entry: HistoryEntry) -> bool:
    """Whether an entry is an answer without content: it stays in the log and is not a message."""
    return type(entry) is ModelOutputEntry and not entry.content


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


def _section(role: ContextEntryRole, title: str, text: str) -> RenderedContextEntry:
    return RenderedContextEntry(role, (Text(f"{title}\n{text}"),))


def _after(
    up_to: int, entries: Sequence[HistoryEntry], groups: list[MessageGroup]
) -> tuple[list[MessageGroup], list[MessageGroup]]:
    """Split into groups after `up_to` and summarised groups. A group that straddles `up_to` is shown whole."""
    first = next((i for i, group in enumerate(groups) if entries[group.stop - 1].sequence_number > up_to), len(groups))
    return groups[first:], groups[:first]


def _fit(
    prefix: Sequence[ContextEntry],
    entries: Sequence[ContextEntry],
    groups: Sequence[MessageGroup],
    options: LiveContextOptions,
    ledger: TokenLedger,
) -> set[MessageGroup]:
    kept = set(groups)
    if options.max_tokens is not None:
        limit = max(0, options.max_tokens - sum(map(ledger.tokens_of, prefix)))
        kept &= fit_window(entries, groups, ledger.tokens_of, limit=limit, shrink_to=options.shrink_to)
    if options.max_entries is not None:
        kept &= fit_window(entries, groups, lambda _: 1, limit=options.max_entries, shrink_to=options.shrink_to)
    return kept


def _omitted(
    groups: Sequence[MessageGroup], entries: Sequence[HistoryEntry], why: Literal["window", "compaction"]
) -> list[OmittedEntries]:
    numbers = tuple(entry.sequence_number for group in groups for entry in entries[group.start : group.stop])
    return [OmittedEntries(numbers, why)] if numbers else []


def _attach_screen(visible: Sequence[ContextEntry], screen: str | None) -> list[ContextEntry]:
    """Attach the LiveScreen to the last observation."""
    if screen is None:
        return list(visible)
    for index in range(len(visible) - 1, -1, -1):
        entry = visible[index]
        if isinstance(entry, ModelInputEntry | ToolCallResultsEntry):
            return [*visible[:index], entry.with_live_screen(screen), *visible[index + 1 :]]
    return [*visible, RenderedContextEntry(ContextEntryRole.MODEL_INPUT, (), screen)]
