"""The current turn, read from the context: the last user message, and the calls since.

The model keeps no state between calls. The calls and their results are in the context, so a conversation can switch to this model
from another one, or to another process, in the middle of a turn.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from antiphon.chat.offline.clauses import Language, language_of
from antiphon.chat.offline.wording import ASKS, NOTICE
from antiphon.history import ContextEntry, ContextEntryRole, DecoratedContextEntry, ModelInputEntry
from antiphon.parts import Text, ToolCallRequest, ToolCallResult, ToolExecutionStatus, text_of

_LONGEST_MESSAGE = 4_000
"""The request is at the start of a message; text after this many characters is material, and is not parsed."""


class Done(Struct, frozen=True):
    """A call and its result."""

    call: ToolCallRequest
    result: ToolCallResult

    @property
    def has_failed(self) -> bool:
        return self.result.status is not ToolExecutionStatus.SUCCESS

    @property
    def can_be_corrected(self) -> bool:
        """Whether it failed in a way that other arguments might fix; a call that was denied did not run, and does not count."""
        return self.result.status is ToolExecutionStatus.FAILED

    @property
    def text(self) -> str:
        return self.result.result_markdown


class Turn(Struct, frozen=True):
    """The turn to answer.

    `asked_for` is the earlier message, if this one answers a question for an argument. `is_first`: this model has not answered
    yet.
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
    place = next((place for place in range(len(context) - 1, -1, -1) if _is_user_input(context[place])), len(context))
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
        earlier_messages=sum(_is_user_input(entry) for entry in before),
        attached=sum(not isinstance(part, Text) for part in context[place].content) if place < len(context) else 0,
    )


def _is_user_input(entry: ContextEntry) -> bool:
    """Whether the input is from the user: not from an operator, and with content of its own."""
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
    """The message that the last output answered, if that output asked for an argument."""
    if not before or before[-1].role is not ContextEntryRole.MODEL_OUTPUT:
        return ""
    output = text_of(before[-1].content)
    if not any(asks.partition("{")[0] in output for asks in ASKS.values()):
        return ""
    return next((text_of(entry.content)[:_LONGEST_MESSAGE] for entry in reversed(before) if _is_user_input(entry)), "")
