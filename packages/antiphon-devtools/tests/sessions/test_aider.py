"""Chats of aider are read from its Markdown file: prompts, answers, commands, several chats, code that looks like prompts."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from antiphon.cli import main
from antiphon.errors import SessionError
from antiphon.history import HistoryEntry, ModelInputEntry, ModelOutputEntry
from antiphon_devtools.sessions import ImportedSession, load_program

AIDER = load_program("aider")
FILE = ".aider.chat.history.md"

CHAT = """
# aider chat started at 2026-11-16 15:47:48

> Aider v0.86.2{b}
> Main model: openai/gpt-5.5 with whole edit format{b}
> Git repo: .git with 1 files{b}

#### /add note.txt{b}
> Added note.txt to the chat.{b}

#### Make the lamp green. 绿灯{b}
####{b}
#### And test it.{b}

Here is the change:

```markdown
# Lamp
#### Colours
> green
```

# Done

> Tokens: 599 sent, 14 received.{b}
> Applied edit to note.txt{b}

#### /ask Is it green?{b}

Yes. 是的。
""".replace("{b}", "  ")

SECOND = """
# aider chat started at 2026-11-17 09:00:00

> Model: anthropic/claude-sonnet-4-5 with diff edit format{b}

#### Make it red.{b}

Red now.

> Model: gemini/gemini-2.5-pro with diff edit format{b}

#### And blue?{b}
""".replace("{b}", "  ")


def read(folder: Path, text: str) -> ImportedSession:
    path = folder / FILE
    path.write_text(text)
    return AIDER.read(path)


def words(entries: tuple[HistoryEntry, ...]) -> list[str]:
    return [
        entry.response_markdown if isinstance(entry, ModelOutputEntry) else entry.content[0].text  # type: ignore[attr-defined]
        for entry in entries
    ]


def test_prompts_and_answers_are_kept_word_for_word(tmp_path: Path) -> None:
    imported = read(tmp_path, CHAT)
    (branch,) = imported.branches
    question, answer, second, last = words(branch.entries)
    assert question == "Make the lamp green. 绿灯\n\nAnd test it."
    assert answer == "Here is the change:\n\n```markdown\n# Lamp\n#### Colours\n> green\n```\n\n# Done"
    assert (second, last) == ("Is it green?", "Yes. 是的。")
    output = branch.entries[1]
    assert isinstance(output, ModelOutputEntry)
    assert output.origin is not None
    assert (output.origin.provider, output.origin.model) == ("openai", "gpt-5.5")
    assert isinstance(branch.entries[0], ModelInputEntry)


def test_commands_and_missing_files_are_reported(tmp_path: Path) -> None:
    report = [(problem.line, problem.why) for problem in read(tmp_path, CHAT).unreadable]
    assert report == [
        (0, "files and images in the chat are not in aider's history; left out"),
        (8, "/add: a command of aider; left out"),
    ]


def test_every_chat_is_a_conversation_the_last_one_first(tmp_path: Path) -> None:
    imported = read(tmp_path, CHAT + SECOND)
    last, first = imported.branches
    assert (first.title, last.title) == ("Make the lamp green. 绿灯 And test it.", "Make it red.")
    assert (first.parent, last.parent) == (None, None)
    assert words(last.entries) == ["Make it red.", "Red now.", "And blue?"]
    assert imported.session.title == "Make it red."


def test_the_file_is_found_above_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AIDER_CHAT_HISTORY_FILE", raising=False)
    (tmp_path / "project" / "src").mkdir(parents=True)
    (tmp_path / "project" / FILE).write_text(CHAT)
    monkeypatch.chdir(tmp_path / "project" / "src")
    (session,) = AIDER.find(tmp_path)
    assert session.path == session.id == str(tmp_path / "project" / FILE)
    assert session.title == "/ask Is it green?"
    assert session.folder == str(tmp_path / "project")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AIDER_CHAT_HISTORY_FILE", session.path)
    assert [found.path for found in AIDER.find(tmp_path)] == [session.path]


def test_a_longer_file_adds_what_is_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ANTIPHON_STORE", str(tmp_path / "chats.db"))
    path = tmp_path / FILE
    statuses = []
    for text in (CHAT, CHAT + SECOND, CHAT + SECOND + "\nBlue now.\n"):
        path.write_text(text)
        assert main(["import", "aider", str(path), "--json"]) == 0
        statuses.append([row["status"] for row in msgspec.json.decode(capfd.readouterr().out)])
    assert statuses == [["copied"], ["copied", "same"], ["grown", "same"]]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("# Notes\n", "has no chats of aider; it keeps them in"),
        ("\n# aider chat started at 2026-11-16 15:47:48\n\n> Aider v0.86.2  \n", "has no chats of aider"),
        ("\n# aider chat started at 2026-11-16 15:47:48\n\n#### /exit  \n", "has commands of aider and no prompts"),
    ],
)
def test_a_file_without_prompts_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(SessionError, match=reason):
        read(tmp_path, text)


def test_text_before_the_first_chat_and_a_damaged_time_are_reported(tmp_path: Path) -> None:
    imported = read(tmp_path, CHAT.replace("2026-11-16 15:47:48", "last night").replace("\n#", "A note.\n#", 1))
    report = [(problem.line, problem.why) for problem in imported.unreadable][1:3]
    assert report == [
        (1, "text before the first chat; left out"),
        (2, "the time of the chat is not readable; the file's is used"),
    ]
