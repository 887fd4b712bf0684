"""`antiphon history`, run as a user runs it: a process, its output, its exit code."""

from __future__ import annotations

import contextlib
import os
import pty
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from antiphon import __version__
from antiphon.cli import main
from antiphon.history import AgentHistory, ModelInputEntry, ModelOutputEntry, SqliteStore, ToolCallResultsEntry
from antiphon.parts import Image, Text, Thinking, ToolCallRequest, ToolCallResult
from support.antiphon_process import AntiphonProcess, run_antiphon

CALL = ToolCallRequest("weather", "call_1", '{"city": "Oslo"}')


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "chats.db"


@pytest.fixture
def history(path: Path) -> AgentHistory:
    with SqliteStore(path) as store:
        history = store.create(tags=["weather"])
        history.set_system_instruction("Be kind.")
        history.append(
            ModelInputEntry.of("今天奥斯陆下雨吗？ Is it raining in Oslo?", Image("image/png", "iVBORw0KGgo="))
        )
        history.append(ModelOutputEntry((Thinking("I should look."), Text("Let me look."), CALL)))
        history.append(ToolCallResultsEntry((ToolCallResult.of(CALL, "Rain, 7 °C"),)))
        history.append(ModelOutputEntry.of("A wrong answer with \x1b[31mcolours\x1b[0m in it"))
        history.rollback(4, "wrong")
        history.append(ModelOutputEntry.of("\n".join(f"line {number}" for number in range(1, 31))))
    return history


def antiphon(*arguments: str | Path, given: bytes = b"", **environment: str) -> tuple[int, str, str]:
    environment = {**os.environ, "COLUMNS": "160", "TZ": "UTC", **environment}
    run = run_antiphon(*map(str, arguments), input=given, env=environment)
    return run.returncode, run.stdout.decode(), run.stderr.decode()


def json_of(*arguments: str | Path) -> Any:
    code, out, _ = antiphon(*arguments, "--json")
    assert code == 0
    return msgspec.json.decode(out)


def on_a_terminal(*arguments: str | Path, answer: bytes = b"", **environment: str) -> str:
    """The same on a terminal of 24 lines, with `answer` typed in."""
    shown, terminal = pty.openpty()
    inherited = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    environment = {**inherited, "TERM": "xterm", "PAGER": "cat", "COLUMNS": "80", "LINES": "24", **environment}
    process = AntiphonProcess(*map(str, arguments), stdin=terminal, stdout=terminal, stderr=terminal, env=environment)
    os.close(terminal)
    os.write(shown, answer)
    output = b""
    try:
        while more := os.read(shown, 65536):
            output += more
    except OSError:  # Linux says so when the last writer is gone
        pass
    process.wait(timeout=30)
    os.close(shown)
    return output.decode()


def test_list_is_a_table(path: Path, history: AgentHistory) -> None:
    code, out, _ = antiphon("history", "list", "--store", path)
    head, row = out.splitlines()
    assert code == 0
    assert head.split() == ["ID", "UPDATED", "ENTRIES", "TITLE"]
    assert row.startswith(history.id)
    assert row.endswith("今天奥斯陆下雨吗？ Is it raining in Oslo? [weather]")
    assert "\x1b" not in out
    (info,) = json_of("history", "--store", path, "list")
    assert (info["id"], info["version"], info["tags"]) == (history.id, 7, ["weather"])


def test_long_lists_come_in_pages(path: Path) -> None:
    with SqliteStore(path) as store:
        for number in range(5):
            store.create(f"talk {number}")
    _, out, _ = antiphon("history", "list", "--limit", "2", "--page", "2", "--store", path)
    assert [line.split()[-1] for line in out.splitlines()[1:3]] == ["2", "1"]
    assert out.splitlines()[-1] == "3-4 of 5; --page 3 for more"
    code, out, _ = antiphon("history", "list", "--page", "9", "--store", path)
    assert (code, out) == (0, f"no conversations on page 9 of 5 in {path}\n")


def test_show_prints_model_input_and_model_output(path: Path, history: AgentHistory) -> None:
    code, out, _ = antiphon("history", "show", history.id[-6:], "--store", path)
    assert code == 0
    for output in (
        "    2  ModelInput ",
        "(image image/png 9 bytes)",
        "(thinking) I should look.",
        '→ weather {"city": "Oslo"}  (call_1)',
        "    4  ToolCallResults",
        "← weather success  (call_1)  Rain, 7 °C",
        "(rolled back)",
        "A wrong answer with ␛[31mcolours␛[0m in it",
        "back to version 4: wrong",
        "… 18 more lines (--full shows them)",
    ):
        assert output in out
    assert "\x1b" not in out
    _, out, _ = antiphon("history", "show", "last", "--effective", "--full", "--store", path)
    assert "wrong" not in out
    assert "line 30" in out
    shown = json_of("history", "show", "last", "--store", path)
    assert [entry["effective"] for entry in shown["entries"]] == [True] * 4 + [False] * 2 + [True]
    assert shown["entries"][1]["entry"]["kind"] == "model_input"


def test_colours_and_pages_are_for_terminals(path: Path, history: AgentHistory) -> None:
    assert "\x1b[32m" in on_a_terminal("history", "show", "last", "--store", path)
    assert "\x1b[" not in on_a_terminal("history", "show", "last", "--store", path, NO_COLOR="1")
    paged = on_a_terminal("history", "show", "last", "--store", path, PAGER="sed s/^/paged:/")
    assert paged.startswith("paged:")
    assert not on_a_terminal(
        "history", "show", "last", "--no-pager", "--store", path, PAGER="sed s/^/paged:/"
    ).startswith("p")


def test_search_in_two_languages(path: Path, history: AgentHistory) -> None:
    code, out, _ = antiphon("history", "search", "下雨", "--store", path)
    assert code == 0
    assert f"{history.id}  2      ModelInput  今天奥斯陆下雨吗" in out
    (hit,) = json_of("history", "search", "raining in", "--store", path)
    assert (hit["sequence_number"], hit["conversation"]["id"]) == (2, history.id)
    code, out, _ = antiphon("history", "search", "snow", "--store", path)
    assert (code, out) == (1, f"no match for snow in {path}\n")


def test_export_and_import_make_the_same_file_again(path: Path, history: AgentHistory, tmp_path: Path) -> None:
    file, again = tmp_path / "talk.jsonl", tmp_path / "again.jsonl"
    assert antiphon("history", "export", "last", "-o", file, "--store", path) == (0, "", "")
    other = tmp_path / "new" / "folder" / "other.db"
    code, out, _ = antiphon("history", "import", file, "--store", other)
    assert (code, out.split()[:3]) == (0, ["imported", history.id, "7"])
    antiphon("history", "export", "last", "-o", again, "--store", other)
    assert again.read_bytes() == file.read_bytes()
    piped = run_antiphon("history", "export", "last", "--store", str(path))
    assert piped.stdout == file.read_bytes()
    assert antiphon("history", "import", "-", "--as-new", "--store", other, given=piped.stdout)[0] == 0
    assert len(json_of("history", "list", "--store", other)) == 2
    assert [name.name for name in tmp_path.iterdir() if name.name.startswith(".")] == []


def test_standard_input_is_imported_once(path: Path, history: AgentHistory, tmp_path: Path) -> None:
    _, export, _ = antiphon("history", "export", "last", "--store", path)
    other = tmp_path / "other.db"
    code, _, err = antiphon("history", "import", "-", "-", "--store", other, given=export.encode())
    assert (code, err) == (1, "antiphon: - is given more than once; standard input can be read once\n")
    assert json_of("history", "list", "--store", other) == []


def test_links_and_pipes_are_written_to_and_not_replaced(path: Path, history: AgentHistory, tmp_path: Path) -> None:
    pipe, file, link = tmp_path / "pipe", tmp_path / "talk.jsonl", tmp_path / "link.jsonl"
    os.mkfifo(pipe)
    reader = subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE)
    assert antiphon("history", "export", "last", "-o", pipe, "--store", path)[0] == 0
    through_pipe = reader.communicate(timeout=30)[0]
    assert pipe.is_fifo()
    file.write_text("old")
    link.symlink_to(file)
    assert antiphon("history", "export", "last", "-o", link, "--store", path)[0] == 0
    assert link.is_symlink()
    assert file.read_bytes() == through_pipe
    code, _, err = antiphon("history", "export", "last", "-o", tmp_path, "--store", path)
    assert (code, err) == (1, f"antiphon: cannot write {tmp_path}: Is a directory\n")


def test_fork_and_delete(path: Path, history: AgentHistory) -> None:
    fork = json_of("history", "fork", history.id, "--at", "4", "--store", path)
    assert (fork["parent"], fork["forked_at"], fork["version"]) == (history.id, 4, 4)
    _, out, _ = antiphon("history", "list", "--store", path)
    assert f"forked from {history.id} at 4" in out
    code, _, err = antiphon("history", "delete", fork["id"], "--store", path)
    assert (code, "--yes" in err) == (1, True)
    assert "nothing was deleted" in on_a_terminal("history", "delete", fork["id"], "--store", path, answer=b"n\n")
    assert f"deleted {fork['id']}" in on_a_terminal("history", "delete", fork["id"], "--store", path, answer=b"y\n")
    assert antiphon("history", "delete", history.id, "--yes", "--store", path) == (0, f"deleted {history.id}\n", "")
    assert antiphon("history", "list", "--store", path) == (0, f"no conversations in {path}\n", "")


def test_the_store_is_found_in_the_environment_and_in_the_users_folder(
    path: Path, history: AgentHistory, tmp_path: Path
) -> None:
    assert history.id in antiphon("history", "list", ANTIPHON_STORE=str(path))[1]
    code, _, err = antiphon("history", "list", ANTIPHON_STORE="", XDG_DATA_HOME=str(tmp_path))
    assert (code, err) == (1, f"antiphon: there is no store at {tmp_path}/antiphon/history.db\n")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["show", "nope"], "has no conversation 'nope'"),
        (["fork", "last", "--at", "99"], "cannot fork conversation"),
        (["list", "--limit", "-1"], "limit=-1: must not be negative"),
        (["list", "--page", "0"], "pages start at 1"),
        (["search", ""], "empty search"),
        (["import", "nowhere.jsonl"], "cannot read nowhere.jsonl: No such file"),
        (["export", "last", "-o", "no/such/folder/x.jsonl"], "cannot write no/such/folder/x.jsonl"),
    ],
)
def test_mistakes_get_one_line_and_exit_code_one(
    path: Path, history: AgentHistory, arguments: list[str], complaint: str
) -> None:
    code, out, err = antiphon("history", *arguments, "--store", path)
    assert (code, out) == (1, "")
    assert err.startswith("antiphon: ")
    assert complaint in err
    assert err.count("\n") == 1


def test_a_truncated_export_is_refused_by_file_and_line(path: Path, history: AgentHistory, tmp_path: Path) -> None:
    file, other = tmp_path / "talk.jsonl", tmp_path / "other.db"
    antiphon("history", "export", "last", "-o", file, "--store", path)
    file.write_bytes(file.read_bytes()[:-40])
    code, _, err = antiphon("history", "import", file, "--store", other)
    assert code == 1
    assert f"{file}, line 8: not an entry" in err
    assert antiphon("history", "list", "--store", other)[1] == f"no conversations in {other}\n"


def test_a_foreign_file_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("my notes, which are long enough to be taken for a database header of some kind or other" * 20)
    code, _, err = antiphon("history", "list", "--store", file)
    assert (code, "Traceback" in err) == (1, False)
    assert "is not an SQLite database" in err


def test_unknown_commands(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["histroy"], ["history"], ["history", "list", "--colour"]):
        with pytest.raises(SystemExit) as stop:
            main(arguments)
        assert stop.value.code == 2
        assert "usage: antiphon" in capsys.readouterr().err
    assert main([]) == 2
    assert "COMMAND" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"antiphon {__version__}\n"


def test_a_closed_pipe_is_not_an_error(path: Path, history: AgentHistory) -> None:
    with SqliteStore(path) as store:
        long = store.create()
        for _ in range(40):
            long.append(ModelInputEntry.of("x" * 5_000))
    command = f"{sys.executable} -m antiphon history show last --full --store {path} | head -1; exit ${{PIPESTATUS[0]}}"
    run = subprocess.run(["bash", "-c", command], capture_output=True, check=False)
    assert run.stderr == b""
    assert run.returncode == 141


def test_a_damaged_entry_is_reported_while_the_others_are_found(path: Path) -> None:
    prose = " ".join(f"word{number}" for number in range(500))
    with SqliteStore(path) as store:
        store.create().append(ModelInputEntry.of(prose))
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE entries SET body = substr(body, 1, 40)")
    with SqliteStore(path) as store:
        store.create("Snow").append(ModelInputEntry.of("What was written about snow?"))
    code, out, errors = antiphon("history", "--store", path, "search", "written")
    assert (code, "written" in out) == (0, True), (out, errors)
    assert errors.startswith("antiphon: ")
    assert "entry 1 of conversation number 1 is damaged" in errors
    assert "Traceback" not in errors


MESSAGES = [
    {"role": "user", "content": "Is it raining?"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "c", "type": "function", "function": {"name": "weather", "arguments": "{}"}}],
    },
    {"role": "user", "content": "Hurry!"},
    {"role": "tool", "tool_call_id": "c", "content": "Rain"},
]


def test_openai_messages_are_imported_and_exported(path: Path, tmp_path: Path) -> None:
    file = tmp_path / "messages.json"
    file.write_bytes(msgspec.json.encode(MESSAGES))
    code, out, err = antiphon("history", "--store", path, "import", "--from", "openai-chat", file)
    assert code == 0
    assert "4 entries  Is it raining?" in out
    assert f"{file}: messages[2]: moved" in err
    assert len(err.splitlines()) == 1  # reported, and not logged as well
    code, out, _ = antiphon("history", "--store", path, "export", "last", "--as", "openai-chat")
    exported = msgspec.json.decode(out)["messages"]
    assert [message["role"] for message in exported] == ["user", "assistant", "tool", "user"]
    tagged = antiphon("history", "--store", path, "export", "last", "--as", "openai-chat", "--strategy", "iterations")[
        1
    ]
    assert {message["name"] for message in msgspec.json.decode(tagged)["messages"][:3]} == {"iteration_1"}
    body = antiphon("history", "--store", path, "export", "last", "--as", "anthropic")[1]
    code, out, _ = antiphon(
        "history", "--store", path, "import", "--from", "anthropic", "-", given=body.encode(), LANG="C.UTF-8"
    )
    assert code == 0
    assert "imported" in out


def test_each_line_of_a_jsonl_is_a_conversation(path: Path, tmp_path: Path) -> None:
    file = tmp_path / "many.jsonl"
    file.write_bytes(msgspec.json.encode(MESSAGES[:1]) + b"\n" + msgspec.json.encode({"messages": MESSAGES}) + b"\n")
    code, out, _ = antiphon("history", "--store", path, "import", "--from", "openai-chat", "--title", "Old", file)
    assert code == 0
    assert [line.rsplit("  ", 2)[1:] for line in out.splitlines()] == [
        ["1 entries", "Old"],
        ["4 entries", "Old"],
    ]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"{", "not valid JSON"),
        (b"", "not valid JSON"),
        (b"5", "expected a list of messages"),
        (b'{"contents": []}', "it looks like gemini"),
        (b'{"messages": []}', "there are no messages in it"),
        (
            b'[{"role": "user", "content": "Hello."}]\n[{"role": "user", "content": ""}]',
            "line 2: there are no messages",
        ),
    ],
)
def test_file_that_is_not_messages_imports_nothing(path: Path, tmp_path: Path, content: bytes, why: str) -> None:
    file = tmp_path / "odd.jsonl"
    file.write_bytes(content)
    code, out, err = antiphon("history", "--store", path, "import", "--from", "openai-chat", file)
    assert (code, out) == (1, "")
    assert why in err
    with SqliteStore(path) as store:
        assert store.count() == 0


def test_strategy_needs_a_format(history: AgentHistory, path: Path) -> None:
    code, _, err = antiphon("history", "--store", path, "export", "last", "--strategy", "per_part")
    assert code == 1
    assert "--strategy per_part needs --as openai-chat" in err
