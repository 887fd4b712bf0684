"""The exceptions Antiphon raises, in one small tree.

Each message says what was wrong, where (file, line, conversation, entry) and what to do. Catch `AntiphonError` to catch them
all; a bare `ValueError` or `sqlite3.Error` reaching a caller is a bug of ours.
"""

from __future__ import annotations


class AntiphonError(Exception):
    """Anything Antiphon refuses or cannot do."""


class HistoryError(AntiphonError):
    """An operation on a history that would break it, and was not done."""


class NotAppendable(HistoryError):
    """What was given is no entry of the log (a decorated one, say), or cannot be written down."""


class OutOfSequence(HistoryError):
    """A version or sequence number that does not fit the log."""


class WriterConflict(HistoryError):
    """Somebody else writes this history. Reopen it, look at what is new, and append again."""


class StoreError(AntiphonError):
    """The store cannot do what was asked; what it held, it still holds."""


class UnknownConversation(StoreError):
    """No conversation has that id."""


class ConversationExists(StoreError):
    """A conversation with that id is already there."""


class StoreLocked(StoreError):
    """Another process held the file for longer than we were willing to wait."""


class StoreReadOnly(StoreError):
    """The file or its folder cannot be written."""


class StoreFull(StoreError):
    """The disk, or the limit set on the file, is full. The entry was not written."""


class StoreDamaged(StoreError):
    """The file is damaged, or is not ours."""


class ImportRefused(StoreError):
    """An export that cannot be imported; nothing of it was."""


class ContextError(AntiphonError):
    """A live context that cannot be rendered as asked."""


class WireError(AntiphonError):
    """A body that cannot be read in the format it was said to be in."""
