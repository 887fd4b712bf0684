"""Changes of a conversation, the same in the terminal and on the page: roll back, system instruction, notebook, title.

The page runs those that write in a thread if the store is remote, so they do not draw, print or wait.
"""

from __future__ import annotations

from msgspec import Struct

from antiphon.errors import ConversationError
from antiphon.history import AgentHistory, HistoryStore, ModelInputEntry
from antiphon.parts import text_of
from antiphon.text import one_line

MAX_TITLE_CHARS = 300
MAX_TEXT_CHARS = 200_000


class TextTooLong(ConversationError):
    """A system instruction or notebook over the limit."""


class Rollback(Struct, frozen=True):
    """The version that is effective again, the version to undo with, and the message that was removed."""

    version: int
    previous: int
    message: str = ""


def roll_back(history: AgentHistory, to: int | None = None) -> Rollback:
    """Return to version `to`, by default to the one before the last message."""
    version, message = (to, "") if to is not None else _before_last_message(history)
    previous = history.version
    history.rollback(version, "by the user")
    return Rollback(version, previous, message)


def _before_last_message(history: AgentHistory) -> tuple[int, str]:
    for entry in reversed(history.effective):
        if isinstance(entry, ModelInputEntry):
            return entry.sequence_number - 1, text_of(entry.content)
    raise ConversationError("the conversation has no message to roll back")


def check_texts(*texts: str | None) -> None:
    """Raise `TextTooLong` if one of them is."""
    for text in texts:
        if text is not None and len(text) > MAX_TEXT_CHARS:
            raise TextTooLong(f"the text has {len(text):,} characters; the limit is {MAX_TEXT_CHARS:,}")


def set_texts(history: AgentHistory, *, system: str | None = None, memory: str | None = None) -> None:
    """Set the system instruction and the notebook; None leaves one unchanged. Raises `TextTooLong`."""
    check_texts(system, memory)
    if system is not None and system != history.system_instruction:
        history.set_system_instruction(system)
    if memory is not None and memory != history.memory_notebook:
        history.set_memory_notebook(memory)


def clean_title(text: str) -> str:
    """A title: one line, at most `MAX_TITLE_CHARS` characters."""
    return one_line(text)[:MAX_TITLE_CHARS]


def set_title(store: HistoryStore, conversation: str, text: str) -> None:
    """Give a conversation a title."""
    store.describe(conversation, title=clean_title(text))
