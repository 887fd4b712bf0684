"""The text of an answer that is being streamed, written to a file about once a second, so that a crash does not lose it (law L7).

The log gets an answer when it ends. Until then a file beside the store holds its text, under a lock that ends with the process.
The next process that opens the conversation, and gets the lock, appends the text to the log as an answer that was cut off: it
is shown, and the turn can be resumed. A line that was half written is ignored.
"""

from __future__ import annotations

import hashlib
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import IO

import msgspec
from msgspec import Struct

from antiphon.conversation import Conversation
from antiphon.conversation.events import EntryAppended, LoopEvent, LoopFinished, RoundStarted, TextDelta
from antiphon.conversation.turn import FAILED, Turn
from antiphon.history import AgentHistory, ContextEntryRole, EntryMetadata, ModelOutputEntry, Origin
from antiphon.history.location import ensure_private_folder
from antiphon.json_text import NOT_JSON
from antiphon.model_name import ModelName
from antiphon.parts import Text

try:
    from fcntl import LOCK_EX, LOCK_NB, flock
except ImportError:  # Windows: without locks nothing is written, because another process could not tell who writes
    flock = None  # type: ignore[assignment]

INTERVAL = 1.0
_CUT = "the process ended while the answer was streaming"


class _Start(Struct, frozen=True):
    """The first line: the entry that is answered, and the model."""

    answers: int
    model: str


class PartialAnswers:
    """The files of one store; `folder` is None if there is no place for them."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder / "partial" if folder is not None and flock is not None else None

    def writer(self, chat: Conversation) -> PartialAnswer:
        """What follows the turns of a conversation."""
        return PartialAnswer(chat, self._path(chat.history))

    def recover(self, history: AgentHistory) -> bool:
        """Append the text that an ended process had streamed; whether there was one."""
        path = self._path(history)
        if path is None or not path.exists():
            return False
        with path.open("r+b") as file:
            if not _lock(file):
                return False  # another process streams it right now
            is_recovered = self._append(history, _read(file.read()))
            path.unlink(missing_ok=True)
        return is_recovered

    def _append(self, history: AgentHistory, found: tuple[_Start, str] | None) -> bool:
        if found is None or not found[1]:
            return False
        start, text = found
        if start.answers != _answered(history) or not Turn.of(history.snapshot()).needs_model:
            return False  # the log has an answer already
        provider, model = ModelName.parse(start.model)
        history.append(
            ModelOutputEntry(
                (Text(text),),
                origin=Origin(provider, "", model),
                stop_reason=FAILED,
                metadata=EntryMetadata(error=_CUT),
            )
        )
        return True

    def _path(self, history: AgentHistory) -> Path | None:
        if self._folder is None or not history.id:
            return None
        return self._folder / f"{hashlib.sha256(history.id.encode()).hexdigest()[:32]}.jsonl"


class PartialAnswer:
    """Writes the text of a conversation's current answer. Errors of the disk are ignored: the log is what counts."""

    def __init__(self, chat: Conversation, path: Path | None) -> None:
        self._chat = chat
        self._path = path
        self._file: IO[bytes] | None = None
        self._waiting: list[str] = []
        self._next = 0.0

    def on_event(self, event: LoopEvent) -> None:
        """Take an event of the turn."""
        match event:
            case TextDelta(text):
                self.add(text)
            case RoundStarted() | LoopFinished() | EntryAppended(entry=ModelOutputEntry()):  # the log has it
                self.close()

    def add(self, text: str) -> None:
        """More text of the answer."""
        self._waiting.append(text)
        now = time.monotonic()
        if now >= self._next:
            self._next = now + INTERVAL
            with suppress(OSError):
                self._write()

    def close(self) -> None:
        """Remove the file."""
        self._waiting = []
        self._next = 0.0
        if self._file is not None:
            with suppress(OSError):
                if self._path is not None:
                    self._path.unlink()
            self._file.close()
            self._file = None

    def _write(self) -> None:
        if self._path is None:
            return
        if self._file is None:
            ensure_private_folder(self._path.parent)
            file = os.fdopen(os.open(self._path, os.O_CREAT | os.O_APPEND | os.O_RDWR, 0o600), "ab")
            if not _lock(file):  # another process answers in this conversation
                file.close()
                self._path = None
                return
            self._file = file
            file.truncate(0)
            file.write(msgspec.json.encode(_Start(_answered(self._chat.history), self._chat.model)) + b"\n")
        self._file.write(msgspec.json.encode("".join(self._waiting)) + b"\n")
        self._file.flush()
        self._waiting = []


def _lock(file: IO[bytes]) -> bool:
    try:
        flock(file, LOCK_EX | LOCK_NB)
    except OSError:
        return False
    return True


def _read(data: bytes) -> tuple[_Start, str] | None:
    first, *lines = data.split(b"\n")[:-1] or [b""]
    try:
        start = msgspec.json.decode(first, type=_Start)
        return start, "".join(msgspec.json.decode(line, type=str) for line in lines)
    except NOT_JSON:
        return None


def _answered(history: AgentHistory) -> int:
    """The number of the last entry that a model sees."""
    inputs = (ContextEntryRole.MODEL_INPUT, ContextEntryRole.TOOL_RESULT, ContextEntryRole.MODEL_OUTPUT)
    effective = history.effective
    return next((entry.sequence_number for entry in reversed(effective) if getattr(entry, "role", None) in inputs), 0)
