"""Whatever a session file holds, reading it ends with histories and a report, or with a `SessionError`, and no other error."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.errors import SessionError
from antiphon.history import AgentHistory
from antiphon_devtools.sessions import load_program
from sessions.session_lines import claude_session, codex_session, gemini_session

SESSIONS: dict[str, Callable[[], Any]] = {
    "claude-code": claude_session,
    "codex": codex_session,
    "gemini-cli": gemini_session,
}
JUNK: list[Any] = [
    None,
    True,
    7,
    -1.5,
    10**400,  # no float holds it
    "",
    "x",
    "\x00",
    [],
    [[]],
    [None],
    {},
    {"type": []},
    {"text": {}},
    [{"type": "text"}],
]


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every value in a JSON value, its own included."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, inner in items for place in places(inner, (*path, key)))]


def put(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """The value with something else at a place."""
    if not path:
        return new
    changed = copy.copy(value)
    changed[path[0]] = put(value[path[0]], path[1:], new)
    return changed


@pytest.mark.parametrize("name", SESSIONS)
def test_a_number_that_no_float_holds_is_kept(tmp_path: Path, name: str) -> None:
    """A model may write one among the arguments of a call."""
    text = "\n".join(json.dumps(line) for line in SESSIONS[name]().lines)
    path = tmp_path / f"{name}.jsonl"
    path.write_text(text)
    whole = load_program(name).read(path)
    path.write_text(
        text.replace('"', '"a number": 1e400, "', 1) if name == "codex" else text[:-1] + ', "a number": 1e400}'
    )
    assert load_program(name).read(path).unreadable == whole.unreadable


@pytest.mark.parametrize("name", SESSIONS)
@given(data=st.data())
def test_a_damaged_file_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, name: str, data: st.DataObject
) -> None:
    lines: list[Any] = list(SESSIONS[name]().lines)
    for _ in range(data.draw(st.integers(1, 4))):
        number = data.draw(st.integers(0, len(lines) - 1))
        place = data.draw(st.sampled_from(places(lines[number])))
        lines[number] = put(lines[number], place, data.draw(st.sampled_from(JUNK)))
    if data.draw(st.booleans()):
        lines = data.draw(st.permutations(lines))
    path = tmp_path_factory.getbasetemp() / f"{name}.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in lines))
    try:
        imported = load_program(name).read(path)
    except SessionError:
        return
    for branch in imported.branches:
        AgentHistory(branch.entries)
    assert all(str(one).startswith(str(path)) for one in imported.unreadable)
