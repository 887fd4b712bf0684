"""From the live context to the bytes of a request: each entry is converted to messages once, and each message to bytes once.

A `ContextRenderer` belongs to one conversation and one target. It keeps what it has rendered, so a round costs only what was
appended: new entries become messages, only new messages are checked for broken sequences, and `RequestEncoder` joins
the kept bytes. A context that does not continue the previous one is rendered from the start.

Opaque reasoning (signatures, encrypted content, redacted blocks) is bound to the provider, the API and the model that made it.
For any other target the signatures are removed and reported as a loss; the format's writer handles the readable rest.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from itertools import chain, islice
from typing import Any, NamedTuple

from msgspec import structs

from antiphon.context.live import LiveContext
from antiphon.context.view import SegmentText
from antiphon.history import ContextEntry, ContextEntryRole, DecoratedContextEntry, ModelOutputEntry, Origin
from antiphon.history.entries import ModelInputEntry
from antiphon.parts import Native, Part, Text, Thinking, ToolCallRequest, ToolCallResult
from antiphon.providers.call import ProviderCallOptions
from antiphon.repair import add_system_message, declare_called_tools, repair
from antiphon.repair.action import Action
from antiphon.repair.repairer import is_legal
from antiphon.wire import formats
from antiphon.wire.format import WriteOptions
from antiphon.wire.loss import Loss
from antiphon.wire.request import Message, ModelRequest, PromptCaching
from antiphon.wire.request_writer import RequestEncoder

SIGNATURE_FIELDS = frozenset(
    {
        "signature",
        "thoughtSignature",
        "thought_signature",
        "encrypted_content",
        "reasoning_details",
        "reasoning_signature",
        "reasoning_opaque",
        "extra_content",
    }
)
"""Fields in which formats keep reasoning signatures next to other parts."""

BOUND_BLOCKS = frozenset({"redacted_thinking", "thinking", "reasoning", "compaction"})
"""Types of blocks that only the model that made them can read."""

_OPERATORS = ("system", "developer")
_AUTOMATIC = PromptCaching()
_WHY = "reasoning signatures are accepted only by the provider, API and model that made them"


class RenderedRequest(NamedTuple):
    """A rendered request; `chunks` joined are the body."""

    chunks: list[bytes]
    request: ModelRequest
    losses: list[Loss]
    repairs: list[Action]


def render_call(
    context: Sequence[ContextEntry],
    options: ProviderCallOptions,
    target: Origin,
    **wire_options: Any,
) -> RenderedRequest:
    """The request for `target`. The renderer of earlier contexts of the conversation is kept in `context.memo`."""
    key: Hashable = (target.provider, target.format, target.model, *sorted(wire_options.items()))
    memo: dict[Hashable, Any] = getattr(context, "memo", {})
    writer = memo.get(key)
    if writer is None:
        writer = memo[key] = ContextRenderer(target, **wire_options)
    rendered: RenderedRequest = writer.write(context, options)
    return rendered


class ContextRenderer:
    """Renders the contexts of one conversation for one target, and keeps the result."""

    def __init__(self, target: Origin, **wire_options: Any) -> None:
        self._target = target
        self._dialect = wire_options.get("dialect")
        self._rule = formats[target.format].spec.sequence_rule
        self._has_breakpoints = formats[target.format].spec.marked_messages > 0
        self._body = RequestEncoder(formats[target.format], WriteOptions(**wire_options))
        self._reset()

    def _reset(self) -> None:
        self._entries: list[ContextEntry] = []  # stable entries, and their messages
        self._messages: list[Message] = []
        self._losses: list[Loss] = []
        self._checked_count = 0  # number of messages checked to be a legal sequence with every call answered
        self._ids: set[str] = set()  # ids of the calls in them

    def write(self, context: Sequence[ContextEntry], options: ProviderCallOptions) -> RenderedRequest:
        """The body for `context`, which asks for a stream."""
        if not options.live_context:
            context = LiveContext(context).without_screen()
        if list(context[: len(self._entries)]) != self._entries:
            self._reset()
        volatile = self._render_new(context[len(self._entries) :])
        settled = tuple(self._messages)
        settings = options.settings
        request = structs.replace(
            settings,
            messages=(*settled, *volatile[0]) if volatile[0] else settled,
            model=self._target.model,
            tools=options.tools,
            stream=True,
            cache_prompt=_caching(settings.cache_prompt, context) if self._has_breakpoints else settings.cache_prompt,
        )
        repairs: list[Action] = []
        if not self._continues_legally(request.messages, len(settled)):
            request, repairs = repair(request, self._target.format, request_id=options.request_id)
        request, declared = declare_called_tools(request, self._target.format)
        request, added = add_system_message(request, self._target.format, self._dialect)
        if options.strategy != "merged" and self._target.format == "openai-chat":
            from antiphon.wire.openai_chat.layouts import arrange

            request = structs.replace(request, messages=tuple(arrange(request.messages, options.strategy)))
        chunks = self._body.chunks(request)
        losses = [*self._losses, *volatile[1], *self._body.losses]
        return RenderedRequest(chunks, request, losses, repairs + declared + added)

    def _render_new(self, entries: Sequence[ContextEntry]) -> tuple[list[Message], list[Loss]]:
        """Render new entries. From the first with a live screen on, messages are not kept."""
        messages, losses = self._messages, self._losses
        for entry in entries:
            if entry.live_screen is not None and messages is self._messages:
                messages, losses = [], []
            written, lost = messages_of(entry, self._target, self._count(messages))
            messages += written
            losses += lost
            if messages is self._messages:
                self._entries.append(entry)
        return ([], []) if messages is self._messages else (messages, losses)

    def _count(self, messages: list[Message]) -> int:
        return len(self._messages) + (0 if messages is self._messages else len(messages))

    def _continues_legally(self, messages: tuple[Message, ...], settled: int) -> bool:
        """Whether the sequence is legal, checking only what is new."""
        fresh = messages[self._checked_count :]
        if not self._ids.isdisjoint(_calls_in(fresh)) or not is_legal(fresh, self._rule):
            return False
        if settled < len(messages):
            fresh = messages[self._checked_count : settled]
        if settled == len(messages) or is_legal(fresh, self._rule):
            self._checked_count = settled
            self._ids.update(_calls_in(fresh))
        return True


def _caching(caching: PromptCaching | None, context: Sequence[ContextEntry]) -> PromptCaching:
    """How the prompt is cached. A live screen is the last part of the last observation, and only of this request.

    After compactions the provider must also store what comes before their ends: the next one begins there.
    """
    caching = caching or _AUTOMATIC
    ends: tuple[int, ...] = getattr(context, "ends", ())
    if ends:
        caching = structs.replace(caching, ends=tuple([_user_turns_after(context, end) for end in ends]))
    for entry in reversed(context):
        if type(entry) is not ModelOutputEntry:
            screen = entry.live_screen
            return structs.replace(caching, volatile_parts=1) if screen and not screen.isspace() else caching
    return caching


def _user_turns_after(context: Sequence[ContextEntry], index: int) -> int:
    """How many messages of the user begin after the one that has the entry at `index`; adjacent entries are one message."""
    count, is_user = 0, True
    for entry in islice(context, index + 1, None):
        is_answer = type(entry) is ModelOutputEntry
        count += not is_answer and not is_user
        is_user = not is_answer
    return count


def _calls_in(messages: Sequence[Message]) -> list[str]:
    return [part.tool_call_id for message in messages for part in message.parts if type(part) is ToolCallRequest]


def messages_of(entry: ContextEntry, target: Origin, position: int = 0) -> tuple[list[Message], list[Loss]]:
    """An entry as messages for `target`, and the losses. `position` is the index of the first message."""
    if isinstance(entry, ModelOutputEntry):
        if entry.origin == target or not any(map(_may_be_bound, entry.content)):
            return [Message("assistant", entry.content)], []
        losses: list[Loss] = []
        parts = _without_signatures(entry.content, f"messages[{position}]", losses)
        return [Message("assistant", parts)], losses
    if isinstance(entry, SegmentText) and entry.segment.native is not None:
        return _native_segment(entry, entry.segment.native, target, position)
    observed = entry.entry if isinstance(entry, DecoratedContextEntry) else entry
    screen = (Text(entry.live_screen),) if entry.live_screen else ()
    if entry.role is ContextEntryRole.TOOL_RESULT:
        results = tuple(part for part in entry.content if type(part) is ToolCallResult)
        others = (*(part for part in entry.content if type(part) is not ToolCallResult), *screen)
        answered = [Message("tool", results)] if results else []
        return ([*answered, Message("user", others)] if others else answered), []
    role = "system" if entry.role is ContextEntryRole.SYSTEM else "user"
    if isinstance(observed, ModelInputEntry) and observed.channel in _OPERATORS:
        role = observed.channel
    return [Message(role, (*entry.content, *screen))], []


def _native_segment(
    entry: SegmentText, native: Native, target: Origin, position: int
) -> tuple[list[Message], list[Loss]]:
    """A compaction of the provider itself: its block for the model that made it; else its text, or the originals."""
    if entry.origin == target:
        return [Message("assistant", (native,))], []
    if not entry.originals:
        return [Message("user", entry.content)], []
    messages: list[Message] = []
    losses: list[Loss] = []
    for one in entry.originals:
        written, lost = messages_of(one, target, position + len(messages))
        messages += written
        losses += lost
    return messages, losses


def _may_be_bound(part: Part) -> bool:
    return type(part) is Native or getattr(part, "native", None) is not None


def _without_signatures(parts: Sequence[Part], path: str, losses: list[Loss]) -> tuple[Part, ...]:
    """The parts for another model."""
    kept: list[Part] = []
    for index, part in enumerate(parts):
        place = f"{path}.parts[{index}]"
        if type(part) is Native:
            if _block_type(part) in BOUND_BLOCKS:
                losses.append(Loss(place, str(_block_type(part)), _WHY))
                continue
            if isinstance(part.data, dict):
                part = structs.replace(part, data=_unsigned(part.data, place, losses))
        elif type(part) is Thinking:
            if part.native:
                losses += (Loss(f"{place}.{name}", name, _WHY) for name in chain(*part.native.values()))
                part = Thinking(part.text)
        elif native := getattr(part, "native", None):
            unsigned = {origin: _unsigned(extras, place, losses) for origin, extras in native.items()}
            if unsigned != native:
                part = structs.replace(
                    part, native={name: fields for name, fields in unsigned.items() if fields} or None
                )
        kept.append(part)
    return tuple(kept)


def _block_type(part: Native) -> object:
    return part.data.get("type") if isinstance(part.data, dict) else None


def _unsigned(fields: Mapping[str, Any], place: str, losses: list[Loss]) -> Mapping[str, Any]:
    """The fields without signatures; each is a loss. The same object if it has none."""
    signatures = SIGNATURE_FIELDS & fields.keys()
    if not signatures:
        return fields
    losses += (Loss(f"{place}.{name}", name, _WHY) for name in sorted(signatures))
    return {name: value for name, value in fields.items() if name not in signatures}
