"""Whatever a history holds, each format's judge accepts every line of its export."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import atif
from hypothesis import given
from hypothesis import strategies as st

from antiphon.history import AgentHistory, HistoryEntry
from antiphon_devtools.trajectories import TrajectoryExport, TurnFilter
from support.corpus import accepted_requests
from support.history_strategies import append_any, conversations, entries
from trajectories import test_openai_finetune, test_sharegpt


def judge(format_name: str, body: dict[str, Any]) -> None:
    if format_name == "atif":
        atif.Trajectory.model_validate(body)
    elif format_name == "sharegpt":
        assert test_sharegpt.problems_of(body) == []
    else:
        assert test_openai_finetune.problems_of(body) == []


def check_exports(history: AgentHistory, **options: Any) -> int:
    lines = 0
    for format_name in ("openai-finetune", "sharegpt", "atif"):
        for written in TrajectoryExport(format_name, branch="all", **options).write(history):
            if written.body is not None:
                judge(format_name, written.body)
                lines += 1
    return lines


@given(conversations | st.lists(entries, max_size=12), st.lists(st.integers(0, 12), max_size=2), st.booleans())
def test_every_line_is_legal(made: list[HistoryEntry], rollbacks: list[int], finished: bool) -> None:
    history = AgentHistory()
    for entry in made:
        append_any(history, entry)
    for to in rollbacks:
        history.rollback(min(to, history.version))
    with tempfile.TemporaryDirectory() as folder:
        check_exports(history, media=Path(folder), keep=TurnFilter(finished=finished))
        check_exports(history)


def test_recorded_conversations_are_legal_examples() -> None:
    lines = 0
    for format_name in ("anthropic", "openai-chat"):
        for body in list(accepted_requests(format_name))[:150]:
            lines += check_exports(AgentHistory.from_messages(body, format_name, report=[]))
    assert lines > 100
