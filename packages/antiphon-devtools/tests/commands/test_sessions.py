"""`antiphon sessions`, `import` and `export`: found, stored once, brought up to date, and written where the program looks."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from antiphon.cli import main
from antiphon.history import ModelInputEntry, SqliteStore
from sessions.session_lines import ClaudeLines, claude_session, codex_session, gemini_session, text

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("ANTIPHON_STORE", str(tmp_path / "store.db"))
    return home


@pytest.fixture
def antiphon(home: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: str | Path) -> tuple[int, str, str]:
        code = main([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


def stored(tmp_path: Path) -> list[Any]:
    with SqliteStore(tmp_path / "store.db") as store:
        return list(store.list())


@pytest.mark.parametrize("limit", ["0", "-1", "x"])
def test_a_limit_that_shows_nothing_is_refused(antiphon: Run, limit: str) -> None:
    with pytest.raises(SystemExit) as left:
        antiphon("sessions", "--limit", limit)
    assert left.value.code == 2


def test_sessions_lists_every_program_and_one_folder(home: Path, antiphon: Run) -> None:
    claude_session().write(home)
    codex_session().write(home)
    gemini_session().write(home)
    ClaudeLines("11111111-fd36-4f4a-9eb4-aa1a647ca835", "/home/ann/other").write(
        home
    )  # without a prompt: nothing to resume
    code, out, _ = antiphon("sessions")
    assert code == 0
    assert out.count("Read note.txt 绿灯") == 3
    assert {line.split()[0] for line in out.splitlines()} == {"PROGRAM", "claude-code", "codex", "gemini-cli"}
    _, out, _ = antiphon("sessions", "codex", "--folder", "/home/ann/lamp", "--json")
    (session,) = json.loads(out)
    assert (session["program"], session["id"]) == ("codex", "01a1e505-6f9d-7c63-9bbf-49ca67d9d1ac")
    assert antiphon("sessions", "--folder", "/home/ann/other")[1].startswith("no sessions of claude-code, codex")


def test_import_takes_the_last_changed_session_a_file_or_an_id(home: Path, antiphon: Run, tmp_path: Path) -> None:
    path = claude_session().write(home)
    for arguments in ((), (path,), ("7aea",)):
        code, out, err = antiphon("import", "claude-code", *arguments)
        assert code == 0
        assert out.endswith("4 entries  Read note.txt 绿灯\n")
        assert err == "left out: 1 message that Claude Code adds to every session by itself\n"
    (info,) = stored(tmp_path)
    assert info.tags == ("claude-code",)
    assert info.id in out
    assert "already imported, the same" in out


def test_a_session_that_grew_is_brought_up_to_date(home: Path, antiphon: Run, tmp_path: Path) -> None:
    lines = claude_session()
    lines.write(home)
    antiphon("import", "claude-code")
    lines.prompt("And the other lamp?")
    lines.answer(text("Red."), "msg_3")
    lines.write(home)
    assert antiphon("import", "claude-code")[1].startswith("brought up to date, 2 new entries: ")
    (info,) = stored(tmp_path)
    assert info.version == 6


def test_a_new_branch_becomes_a_fork_of_what_was_imported(home: Path, antiphon: Run, tmp_path: Path) -> None:
    lines = ClaudeLines()
    lines.prompt("What is this?")
    before = lines.answer(text("A lamp."))
    lines.prompt("Make it red.")
    lines.write(home)
    antiphon("import", "claude-code")
    lines.prompt("Make it green.", parent=before)
    lines.write(home)
    _, out, _ = antiphon("import", "claude-code")
    first, second = sorted(stored(tmp_path), key=lambda info: info.parent is not None)
    assert (second.parent, second.forked_at, second.version) == (first.id, 2, 3)
    assert "already imported, the same: " in out
    assert f"(a branch of {first.id})" in out


def test_a_conversation_that_was_continued_here_is_left_alone(home: Path, antiphon: Run, tmp_path: Path) -> None:
    lines = claude_session()
    lines.write(home)
    antiphon("import", "claude-code")
    with SqliteStore(tmp_path / "store.db") as store:
        store.open("last").append(ModelInputEntry.of("Continued here."))
    assert antiphon("import", "claude-code")[1].startswith("left alone: it was continued here: ")
    lines.prompt("Continued there.")
    lines.write(home)
    assert antiphon("import", "claude-code")[1].startswith("left alone: it is not the same here; --as-new imports")
    assert antiphon("import", "claude-code", "--as-new")[1].startswith("imported: ")
    assert len(stored(tmp_path)) == 2


def test_import_all_reads_what_it_can_and_reports_the_rest(home: Path, antiphon: Run, tmp_path: Path) -> None:
    claude_session().write(home)
    broken = ClaudeLines("22222222-fd36-4f4a-9eb4-aa1a647ca835")
    broken.prompt("Only a prompt.")
    broken.lines[0]["uuid"] = None  # type: ignore[index]
    broken.write(home)
    code, _, err = antiphon("import", "claude-code", "--all", "--quiet")
    assert code == 1
    assert "has no messages of Claude Code" in err
    assert len(stored(tmp_path)) == 1


def test_unreadable_lines_are_reported_with_file_and_line(home: Path, antiphon: Run) -> None:
    lines = claude_session()
    lines.lines.append('{"cut": ')
    path = lines.write(home)
    _, _, err = antiphon("import", "claude-code")
    assert f"{path}:10: not valid JSON: " in err
    (row,) = json.loads(antiphon("import", "claude-code", "--json", "--as-new")[1])
    assert [one["line"] for one in row["unreadable"]] == [10]
    assert "1 problem" in antiphon("import", "claude-code", "--quiet")[2]


@pytest.mark.parametrize(
    ("arguments", "code", "reason"),
    [
        (("import", "claude-code"), 1, "no sessions of Claude Code below"),
        (("import", "claude-code", "12345678"), 1, "has no session '12345678' on this machine"),
        (("import", "claude-code", "no/such/file"), 1, "there is no file no/such/file"),
        (("import", "claude-code", "."), 1, ". is a folder"),
        (("import", "claude-code", "x", "--all"), 2, "give a PATH, or --all, or --list"),
        (("export", "last", "--as", "openai-chat", "--folder", "."), 2, "--folder and --json need --as claude-code"),
        (("export", "last", "--as", "codex"), 1, "store.db"),
    ],
)
def test_a_mistake_is_explained(antiphon: Run, arguments: tuple[str, ...], code: int, reason: str) -> None:
    given, _, err = antiphon(*arguments)
    assert (given, reason in err) == (code, True), err


def test_an_unknown_program_is_refused(antiphon: Run, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        antiphon("import", "notepad")
    assert stopped.value.code == 2
    assert "claude-code" in capsys.readouterr().err


@pytest.mark.parametrize("target", ["claude-code", "codex", "gemini-cli"])
def test_an_exported_session_is_found_where_the_program_looks(
    home: Path, antiphon: Run, tmp_path: Path, target: str
) -> None:
    claude_session().write(home)
    antiphon("import", "claude-code")
    project = tmp_path / "project"
    project.mkdir()
    _, out, err = antiphon("export", "last", "--as", target, "--folder", project, "--json")
    written = json.loads(out)
    _, out, _ = antiphon("sessions", target, "--folder", project, "--json")
    (session,) = json.loads(out)
    assert session["id"] == written["id"]
    assert session["path"] == written["files"][0]
    assert written["command"].endswith(written["id"])
    assert ("signature" in err) == (target != "claude-code")
    assert Path(written["files"][0]).stat().st_mode & 0o777 == 0o600


def test_export_to_a_file_writes_the_session_only(home: Path, antiphon: Run, tmp_path: Path) -> None:
    claude_session().write(home)
    antiphon("import", "claude-code")
    code, out, _ = antiphon("export", "last", "--as", "gemini-cli", "-o", tmp_path / "chat.jsonl")
    assert (code, out) == (0, f"wrote {tmp_path / 'chat.jsonl'}\n")
    assert not (home / ".gemini").exists()
    assert antiphon("import", "gemini-cli", tmp_path / "chat.jsonl")[1].startswith("imported: ")


def test_export_into_a_folder_that_does_not_exist_is_refused(home: Path, antiphon: Run, tmp_path: Path) -> None:
    claude_session().write(home)
    antiphon("import", "claude-code")
    code, _, err = antiphon("export", "last", "--as", "codex", "--folder", tmp_path / "gone")
    assert code == 1
    assert f"there is no folder {tmp_path / 'gone'}" in err
    assert not (home / ".codex").exists()


def test_both_exports_write_the_same_messages(home: Path, capfdbinary: Any) -> None:
    claude_session().write(home)
    main(["import", "claude-code", "--quiet"])
    capfdbinary.readouterr()
    main(["export", "last", "--as", "openai-chat"])
    first = capfdbinary.readouterr()
    main(["history", "export", "last", "--as", "openai-chat"])
    assert capfdbinary.readouterr() == first
    assert b"Read note.txt" in first.out
