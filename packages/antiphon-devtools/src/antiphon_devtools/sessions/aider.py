"""aider: `.aider.chat.history.md` in the project folder, a Markdown file to which every chat is appended.

`# aider chat started at` begins a chat. Lines that aider wrote end with two blanks: `#### ` is the user's prompt, `> ` is aider's
own output (questions, token counts). Everything else is the model's answer. aider edits files by text in the answer, so there are
no tool calls, and neither the files in the chat nor images are in the file; both facts are reported. Each chat is a conversation.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from msgspec import Struct

from antiphon.errors import SessionError
from antiphon.parts import Text
from antiphon.wire.request import Message
from antiphon_devtools.sessions.imported import Branch, HistoryBuilder, ImportedSession
from antiphon_devtools.sessions.programs import Program
from antiphon_devtools.sessions.session_file import SessionFile, Unreadable, changed_time, short_title

FILE = ".aider.chat.history.md"

_STARTED = "# aider chat started at "
_MODEL = re.compile(r"(?:Main m|M)odel: (\S+)")
_ASKING_COMMANDS = ("/ask ", "/code ", "/architect ", "/context ")
"""Commands whose text is sent to the model."""


class _Line(Struct, frozen=True):
    number: int
    kind: str
    """`user`, `output` (aider's own) or `answer`."""
    text: str


class _Chat(Struct, frozen=True):
    started: datetime
    lines: list[_Line]


def find(home: Path) -> Iterator[SessionFile]:
    """The history file of the current folder or of one above it: aider writes it to the root of the repository."""
    folder = Path.cwd()
    places = [Path(os.environ.get("AIDER_CHAT_HISTORY_FILE") or folder / FILE)]
    for above in folder.parents:
        if above == home or folder == home:
            break
        places.append(above / FILE)
    for path in dict.fromkeys(places):
        if not path.is_file():
            continue
        try:
            chats = _chats(path, [])
        except SessionError:
            continue
        prompts = [line.text for chat in chats for line in chat.lines if line.kind == "user"]
        if prompts:
            yield _session_file(path, prompts[-1])


def read(path: Path) -> ImportedSession:
    """The chats in a history file, the last one first. Raises `SessionError`."""
    unreadable: list[Unreadable] = []
    chats = [chat for chat in _chats(path, unreadable) if any(line.kind == "user" for line in chat.lines)]
    if not chats:
        raise SessionError(f"{path} has no chats of aider; it keeps them in {FILE} of the project folder")
    branches = [_branch(path, number, chat, unreadable) for number, chat in enumerate(chats, 1)]
    if not any(branch.entries for branch in branches):
        raise SessionError(f"{path} has commands of aider and no prompts")
    unreadable.append(Unreadable(str(path), 0, "files and images in the chat are not in aider's history; left out"))
    return ImportedSession(
        session=_session_file(path, branches[-1].title),
        created=chats[0].started,
        branches=tuple(reversed(branches)),
        unreadable=tuple(sorted(unreadable, key=lambda one: one.line)),
    )


def _chats(path: Path, unreadable: list[Unreadable]) -> list[_Chat]:
    try:
        text = path.read_bytes().decode("utf-8", "replace")
    except OSError as error:
        raise SessionError(f"cannot read {path}: {error.strerror or error}") from error
    chats: list[_Chat] = []
    for number, line in enumerate(text.split("\n"), 1):
        line = line.removesuffix("\r")
        if line.startswith(_STARTED):
            chats.append(_Chat(_start_time(path, number, line, unreadable), []))
        elif chats:
            chats[-1].lines.append(_classified(number, line))
        elif line.strip():
            unreadable.append(Unreadable(str(path), number, "text before the first chat; left out"))
    return chats


def _classified(number: int, line: str) -> _Line:
    if line.endswith("  ") and line.startswith("####"):
        return _Line(number, "user", line[4:-2].removeprefix(" "))
    if line.endswith("  ") and line.startswith("> "):
        return _Line(number, "output", line[2:-2])
    return _Line(number, "answer", line)


def _start_time(path: Path, number: int, line: str, unreadable: list[Unreadable]) -> datetime:
    try:
        return datetime.fromisoformat(line.removeprefix(_STARTED).strip()).astimezone(UTC)
    except ValueError:
        unreadable.append(Unreadable(str(path), number, "the time of the chat is not readable; the file's is used"))
        return changed_time(path)


def _branch(path: Path, number: int, chat: _Chat, unreadable: list[Unreadable]) -> Branch:
    builder = HistoryBuilder(str(path), "openai-chat", unreadable, chat.started)
    model = title = ""
    for kind, lines in _blocks(chat.lines):
        text = "\n".join(line.text for line in lines).strip()
        first = lines[0].number
        if kind == "output":
            named = _MODEL.match(text)
            model = named[1] if named else model
        elif kind == "user":
            prompt = _prompt(text)
            if prompt is None:
                builder.report(first, f"{text.split()[0]}: a command of aider; left out")
                continue
            title = title or prompt
            builder.add_message(Message("user", (Text(prompt),)), line=first)
        elif text:
            builder.add_message(Message("assistant", (Text(text),)), line=first, model=model)
    return Branch(name=f"chat {number}", title=short_title(title), entries=builder.entries())


def _blocks(lines: Sequence[_Line]) -> Iterator[tuple[str, list[_Line]]]:
    """Lines of one kind together; a line of aider's output is a block of its own, for it may name the model."""
    block: list[_Line] = []
    for line in lines:
        if block and (line.kind != block[0].kind or line.kind == "output"):
            yield block[0].kind, block
            block = []
        block.append(line)
    if block:
        yield block[0].kind, block


def _prompt(text: str) -> str | None:
    """What of a prompt the model was sent; None for a command that it never saw."""
    if not text.startswith(("/", "!")) or "\n" in text.partition(" ")[0]:
        return text
    command = next((name for name in _ASKING_COMMANDS if text.startswith(name)), None)
    return text.removeprefix(command).strip() if command else None


def _session_file(path: Path, title: str) -> SessionFile:
    place = path.absolute()
    return SessionFile.at(place, "aider", str(place), title, str(place.parent))


PROGRAM = Program(name="aider", title="aider", find=find, read=read)
