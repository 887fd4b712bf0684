"""From the live context to the bytes of a request: each entry becomes messages once, and each message bytes once.

A `ContextWriter` belongs to one conversation and one target. It remembers the entries it has seen, so that a round costs what
was appended since the last one: entries become messages, only the new messages are looked through for broken sequences, and
`IncrementalRequestWriter` joins the bytes it kept. A context that does not continue the one before is written from the start.

Opaque reasoning (signatures, encrypted content, redacted blocks) is bound to the provider, the API *and* the model that made
it. It goes back only where all three are the same; anywhere else the proofs are taken off, which is told as a loss, and what
can be read of the reasoning is left to the format's writer.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import chain
from typing import Any, NamedTuple

from msgspec import structs

from antiphon.history import ContextEntry, ContextEntryRole, DecoratedContextEntry, ModelOutputEntry, Origin
from antiphon.history.entries import ModelInputEntry
from antiphon.parts import Native, NativeExtras, Part, Text, Thinking, ToolCallRequest, ToolCallResult
from antiphon.providers.call import ProviderCallOptions
from antiphon.repair import repair
from antiphon.repair.action import Action
from antiphon.repair.sequence import is_legal
from antiphon.wire import formats
from antiphon.wire.codec.incremental import IncrementalRequestWriter
from antiphon.wire.format import WriteOptions
from antiphon.wire.loss import Loss
from antiphon.wire.request import Message, ModelRequest

PROOFS = frozenset(
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
"""The names under which formats keep proofs of reasoning beside other parts."""

BOUND_BLOCKS = frozenset({"redacted_thinking", "thinking", "reasoning", "compaction"})
"""The types of blocks that mean something only to the model that made them."""

_OPERATORS = ("system", "developer")
_WHY = "a proof of reasoning is taken back only by the provider, API and model it came from"


class RenderedCall(NamedTuple):
    """A request as it is sent: `chunks` one after the other are the body."""

    chunks: list[bytes]
    request: ModelRequest
    losses: list[Loss]
    repairs: list[Action]


def render_call(
    context: Sequence[ContextEntry],
    options: ProviderCallOptions,
    target: Origin,
    *,
    stream: bool = True,
    **wire_options: Any,
) -> RenderedCall:
    """The request for `target`. What was written for earlier contexts of the same conversation is found in `context.memo`."""
    key: Hashable = (target.provider, target.format, target.model, *sorted(wire_options.items()))
    memo: dict[Hashable, Any] = getattr(context, "memo", {})
    writer = memo.get(key)
    if writer is None:
        writer = memo[key] = ContextWriter(target, **wire_options)
    rendered: RenderedCall = writer.write(context, options, stream=stream)
    return rendered


class ContextWriter:
    """Writes the contexts of one conversation for one target, and keeps what it wrote."""

    def __init__(self, target: Origin, **wire_options: Any) -> None:
        self._target = target
        self._rule = formats[target.format].module.sequence_rule
        self._body = IncrementalRequestWriter(formats[target.format], WriteOptions(**wire_options))
        self._forget()

    def _forget(self) -> None:
        self._entries: list[ContextEntry] = []  # those that will not change, and the messages they became
        self._messages: list[Message] = []
        self._losses: list[Loss] = []
        self._legal = 0  # so many messages are a legal sequence, with every call in it answered
        self._ids: set[str] = set()  # and these are the calls

    def write(self, context: Sequence[ContextEntry], options: ProviderCallOptions, *, stream: bool) -> RenderedCall:
        """The body for `context`."""
        if list(context[: len(self._entries)]) != self._entries:
            self._forget()
        volatile = self._take_in(context[len(self._entries) :])
        settled = tuple(self._messages)
        request = structs.replace(
            options.settings,
            messages=(*settled, *volatile[0]) if volatile[0] else settled,
            model=self._target.model,
            tools=options.tools,
            stream=stream,
        )
        repairs: list[Action] = []
        if not self._continues_legally(request.messages, len(settled)):
            request, repairs = repair(request, self._target.format, request_id=options.request_id)
        chunks = self._body.chunks(request)
        return RenderedCall(chunks, request, [*self._losses, *volatile[1], *self._body.losses], repairs)

    def _take_in(self, entries: Sequence[ContextEntry]) -> tuple[list[Message], list[Loss]]:
        """Turn new entries into messages. From the first that shows what is true only now, they are not kept."""
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
        """Whether the sequence is legal, looking only behind what is known to be."""
        fresh = messages[self._legal :]
        if not self._ids.isdisjoint(_calls_in(fresh)) or not is_legal(fresh, self._rule):
            return False
        if settled < len(messages):
            fresh = messages[self._legal : settled]
        if settled == len(messages) or is_legal(fresh, self._rule):
            self._legal = settled
            self._ids.update(_calls_in(fresh))
        return True


def _calls_in(messages: Sequence[Message]) -> list[str]:
    return [part.tool_call_id for message in messages for part in message.parts if type(part) is ToolCallRequest]


def messages_of(entry: ContextEntry, target: Origin, position: int = 0) -> tuple[list[Message], list[Loss]]:
    """An entry as messages for `target`, and what it could not keep. `position` is where the first of them will stand."""
    if isinstance(entry, ModelOutputEntry):
        if entry.origin == target or not any(map(_may_be_bound, entry.content)):
            return [Message("assistant", entry.content)], []
        losses: list[Loss] = []
        parts = _without_proofs(entry.content, f"messages[{position}]", losses)
        return [Message("assistant", parts)], losses
    observed = entry.entry if isinstance(entry, DecoratedContextEntry) else entry
    screen = (Text(entry.live_screen),) if entry.live_screen else ()
    if entry.role is ContextEntryRole.TOOL_RESULT:
        results = tuple(part for part in entry.content if type(part) is ToolCallResult)
        words = (*(part for part in entry.content if type(part) is not ToolCallResult), *screen)
        answered = [Message("tool", results)] if results else []
        return ([*answered, Message("user", words)] if words else answered), []
    role = "system" if entry.role is ContextEntryRole.SYSTEM else "user"
    if isinstance(observed, ModelInputEntry) and observed.channel in _OPERATORS:
        role = observed.channel
    return [Message(role, (*entry.content, *screen))], []


def _may_be_bound(part: Part) -> bool:
    kind = type(part)
    return (kind is Native) or (kind is not Native and getattr(part, "native", None) is not None)


def _without_proofs(parts: Sequence[Part], path: str, losses: list[Loss]) -> tuple[Part, ...]:
    """The parts as another model may see them."""
    kept: list[Part] = []
    for index, part in enumerate(parts):
        place = f"{path}.parts[{index}]"
        if type(part) is Native:
            if _block_type(part) in BOUND_BLOCKS:
                losses.append(Loss(place, str(_block_type(part)), _WHY))
                continue
            if isinstance(part.data, dict) and (proofs := set(PROOFS & part.data.keys())):
                losses += (Loss(f"{place}.{name}", name, _WHY) for name in sorted(proofs))
                part = structs.replace(part, data={k: value for k, value in part.data.items() if k not in proofs})
        elif type(part) is Thinking:
            if part.native:
                losses += (Loss(f"{place}.{name}", name, _WHY) for name in chain(*part.native.values()))
                part = Thinking(part.text)
        elif (native := getattr(part, "native", None)) and (proofs := _proofs_in(native)):
            losses += (Loss(f"{place}.{name}", name, _WHY) for name in sorted(proofs))
            part = structs.replace(part, native=_spared(native))
        kept.append(part)
    return tuple(kept)


def _block_type(part: Native) -> object:
    return part.data.get("type") if isinstance(part.data, dict) else None


def _proofs_in(native: NativeExtras) -> set[str]:
    return {name for extras in native.values() for name in extras if name in PROOFS}


def _spared(native: NativeExtras) -> NativeExtras | None:
    """The extras without proofs."""
    spared = {
        origin: {name: value for name, value in extras.items() if name not in PROOFS}
        for origin, extras in native.items()
    }
    return {origin: extras for origin, extras in spared.items() if extras} or None
