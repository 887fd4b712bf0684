"""Sessions of opencode are read from its database: calls, results, reasoning, images, undone messages, subagents, bad rows."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from antiphon.cli import main
from antiphon.errors import SessionError
from antiphon.history import CompactionEntry, ModelInputEntry, ModelOutputEntry, ToolCallResultsEntry
from antiphon.parts import Image, Text, Thinking, ToolCallRequest, ToolExecutionStatus
from antiphon_devtools.sessions import load_program
from sessions.session_lines import PIXEL

OPENCODE = load_program("opencode")
SESSION = "ses_e1af96281ffee1d7AU9wXnSYP5"
START = 1794843778000
IMAGE = {"type": "file", "mime": "image/png", "url": f"data:image/png;base64,{PIXEL}", "filename": "lamp.png"}


class Database:
    """A database in the shape of opencode 1.18: the columns that are read."""

    def __init__(self, home: Path) -> None:
        self.path = home / ".local" / "share" / "opencode" / "opencode.db"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._count = 0
        self._run(
            "CREATE TABLE session (id text PRIMARY KEY, parent_id text, title text, directory text, revert text,"
            " time_created integer, time_updated integer)"
        )
        for table in ("message (", "part (message_id text, "):
            self._run(f"CREATE TABLE {table}id text PRIMARY KEY, session_id text, time_created integer, data text)")

    def session(self, session: str = SESSION, parent: str | None = None, title: str = "Reading a note") -> None:
        values = (session, parent, title, "/home/ann/lamp", None, START, START + self._count)
        self._run("INSERT INTO session VALUES (?, ?, ?, ?, ?, ?, ?)", *values)

    def message(self, role: str, *parts: dict[str, Any] | str, session: str = SESSION, **info: Any) -> str:
        self._count += 1
        number = f"msg_{self._count:04}"
        time = START + self._count * 1000
        data = {"role": role, "time": {"created": time}, **info}
        if role == "assistant":
            data |= {"providerID": "anthropic", "modelID": "claude-sonnet-4-5"}
        self._run("INSERT INTO message VALUES (?, ?, ?, ?)", number, session, time, json.dumps(data))
        for index, part in enumerate(parts):
            text = part if isinstance(part, str) else json.dumps(part)
            values = (number, f"prt_{self._count:04}_{index}", session, time, text)
            self._run("INSERT INTO part VALUES (?, ?, ?, ?, ?)", *values)
        return number

    def revert(self, message: str) -> None:
        self._run("UPDATE session SET revert = ?", json.dumps({"messageID": message, "snapshot": "a47b", "diff": ""}))

    def _run(self, statement: str, *values: Any) -> None:
        with closing(sqlite3.connect(self.path)) as database, database:
            database.execute(statement, values)
        database.close()


def text(words: str, **fields: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **fields}


def tool(call: str, **state: Any) -> dict[str, Any]:
    return {"type": "tool", "tool": "read", "callID": call, "state": {"input": {"filePath": f"{call}.txt"}, **state}}


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Database:
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    database = Database(tmp_path)
    database.session()
    return database


def fill(database: Database) -> None:
    database.message("user", text("Read note.txt 绿灯"), IMAGE)
    database.message(
        "assistant",
        {"type": "step-start", "snapshot": "a47b"},
        {"type": "reasoning", "text": "The note first.", "metadata": {"anthropic": {"signature": "c2ln"}}},
        text("I read the note."),
        tool("note", status="completed", output="It is green.", attachments=[IMAGE]),
        tool("gone", status="error", error="File not found: gone.txt"),
        {"type": "step-finish", "reason": "tool-calls"},
    )
    database.message("assistant", text("Green. 绿色。"))


def test_calls_results_reasoning_and_images_are_kept(database: Database) -> None:
    fill(database)
    imported = OPENCODE.read(database.path)
    assert imported.unreadable == ()
    (branch,) = imported.branches
    prompt, answer, results, last = branch.entries
    assert isinstance(prompt, ModelInputEntry)
    assert prompt.content == (Text("Read note.txt 绿灯"), Image("image/png", PIXEL))
    assert isinstance(answer, ModelOutputEntry)
    assert answer.content == (
        Thinking("The note first.", native={"anthropic": {"signature": "c2ln"}}),
        Text("I read the note."),
        ToolCallRequest("read", "note", '{"filePath":"note.txt"}'),
        ToolCallRequest("read", "gone", '{"filePath":"gone.txt"}'),
    )
    assert answer.origin is not None
    assert (answer.origin.provider, answer.origin.model) == ("anthropic", "claude-sonnet-4-5")
    assert isinstance(results, ToolCallResultsEntry)
    assert results.results[0].content == (Text("It is green."), Image("image/png", PIXEL))
    assert results.results[1].status is ToolExecutionStatus.FAILED
    assert isinstance(last, ModelOutputEntry)
    assert last.response_markdown == "Green. 绿色。"


def test_sessions_are_found_by_id_and_the_file_means_the_last(database: Database, tmp_path: Path) -> None:
    fill(database)
    database.session("ses_later", title="Later")
    database.message("user", text("Later."), session="ses_later")
    database.session("ses_child", parent=SESSION)
    found = {session.id: session for session in OPENCODE.find(tmp_path)}
    assert found.keys() == {SESSION, "ses_later"}
    assert found[SESSION].path == f"{database.path}/{SESSION}"
    assert (found[SESSION].title, found[SESSION].folder) == ("Reading a note", "/home/ann/lamp")
    assert OPENCODE.read(Path(found[SESSION].path)).session.id == SESSION
    assert OPENCODE.read(database.path).session.id == "ses_later"


def test_the_command_takes_an_id_a_file_or_both(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    fill(database)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("ANTIPHON_STORE", str(tmp_path / "chats.db"))
    answers = []
    for wanted in (SESSION[:9], str(database.path), f"{database.path}/{SESSION}"):
        assert main(["import", "opencode", wanted, "--json"]) == 0
        answers.append(msgspec.json.decode(capfd.readouterr().out)[0])
    assert [answer["status"] for answer in answers] == ["copied", "same", "same"]
    assert answers[0]["conversation"]["title"] == "Reading a note"
    assert main(["import", "opencode", f"{database.path}/ses_other"]) == 1
    assert "has no session ses_other" in capfd.readouterr().err


def test_undone_messages_become_a_branch(database: Database) -> None:
    fill(database)
    undone = database.message("user", text("And now?"))
    database.message("assistant", text("Still green."))
    database.revert(undone)
    session, whole = OPENCODE.read(database.path).branches
    assert (len(session.entries), len(whole.entries)) == (4, 6)
    assert (whole.name, whole.parent, whole.shared) == (undone, "", 4)


def test_a_subagent_is_a_branch(database: Database) -> None:
    fill(database)
    database.session("ses_child", parent=SESSION, title="Search for lamps")
    database.message("user", text("Search."), session="ses_child")
    database.message("assistant", text("Two lamps."), session="ses_child")
    main_branch, child = OPENCODE.read(Path(f"{database.path}/{SESSION}")).branches
    assert len(main_branch.entries) == 4
    assert (child.name, child.title, len(child.entries)) == ("ses_child", "subagent: Search for lamps", 2)


def test_unreadable_parts_are_reported_by_message(database: Database) -> None:
    file = {"type": "file", "mime": "application/pdf", "url": "file:///home/ann/lamp.pdf", "filename": "lamp.pdf"}
    database.message("user", text("Go."), text("hidden", ignored=True), file, "{broken")
    database.message(
        "assistant", tool("a", status="running"), {"type": "hologram"}, error={"name": "MessageAbortedError"}
    )
    database.message("narrator", text("?"))
    imported = OPENCODE.read(database.path)
    report = [(problem.line, problem.why) for problem in imported.unreadable]
    assert (1, "a part that is not valid JSON") in report
    assert (1, "file lamp.pdf: its content is not in the session") in report
    assert (2, "a part of type hologram; left out") in report
    assert (2, "the answer ended with an error: MessageAbortedError") in report
    assert (3, "not a message: invalid JSON, or a role that is not known") in report
    assert any(line == 2 and why.startswith("synthesised") for line, why in report)
    assert imported.branches[0].entries[0].content == (Text("Go."),)  # type: ignore[attr-defined]


def test_a_compaction_is_an_entry(database: Database) -> None:
    fill(database)
    database.message("user", {"type": "compaction", "auto": True})
    database.message("assistant", text("A green lamp."), summary=True)
    database.message("user", text("And now?"))
    entries = OPENCODE.read(database.path).branches[0].entries
    assert isinstance(entries[4], CompactionEntry)
    assert (entries[4].summary, entries[4].up_to) == ("A green lamp.", 4)
    assert entries[5].kind == "model_input"


def test_a_file_of_another_kind_is_refused(tmp_path: Path, database: Database) -> None:
    (tmp_path / "notes.db").write_text("not a database, but long enough to be read as one" * 10)
    with pytest.raises(SessionError, match="file is not a database; expected the database of opencode"):
        OPENCODE.read(tmp_path / "notes.db")
    with pytest.raises(SessionError, match="there is no file"):
        OPENCODE.read(tmp_path / "gone" / "opencode.db")
    with pytest.raises(SessionError, match="has no messages"):
        OPENCODE.read(database.path)
    database.path.write_text("damaged" * 100)
    assert list(OPENCODE.find(tmp_path)) == []
