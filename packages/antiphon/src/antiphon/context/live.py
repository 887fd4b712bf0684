"""The live context: what a model sees of a history at this moment.

`render_live_context` is a pure function of a snapshot. The order is: system instruction with the memory notebook; the effective
entries, or what is shown in their place (`ContextView`), as far as they fit the window; the LiveScreen on the last observation.

Law L9 (prefixes hold): entries are passed on unchanged and the LiveScreen, the only volatile part, comes last. So a longer
history renders with the same beginning until the system instruction, the notebook or the window changes, or the history is
rolled back; a compaction changes nothing before the first entry that it names.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Literal

from msgspec import Struct

from antiphon.context.tokens import TokenLedger
from antiphon.context.view import ContextView, SegmentText
from antiphon.context.window import fit_window, group_messages
from antiphon.errors import ContextError
from antiphon.history import (
    AgentHistorySnapshot,
    ContextEntry,
    ContextEntryRole,
    DecoratedContextEntry,
    LiveContextInjectedEntry,
    ModelInputEntry,
    ToolCallResultsEntry,
)
from antiphon.history.snapshot import ActiveSettings
from antiphon.parts import Part, Text, ToolCallRequest

NOTEBOOK_TITLE = "[Memory Notebook]"


class LiveContextOptions(Struct, frozen=True, kw_only=True):
    """Options for `render_live_context`.

    `max_tokens` and `max_entries` limit the history (the LiveScreen is extra); when a limit is exceeded the window shrinks to
    `shrink_to` of it. `notebook` places the memory notebook after the `system` instruction, on the `screen` (edits keep the
    prompt cache), or nowhere (`none`). `readers` are the models that get it, as `provider/model`: a compaction of a provider
    itself that has no text is shown to its own model only, and others see the originals.
    """

    live_screen: str | None = None
    max_tokens: int | None = None
    max_entries: int | None = None
    shrink_to: float = 0.7
    notebook: Literal["system", "screen", "none"] = "system"
    readers: frozenset[str] | None = None

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

    __slots__ = ("ends", "left_out", "memo", "screen")

    def __init__(
        self,
        entries: Iterable[ContextEntry] = (),
        left_out: Sequence[OmittedEntries] = (),
        memo: dict[Hashable, Any] | None = None,
        screen: str | None = None,
        ends: tuple[int, ...] = (),
    ) -> None:
        super().__init__(entries)
        self.ends = ends
        """Where the last two compactions end, as indexes: a provider's cache should keep what comes before."""
        self.left_out = tuple(left_out)
        self.screen = screen
        self.memo: dict[Hashable, Any] = {} if memo is None else memo

    def without_screen(self) -> LiveContext:
        """The same context without its LiveScreen."""
        entries = (entry.entry if isinstance(entry, DecoratedContextEntry) else entry for entry in self)
        kept = [entry for entry in entries if not isinstance(entry, RenderedContextEntry) or entry.live_screen is None]
        return LiveContext(kept, self.left_out, self.memo, ends=self.ends)

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

    Without a window, a rendering costs the entries appended since the last one plus a list copy; a compaction costs one pass over
    the entries.
    """

    def __init__(self, ledger: TokenLedger | None = None) -> None:
        self.memo: dict[Hashable, Any] = {}
        self._ledger = ledger or TokenLedger()
        self._seen: AgentHistorySnapshot | None = None
        self._view = ContextView()
        self._readers: frozenset[str] | None = None
        self._settings: ActiveSettings | None = None
        self._options: LiveContextOptions | None = None
        self._has_window = False
        self._system_entries: list[ContextEntry] = []
        self._screen: str | None = None

    def view(self, snapshot: AgentHistorySnapshot, readers: frozenset[str] | None = None) -> ContextView:
        """What a model sees of the entries of `snapshot`, without a window."""
        new = None
        if readers != self._readers:
            self._readers = readers
        elif self._seen is not None:
            new = snapshot.effective_since(self._seen)
        if new is None:
            self._view, new = ContextView(readers), snapshot.effective_since(None)
        if new:
            self._view.add(new)
        self._seen = snapshot
        return self._view

    def render(self, snapshot: AgentHistorySnapshot, options: LiveContextOptions | None = None) -> LiveContext:
        """Render `snapshot`."""
        options = options or _NO_LIMITS
        if snapshot.in_force is not self._settings or options is not self._options:
            self._prepare(snapshot, options)
        view = self.view(snapshot, options.readers)
        shown = view.shown
        left_out: list[OmittedEntries] = []
        if view.compacted:
            left_out.append(OmittedEntries(view.compacted, "compaction"))
        if self._has_window:
            shown, trimmed = _fit(self._system_entries, shown, options, self._ledger)
            if trimmed:
                left_out.append(OmittedEntries(trimmed, "window"))
        if view.opaque:
            left_out.append(OmittedEntries(tuple(view.opaque), "written by a newer version"))
        ends: tuple[int, ...] = ()
        if view.ends and shown is view.shown:
            ends = tuple([len(self._system_entries) + end for end in view.ends])
        rendered = LiveContext(self._system_entries, left_out, self.memo, self._screen, ends)
        rendered += shown if self._screen is None else _attach_screen(shown, self._screen)
        return rendered

    def _prepare(self, snapshot: AgentHistorySnapshot, options: LiveContextOptions) -> None:
        """Compute what stays the same until a setting or an option changes."""
        prefix = _system(snapshot.in_force, options)
        if prefix != self._system_entries:  # same text, same object: converters compare by identity
            self._system_entries = prefix
        self._screen = _screen(snapshot.in_force, options)
        self._has_window = options.max_tokens is not None or options.max_entries is not None
        self._settings, self._options = snapshot.in_force, options


def render_live_context(
    snapshot: AgentHistorySnapshot, options: LiveContextOptions | None = None, *, ledger: TokenLedger | None = None
) -> LiveContext:
    """Render what a model sees of `snapshot`. `ledger` keeps token counts between renderings."""
    return LiveContextRenderer(ledger).render(snapshot, options)


def _system(settings: ActiveSettings, options: LiveContextOptions) -> list[ContextEntry]:
    texts: list[Part] = [Text(settings.system_instruction)] if settings.system_instruction else []
    if settings.memory_notebook and options.notebook == "system":
        texts.append(Text(f"{NOTEBOOK_TITLE}\n{settings.memory_notebook}"))
    return [RenderedContextEntry(ContextEntryRole.SYSTEM, tuple(texts))] if texts else []


def _screen(settings: ActiveSettings, options: LiveContextOptions) -> str | None:
    if options.notebook == "screen" and settings.memory_notebook:
        notebook = f"{NOTEBOOK_TITLE}\n{settings.memory_notebook}"
        return f"{notebook}\n\n{options.live_screen}" if options.live_screen else notebook
    return options.live_screen or None


def _fit(
    prefix: Sequence[ContextEntry], shown: list[ContextEntry], options: LiveContextOptions, ledger: TokenLedger
) -> tuple[list[ContextEntry], tuple[int, ...]]:
    """The entries that fit the window, and the numbers of those that do not. The text of a segment is always kept."""
    fixed = [entry for entry in shown if type(entry) is SegmentText]
    entries: list[Any] = [entry for entry in shown if type(entry) is not SegmentText]
    groups = group_messages(entries)
    kept = set(groups)
    if options.max_tokens is not None:
        limit = max(0, options.max_tokens - sum(map(ledger.tokens_of, (*prefix, *fixed))))
        kept &= fit_window(entries, groups, ledger.tokens_of, limit=limit, shrink_to=options.shrink_to)
    if options.max_entries is not None:
        kept &= fit_window(entries, groups, lambda _: 1, limit=options.max_entries, shrink_to=options.shrink_to)
    dropped = [entry for group in groups if group not in kept for entry in entries[group.start : group.stop]]
    if not dropped:
        return shown, ()
    gone = set(map(id, dropped))
    return [entry for entry in shown if id(entry) not in gone], tuple([entry.sequence_number for entry in dropped])


def _attach_screen(visible: Sequence[ContextEntry], screen: str | None) -> list[ContextEntry]:
    """Attach the LiveScreen to the last observation."""
    if screen is None:
        return list(visible)
    for index in range(len(visible) - 1, -1, -1):
        entry = visible[index]
        if isinstance(entry, ModelInputEntry | ToolCallResultsEntry):
            return [*visible[:index], entry.with_live_screen(screen), *visible[index + 1 :]]
    return [*visible, RenderedContextEntry(ContextEntryRole.MODEL_INPUT, (), screen)]
