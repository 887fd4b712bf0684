"""Sessions of the real opencode, Copilot CLI and aider are read and continued in the real Claude Code.

The programs come from their registries, once, into `.clients` (or `$ANTIPHON_CLIENTS`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from antiphon.history import SqliteStore
from antiphon.parts import Text, Thinking, ToolCallRequest, ToolCallResult, text_of
from clients.coding_agents import AGENTS
from clients.command_lines import COMMAND_LINES
from clients.installed import install
from clients.program import ANY_MODEL, Program
from clients.run import MARKER, SECRET, run_program
from clients.script import Script
from gateway.strict_upstream import StrictUpstream
from sessions.session_lines import PIXEL
from together.real_programs import INSTALLED, PROMPT, REAL_PROGRAMS, REASONING, RealProgram, Stage
from together.test_real_programs import antiphon, move, parts_of, pictures

pytestmark = pytest.mark.slow


def client(name: str, wire: str) -> Program:
    return next(program for program in (*AGENTS, *COMMAND_LINES) if (program.name, program.wire) == (name, wire))


def cannot_resume(session: str, prompt: str) -> list[str]:
    raise AssertionError("Antiphon does not write sessions of this program")


OPENCODE = RealProgram(
    "opencode",
    client("opencode", "anthropic"),
    lambda prompt: ["opencode", "run", "--auto", "-m", f"antiphon/{ANY_MODEL}", prompt, "-f", "lamp.png"],
    cannot_resume,
)
COPILOT = RealProgram(
    "copilot",
    client("Copilot CLI", "anthropic"),
    lambda prompt: ["copilot", "-p", prompt, "--allow-all-tools", "--allow-all-paths"],
    cannot_resume,
)
AIDER = client("aider", "openai-chat")
CLAUDE = REAL_PROGRAMS["claude-code"]


class Rooms:
    """Stages in folders of their own, closed at the end."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder = folder
        self._stack = stack

    def stage(self, program: RealProgram) -> Stage:
        try:
            install(program.client, INSTALLED)
        except SystemExit as error:
            pytest.skip(str(error))
        upstream = self._stack.enter_context(StrictUpstream(program.client.wire))
        return Stage(program, self._folder / program.name, upstream)


@pytest.fixture
def rooms(tmp_path: Path) -> Iterator[Rooms]:
    INSTALLED.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        yield Rooms(tmp_path, stack)


@pytest.mark.parametrize("program", [OPENCODE, COPILOT], ids=lambda program: program.name)
def test_a_session_is_continued_in_claude_code(rooms: Rooms, tmp_path: Path, program: RealProgram) -> None:
    source, target = rooms.stage(program), rooms.stage(CLAUDE)
    source.make_session()
    request = target.resume(move(source, target, tmp_path / "store.db"))
    parts = parts_of(request)
    calls = [part for part in parts if isinstance(part, ToolCallRequest)]
    results = [part for part in parts if isinstance(part, ToolCallResult)]
    assert len(calls) == 2
    assert [result.tool_call_id for result in results] == [call.tool_call_id for call in calls]
    assert all(SECRET in text_of(result.content) for result in results)
    texts = [part.text for part in parts if isinstance(part, Text)]
    assert any(PROMPT in text for text in texts)
    assert any(MARKER in text for text in texts)
    if program is OPENCODE:  # Copilot CLI has no option for a picture beside a prompt
        assert pictures(parts) == [PIXEL]


@pytest.mark.parametrize("program", [OPENCODE, COPILOT], ids=lambda program: program.name)
def test_reasoning_keeps_its_signature(rooms: Rooms, tmp_path: Path, program: RealProgram) -> None:
    source = rooms.stage(program)
    source.make_session()
    antiphon(source.place.home, tmp_path / "store.db", "import", program.name)
    with SqliteStore(tmp_path / "store.db") as store:
        entries = store.open(store.list()[0].id).entries
    reasoning = [part for entry in entries for part in getattr(entry, "content", ()) if isinstance(part, Thinking)]
    assert [part.text for part in reasoning] == [REASONING, REASONING]
    assert all(part.native == {"anthropic": {"signature": "c2lnbmF0dXJl"}} for part in reasoning)


def test_a_chat_of_aider_is_read(rooms: Rooms, tmp_path: Path) -> None:
    prompt = "Say what the note in this folder holds."
    real = RealProgram("aider", AIDER, lambda _: [], cannot_resume)
    stage = rooms.stage(real)
    stage.upstream.answer = Script(stage.place.note, SECRET, MARKER, asks_in_words=True)
    code, printed = run_program(AIDER, stage.place)
    assert (code, MARKER in printed) == (0, True), printed[-2000:]
    path = stage.place.work / ".aider.chat.history.md"
    _, report = antiphon(stage.place.home, tmp_path / "store.db", "import", "aider", str(path))
    assert "files and images in the chat are not in aider's history" in report
    shown, _ = antiphon(stage.place.home, tmp_path / "store.db", "history", "show", "last", "--no-pager")
    assert prompt in shown
    assert "Please add note.txt to the chat" in shown
    assert MARKER in shown
