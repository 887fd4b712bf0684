"""L9: appending changes no byte rendered for what came before; and no window separates a call from its results."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from antiphon.context import LiveContextOptions, RenderedContextEntry, TokenLedger, render_live_context
from antiphon.errors import InvalidEntry
from antiphon.history import (
    AgentHistory,
    CompactionEntry,
    ContextEntry,
    HistoryEntry,
    ModelInputEntry,
    ModelOutputEntry,
    SetMemoryNotebookEntry,
    SetSystemInstructionEntry,
)
from antiphon.parts import ToolCallResult
from support.history_strategies import any_text, conversations, entries


def rendered_bytes(context: list[ContextEntry]) -> list[bytes]:
    """Each entry as bytes, without the LiveScreen: it comes after everything else and is meant to change."""
    any_text = (entry for entry in context if not isinstance(entry, RenderedContextEntry) or entry.live_screen is None)
    return [msgspec.json.encode((entry.role, entry.content)) for entry in any_text]


def history_of(appended: list[HistoryEntry]) -> AgentHistory:
    history = AgentHistory()
    append_valid(history, appended)
    return history


def append_valid(history: AgentHistory, appended: list[HistoryEntry]) -> None:
    """Append all entries that the history accepts: it refuses results without their call."""
    for entry in appended:
        with suppress(InvalidEntry):
            history.append(entry)


def is_turn(entry: HistoryEntry) -> bool:
    return not isinstance(entry, SetSystemInstructionEntry | SetMemoryNotebookEntry | CompactionEntry)


any_history: st.SearchStrategy[list[HistoryEntry]] = st.one_of(conversations, st.lists(entries, max_size=25))


@given(any_history, st.lists(entries.filter(is_turn), max_size=5), any_text)
def test_a_longer_history_renders_with_the_same_beginning(
    before: list[HistoryEntry], after: list[HistoryEntry], screen: str
) -> None:
    history = history_of(before)
    short = render_live_context(history.snapshot(), LiveContextOptions(live_screen=screen))
    append_valid(history, after)
    long = render_live_context(history.snapshot(), LiveContextOptions(live_screen=screen + "!"))
    beginning = rendered_bytes(short)
    assert rendered_bytes(long)[: len(beginning)] == beginning


@given(any_history, st.integers(0, 60), st.sampled_from([0.3, 0.7, 1.0]))
def test_the_same_history_always_renders_the_same(appended: list[HistoryEntry], limit: int, shrink_to: float) -> None:
    options = LiveContextOptions(max_tokens=limit, max_entries=limit // 2, shrink_to=shrink_to)
    snapshot = history_of(appended).snapshot()
    ledger = TokenLedger()
    first = render_live_context(snapshot, options, ledger=ledger)
    again = render_live_context(history_of(list(appended)).snapshot(), options)
    assert rendered_bytes(render_live_context(snapshot, options, ledger=ledger)) == rendered_bytes(first)
    assert rendered_bytes(again) == rendered_bytes(first)


@given(conversations, st.integers(1, 40))
def test_a_window_does_not_move_between_its_steps(appended: list[HistoryEntry], limit: int) -> None:
    """Entry by entry, the window either grows at its end or moves; when it moves it leaves room for more than one entry."""
    history = AgentHistory()
    options = LiveContextOptions(max_entries=limit, shrink_to=0.5)
    previous: list[int] = []
    for entry in appended:
        history.append(entry)
        context = render_live_context(history.snapshot(), options)
        now = [shown.sequence_number for shown in context if isinstance(shown, HistoryEntry)]
        moved = now[: len(previous)] != previous
        assert moved or len(now) > len(previous)
        previous = now


@given(any_history, st.integers(0, 80), st.integers(0, 30), st.floats(0, 1), st.booleans())
def test_no_window_and_no_compaction_separates_a_call_from_its_results(
    appended: list[HistoryEntry], max_tokens: int, max_entries: int, compacted: float, is_compacted: bool
) -> None:
    history = history_of(appended)
    if is_compacted:
        history.compact("so far", int(history.version * compacted))
    whole = render_live_context(history.snapshot())
    cut = render_live_context(
        history.snapshot(), LiveContextOptions(max_tokens=max_tokens, max_entries=max_entries), ledger=TokenLedger()
    )
    for context in (whole, cut):
        assert answers(context) == {pair for pair in answers_in_log(history) if pair[1] in shown(context)}
    check_report(history, cut)


@given(any_history, st.integers(0, 80), any_text.filter(bool))
def test_the_system_instruction_and_the_latest_question_are_always_kept(
    appended: list[HistoryEntry], limit: int, instruction: str
) -> None:
    history = history_of(appended)
    history.set_system_instruction(instruction)
    context = render_live_context(history.snapshot(), LiveContextOptions(max_tokens=limit, max_entries=limit))
    assert context[0].role == "system"
    questions = [entry for entry in history.effective if isinstance(entry, ModelInputEntry)]
    if questions:
        assert questions[-1] in context


def answers_in_log(history: AgentHistory) -> set[tuple[int, int]]:
    """Which entry each result answers: (number of the calling entry, number of the answering entry)."""
    return answers([entry for entry in history.effective if hasattr(entry, "role")])


def answers(context: list[Any]) -> set[tuple[int, int]]:
    calls: dict[str, int] = {}
    pairs: set[tuple[int, int]] = set()
    for entry in context:
        number = getattr(entry, "sequence_number", 0)
        calls |= {call.tool_call_id: number for call in entry.tool_calls}
        pairs |= {
            (calls[part.tool_call_id], number)
            for part in entry.content
            if isinstance(part, ToolCallResult) and part.tool_call_id in calls
        }
    return pairs


def shown(context: list[Any]) -> set[int]:
    return {entry.sequence_number for entry in context if isinstance(entry, HistoryEntry)}


def check_report(history: AgentHistory, context: Any) -> None:
    """Shown and left out, together, are the whole effective history, and nothing is both. An empty answer shows nothing."""
    visible = [
        entry.sequence_number
        for entry in history.effective
        if hasattr(entry, "role") and not (isinstance(entry, ModelOutputEntry) and not entry.content)
    ]
    reported = [number for left_out in context.left_out for number in left_out.sequence_numbers]
    assert sorted([*shown(context), *reported]) == visible
