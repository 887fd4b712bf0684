"""What a model is shown, and where."""

from __future__ import annotations

import pytest

from antiphon.context import LiveContextOptions, TokenLedger, render_live_context
from antiphon.errors import ContextError, InvalidEntry
from antiphon.history import (
    AgentHistory,
    ContextEntryRole,
    DebugLogEntry,
    DecoratedContextEntry,
    LiveContextInjectedEntry,
    ModelInputEntry,
    ModelOutputEntry,
    ToolCallResultsEntry,
    decode_entry,
)
from antiphon.parts import Text, ToolCallRequest, ToolCallResult

CALL = ToolCallRequest("weather", "call_1", '{"city": "Oslo"}')


@pytest.fixture
def history() -> AgentHistory:
    history = AgentHistory()
    history.set_system_instruction("Be kind.")
    history.set_memory_notebook("The user lives in Oslo.")
    history.append(ModelInputEntry.of("Is it raining?"))
    history.append(DebugLogEntry("net", "slow today"))
    history.append(ModelOutputEntry.of("Let me see.", CALL))
    history.append(ToolCallResultsEntry((ToolCallResult.of(CALL, "Rain."),)))
    return history


def test_instructions_and_notebook_come_first_and_debug_logs_never(history: AgentHistory) -> None:
    context = render_live_context(history.snapshot())
    assert [entry.role for entry in context] == ["system", "model_input", "model_output", "tool_result"]
    assert context[0].content == (Text("Be kind."), Text("[Memory Notebook]\nThe user lives in Oslo."))
    assert context.left_out == ()


def test_the_live_screen_is_on_the_last_observation_only_and_touches_no_entry(history: AgentHistory) -> None:
    before = list(history.entries)
    context = render_live_context(history.snapshot(), LiveContextOptions(live_screen="12:00, 3 windows open"))
    assert [entry.live_screen for entry in context] == [None, None, None, "12:00, 3 windows open"]
    decorated = context[-1]
    assert isinstance(decorated, DecoratedContextEntry)
    assert decorated.entry is history.entries[-1]
    assert decorated.content == decorated.entry.content
    assert history.entries == before


def test_injected_context_can_be_recorded_and_the_decorated_entry_cannot(history: AgentHistory) -> None:
    context = render_live_context(history.snapshot(), LiveContextOptions(live_screen="12:00"))
    record = context.injected()
    assert record == LiveContextInjectedEntry("12:00", 6)
    history.append(record)
    with pytest.raises(InvalidEntry, match=r"DecoratedContextEntry.*append its `entry`"):
        history.append(context[-1])  # type: ignore[type-var]
    assert history.version == 7


def test_the_screen_is_shown_without_an_entry_to_decorate() -> None:
    context = render_live_context(AgentHistory().snapshot(), LiveContextOptions(live_screen="12:00"))
    assert [entry.live_screen for entry in context] == ["12:00"]
    assert context.injected() == LiveContextInjectedEntry("12:00", 0)
    assert render_live_context(AgentHistory().snapshot()).injected() is None


def test_a_notebook_on_the_screen_leaves_the_prompt_cache_alone(history: AgentHistory) -> None:
    options = LiveContextOptions(live_screen="12:00", notebook="screen")
    first = render_live_context(history.snapshot(), options)
    history.set_memory_notebook("The user moved to Bergen.")
    second = render_live_context(history.snapshot(), options)
    assert first[:-1] == second[:-1]
    assert second[-1].live_screen == "[Memory Notebook]\nThe user moved to Bergen.\n\n12:00"
    assert render_live_context(history.snapshot(), LiveContextOptions(notebook="none"))[0].content == (
        Text("Be kind."),
    )


def test_a_compaction_starts_the_view_from_its_summary(history: AgentHistory) -> None:
    history.append(ModelOutputEntry.of("It rains."))
    history.append(ModelInputEntry.of("And tomorrow?"))
    history.compact("The user asked for the weather in Oslo: rain.", up_to=7)
    context = render_live_context(history.snapshot())
    assert [entry.role for entry in context] == ["system", "model_input", "model_input"]
    assert context[1].content == (
        Text("[Summary of the conversation so far]\nThe user asked for the weather in Oslo: rain."),
    )
    (left_out,) = context.left_out
    assert (left_out.sequence_numbers, left_out.why) == ((3, 5, 6, 7), "compaction")
    assert len(history.entries) == 9, "the facts stay"


def test_a_compaction_that_cuts_between_call_and_result_shows_both(history: AgentHistory) -> None:
    history.compact("The user asked for the weather.", up_to=5)
    context = render_live_context(history.snapshot())
    assert [entry.role for entry in context] == ["system", "model_input", "model_output", "tool_result"]


def test_a_rollback_over_a_compaction_brings_everything_back(history: AgentHistory) -> None:
    before = list(render_live_context(history.snapshot()))
    history.compact("gone", up_to=6)
    assert len(render_live_context(history.snapshot())) == 2
    history.rollback(6)
    assert list(render_live_context(history.snapshot())) == before


def test_entries_of_a_newer_version_are_reported_not_shown(history: AgentHistory) -> None:
    history.append(decode_entry(b'{"kind":"dream","sequence_number":7,"of":"sheep"}'))
    assert render_live_context(history.snapshot()).left_out[0].sequence_numbers == (7,)
    assert "newer version" in render_live_context(history.snapshot()).left_out[0].why


def test_a_window_keeps_the_question_of_a_long_round_trip() -> None:
    history = AgentHistory()
    history.append(ModelInputEntry.of("Find me a flat."))
    for number in range(30):
        call = ToolCallRequest("search_web", f"call_{number}", "{}")
        history.append(ModelOutputEntry.of(call))
        history.append(ToolCallResultsEntry((ToolCallResult.of(call, "nothing yet"),)))
    context = render_live_context(history.snapshot(), LiveContextOptions(max_entries=10), ledger=TokenLedger())
    shown: list[object] = [*context]
    assert (shown[0], shown[-1]) == (history.entries[0], history.entries[-1])
    assert 3 <= len(context) <= 10
    (left_out,) = context.left_out
    assert left_out.why == "window"
    assert left_out.sequence_numbers == tuple(range(2, 2 + 61 - len(context)))


@pytest.mark.parametrize("bad", [{"max_tokens": -1}, {"max_entries": -5}, {"shrink_to": 0}, {"shrink_to": 1.5}])
def test_limits_that_make_no_sense_are_refused_by_name(bad: dict[str, float]) -> None:
    (name,) = bad
    with pytest.raises(ContextError, match=name):
        LiveContextOptions(**bad)  # type: ignore[arg-type]


def test_roles_are_neutral() -> None:
    assert {role.value for role in ContextEntryRole} == {"system", "model_input", "model_output", "tool_result"}
