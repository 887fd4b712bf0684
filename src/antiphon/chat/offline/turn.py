"""The turn that is to be answered, read from the context: the last message of a person, and what was done since.

Nothing is remembered between calls. What was called and what came of it stands in the context, so a conversation can move to
this model from another one, or to another process, in the middle of a turn.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from antiphon.chat.offline.clauses import Language, language_of
from antiphon.chat.offline.wording import ASKS, NOTICE
from antiphon.history import ContextEntry, ContextEntryRole, DecoratedContextEntry, ModelInputEntry
from antiphon.parts import Text, ToolCallRequest, ToolCallResult, ToolExecutionStatus, text_of

_LONGEST_MESSAGE = 4_000
"""A wish stands at the beginning of a message; what comes behind so many characters is material, and not read."""


class Done(Struct, frozen=True):
    """A call and what came of it."""

    call: ToolCallRequest
    result: ToolCallResult

    @property
    def has_failed(self) -> bool:
        return self.result.status is not ToolExecutionStatus.SUCCESS

    @property
    def can_be_corrected(self) -> bool:
        """Whether it failed for something a better call might mend; one that was not run (a person said no) did not."""
        return self.result.status is ToolExecutionStatus.FAILED

    @property
    def said(self) -> str:
        return self.result.result_markdown


class Turn(Struct, frozen=True):
    """What is to be answered.

    `asked_for` is the message to which this one is the answer, if an argument was asked for. `is_first` says that this model
    has not spoken yet.
    """

    message: str
    language: Language
    done: tuple[Done, ...] = ()
    earlier: tuple[Done, ...] = ()
    asked_for: str = ""
    is_first: bool = True
    earlier_messages: int = 0
    attached: int = 0


def turn_of(context: Sequence[ContextEntry]) -> Turn:
    """The turn a context ends with."""
    place = next((place for place in range(len(context) - 1, -1, -1) if _is_said(context[place])), len(context))
    before, since = context[:place], context[place + 1 :]
    message = text_of(context[place].content)[:_LONGEST_MESSAGE] if place < len(context) else ""
    spoken = [text_of(entry.content) for entry in context if entry.role is ContextEntryRole.MODEL_OUTPUT]
    return Turn(
        message,
        language_of(message),
        _done(since),
        _done(before),
        asked_for=_asked_for(before),
        is_first=not any(notice in text for text in spoken for notice in NOTICE.values()),
        earlier_messages=sum(_is_said(entry) for entry in before),
        attached=sum(not isinstance(part, Text) for part in context[place].content) if place < len(context) else 0,
    )


def _is_said(entry: ContextEntry) -> bool:
    """Whether a person said it: not an operator, and not a screen that is shown alone."""
    logged = entry.entry if isinstance(entry, DecoratedContextEntry) else entry
    if isinstance(logged, ModelInputEntry) and logged.channel in ("system", "developer"):
        return False
    return entry.role is ContextEntryRole.MODEL_INPUT and bool(entry.content)


def _done(entries: Sequence[ContextEntry]) -> tuple[Done, ...]:
    calls: dict[str, ToolCallRequest] = {}
    done: list[Done] = []
    for entry in entries:
        calls.update((call.tool_call_id, call) for call in entry.tool_calls)
        for part in entry.content:
            if isinstance(part, ToolCallResult):
                unknown = ToolCallRequest(part.tool_name, part.tool_call_id)
                done.append(Done(calls.pop(part.tool_call_id, unknown), part))
    return tuple(done)


def _asked_for(before: Sequence[ContextEntry]) -> str:
    """The message behind the last output, if that output asked for an argument."""
    if not before or before[-1].role is not ContextEntryRole.MODEL_OUTPUT:
        return ""
    said = text_of(before[-1].content)
    if not any(asks.partition("{")[0] in said for asks in ASKS.values()):
        return ""
    return next((text_of(entry.content)[:_LONGEST_MESSAGE] for entry in reversed(before) if _is_said(entry)), "")
