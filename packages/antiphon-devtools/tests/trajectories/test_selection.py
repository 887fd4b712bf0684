"""Which branches and turns an export takes."""

from __future__ import annotations

import pytest

from antiphon.errors import ConversationError
from antiphon.history import AgentHistory, HumanDecisionEntry, ModelInputEntry, ModelOutputEntry, SqliteStore
from antiphon.parts import ToolCallRequest
from antiphon_devtools.trajectories import Trajectory, TurnFilter, select_trajectories
from trajectories.example_history import example_history


def questions(trajectory: Trajectory) -> list[str]:
    return [
        step.entry.content[0].text.split("?")[0].split("，")[0]  # type: ignore[union-attr]
        for turn in trajectory.turns
        for step in turn.steps
        if isinstance(step.entry, ModelInputEntry)
    ]


def selected(**conditions: object) -> Trajectory:
    (trajectory,) = select_trajectories(example_history(), keep=TurnFilter(**conditions))  # type: ignore[arg-type]
    return trajectory


def test_the_current_branch_has_no_rolled_back_turns() -> None:
    trajectory = selected()
    assert questions(trajectory)[1:] == ["And tomorrow, by the forecast", "Delete my notes.", "Tell me a story."]
    assert [turn.ended for turn in trajectory.turns] == ["", "", "", "interrupted"]
    assert {step.system for turn in trajectory.turns for step in turn.steps} == {"Be brief."}


def test_an_abandoned_branch_ends_where_it_was_rolled_back() -> None:
    (abandoned,) = select_trajectories(example_history(), branch="abandoned")
    assert questions(abandoned)[1:] == ["And tomorrow"]
    assert not abandoned.is_current


def test_all_branches_mark_the_turns_they_share() -> None:
    current, abandoned = select_trajectories(example_history(), branch="all")
    assert [turn.is_copied for turn in current.turns] == [False] * 4
    assert [turn.is_copied for turn in abandoned.turns] == [True, False]


def test_a_branch_that_another_continues_is_not_exported_twice() -> None:
    history = AgentHistory()
    history.append(ModelInputEntry.of("one"))
    history.append(ModelOutputEntry.of("1"))
    history.rollback(1)
    history.rollback(2)  # undoes the rollback
    assert select_trajectories(history, branch="abandoned") == []


def test_a_fork_shares_the_turns_of_its_parent(tmp_path: object) -> None:
    with SqliteStore(f"{tmp_path}/chats.db") as store:
        history = store.create("Rain")
        history.append(ModelInputEntry.of("one"))
        history.append(ModelOutputEntry.of("1"))
        fork = store.fork(history.id)
        fork.append(ModelInputEntry.of("two"))
        fork.append(ModelOutputEntry.of("2"))
        exported: set[bytes] = set()
        select_trajectories(history, exported=exported)
        (trajectory,) = select_trajectories(store.open(fork.id), exported=exported)
    assert [turn.is_copied for turn in trajectory.turns] == [True, False]


def test_a_version_is_a_branch() -> None:
    (trajectory,) = select_trajectories(example_history(), branch="5")
    assert questions(trajectory) == ["今天奥斯陆下雨吗？ And Bergen"]


@pytest.mark.parametrize(
    ("branch", "reason"),
    [
        ("99", "has no version 99; its versions are 1 to 18"),
        ("main", "unknown branch 'main'; expected current, abandoned, all"),
    ],
)
def test_an_unknown_branch_is_refused(branch: str, reason: str) -> None:
    with pytest.raises(ConversationError, match=reason):
        select_trajectories(example_history(), branch=branch)


@pytest.mark.parametrize(
    ("conditions", "kept", "notes"),
    [
        ({"finished": True}, [1, 2, 3], ["turn 4: left out: not finished (interrupted)"]),
        (
            {"approved": True},
            [3],
            [f"turn {number}: left out: no call was approved by a person" for number in (1, 2, 4)],
        ),
        ({"with_tools": True}, [1, 3], ["turn 2: left out: no tool calls", "turn 4: left out: no tool calls"]),
        ({"without_errors": True}, [2, 3, 4], ["turn 1: left out: weather did not succeed"]),
        ({"model": "gpt-*"}, [2], [f"turn {n}: left out: answered by anthropic/claude-sonnet-4-5" for n in (1, 3, 4)]),
        ({"model": "anthropic/*"}, [1, 3, 4], ["turn 2: left out: answered by openai/gpt-5.5"]),
        ({"finished": True, "approved": True}, [3], None),
    ],
)
def test_filters_leave_out_whole_turns(conditions: dict[str, object], kept: list[int], notes: list[str] | None) -> None:
    trajectory = selected(**conditions)
    assert [turn.number for turn in trajectory.turns] == kept
    if notes is not None:
        assert list(trajectory.notes) == notes


def test_a_denied_call_is_not_approved() -> None:
    history = AgentHistory()
    history.append(ModelInputEntry.of("Delete it."))
    history.append(ModelOutputEntry.of(ToolCallRequest("delete", "c1")))
    history.append(HumanDecisionEntry("c1", "deny"))
    (trajectory,) = select_trajectories(history, keep=TurnFilter(approved=True))
    assert trajectory.notes == ("turn 1: left out: call c1 was denied",)


@pytest.mark.parametrize(
    ("stop_reason", "ended"), [("length", "length"), ("end", ""), ("", ""), ("failed", "failed"), ("paused", "paused")]
)
def test_an_answer_that_was_cut_off_is_not_finished(stop_reason: str, ended: str) -> None:
    history = AgentHistory()
    history.append(ModelInputEntry.of("Count."))
    history.append(ModelOutputEntry(ModelOutputEntry.of("1, 2").content, stop_reason))
    (trajectory,) = select_trajectories(history)
    assert trajectory.turns[0].ended == ended


def test_open_calls_and_unanswered_questions_are_not_finished() -> None:
    history = AgentHistory()
    history.append(ModelInputEntry.of("Is it raining?"))
    (asked,) = select_trajectories(history)
    history.append(ModelOutputEntry.of(ToolCallRequest("weather", "c1")))
    (called,) = select_trajectories(history)
    assert [asked.turns[0].ended, called.turns[0].ended] == ["no answer", "calls without results"]
