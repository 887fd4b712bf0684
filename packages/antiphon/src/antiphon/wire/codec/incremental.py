"""Incremental encoding of a growing conversation: the bytes of earlier messages are kept, only new messages are encoded.

Law L9 allows it: appending a message never changes what was written before. Messages before the last turn boundary are kept
as bytes; a request late in a long conversation costs as much as one in a short conversation, except for copying bytes.

A chunk is cut only where an assistant message follows another role's, and is written between two sentinel messages that are
removed from the result. So it never merges with its neighbour, is never first or last, and needs no state of the writer.
A format that needs the whole conversation (`needs_whole_request`) writes the body in full. Cache breakpoints move with every
request, so messages that may get one are kept as they were written, without breakpoints, and encoded again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile
from typing import Any

import msgspec
from msgspec import structs

from antiphon.parts import Text, ToolCallRequest, ToolCallResult
from antiphon.wire.format import DEFAULT_OPTIONS, Format, WriteOptions, surrogate_error
from antiphon.wire.loss import Loss
from antiphon.wire.request import Message, ModelRequest

_SENTINEL_TEXT = "\u2063antiphon: the conversation before\u2063"
_BEFORE = Message("user", (Text(_SENTINEL_TEXT),))
_AFTER = Message("assistant", (Text(_SENTINEL_TEXT),))
_INDEX = re.compile(r"messages\[(\d+)\]")


class IncrementalRequestWriter:
    """Encodes the requests of one conversation in one format, and keeps what it encoded."""

    def __init__(self, wire: Format, options: WriteOptions = DEFAULT_OPTIONS) -> None:
        self.losses: list[Loss] = []
        self._wire = wire
        self._options = options
        self._key = wire.spec.messages_key
        self._list = self._key.encode()
        self._encoded_chunks: list[bytes] = []  # parts of the list, each with its comma
        self._losses: list[Loss] = []
        self._encoded_messages: tuple[Message, ...] = ()
        self._open_entries: list[Any] = []  # what follows the chunks and may get a breakpoint
        self._head: ModelRequest | None = None

    def write(self, request: ModelRequest) -> bytes:
        """The body of `request`; `losses` then has what it could not express."""
        return b"".join(self.chunks(request))

    def chunks(self, request: ModelRequest) -> list[bytes]:
        """The same in pieces that can be sent one after the other without copying."""
        try:
            return self._chunks(request)
        except UnicodeEncodeError as error:
            raise surrogate_error(self._wire.name, request.messages) from error

    def _chunks(self, request: ModelRequest) -> list[bytes]:
        head = structs.replace(request, messages=(), cache_prompt=None)
        messages, known = request.messages, len(self._encoded_messages)
        # The messages are nearly always the same objects, so that comparing them is cheap.
        # What follows them may be another turn after a compaction: they are kept only if it does not merge with them.
        if (
            head != self._head
            or messages[:known] != self._encoded_messages
            or (0 < known < len(messages) and not _is_turn_boundary(messages, known))
        ):
            self._head, self._encoded_messages, self._encoded_chunks, self._losses = head, (), [], []
            self._open_entries = []
            known = 0
        if self._wire.needs_whole_request(request, messages[known:]):
            body, self.losses = self._wire.build_request(request, self._options)
            return [msgspec.json.encode(body)]
        cut = _last_turn_boundary(messages, known)
        if cut > known:
            self._encode_prefix(request, cut)
        body, entries, losses = self._write_messages(request, messages[cut:], is_last=True)
        self.losses = self._losses + losses
        chunks = self._encoded_chunks
        if self._open_entries:
            entries = self._open_entries + entries
        if request.cache_prompt is not None:
            self._wire.mark_prompt(request, body, entries, self._options)
        head_bytes = msgspec.json.encode(body)[:-1]
        opening = b',"' if len(head_bytes) > 1 else b'"'
        last = _join(entries)
        if chunks and not last:
            chunks = [*chunks[:-1], chunks[-1][:-1]]
        return [head_bytes, opening, self._list, b'":[', *chunks, last, b"]}"]

    def _encode_prefix(self, request: ModelRequest, cut: int) -> None:
        new = request.messages[len(self._encoded_messages) : cut]
        _, entries, losses = self._write_messages(request, new, is_last=False)
        if count := self._wire.spec.marked_messages:
            written = [*self._open_entries, *entries]
            start = _first_open_entry(written, count)
            entries, self._open_entries = written[:start], written[start:]
        if entries:
            self._encoded_chunks.append(_join(entries) + b",")
        self._losses += losses
        self._encoded_messages = request.messages[:cut]

    def _write_messages(
        self, request: ModelRequest, messages: Sequence[Message], *, is_last: bool
    ) -> tuple[dict[str, Any], list[Any], list[Loss]]:
        """The rest of the body, and what is written for these messages."""
        known = len(self._encoded_messages)
        leading = takewhile(lambda message: message.role in ("system", "developer"), request.messages)
        before = (*leading, _BEFORE) if known else ()
        after = () if is_last else (_AFTER,)
        body, losses = self._wire.build_request(
            structs.replace(request, messages=(*before, *messages, *after), cache_prompt=None), self._options
        )
        body = dict(body)
        written = body.pop(self._key)
        if before:
            written = written[_sentinel_index(written, range(len(written))) + 1 :]
        if after:
            written = written[: _sentinel_index(written, range(len(written) - 1, -1, -1))]
        return body, written, _place_losses(losses, len(before), known - len(before), is_last=is_last)


def _join(entries: Sequence[Any]) -> bytes:
    return b",".join([msgspec.json.encode(entry) for entry in entries])


def _first_open_entry(written: Sequence[Any], count: int) -> int:
    """The index from which on `count` messages are the user's: those may be marked."""
    for index in range(len(written) - 1, 0, -1):
        entry = written[index]
        if _field(entry, "role") == "user":
            count -= 1
            if not count:
                return index
    return 0


def _last_turn_boundary(messages: Sequence[Message], known: int) -> int:
    """Where the last assistant turn begins after another role's message; `known` if there is none after it."""
    for index in range(len(messages) - 1, max(known, 1), -1):
        if _is_turn_boundary(messages, index):
            return index
    return known


def _is_turn_boundary(messages: Sequence[Message], index: int) -> bool:
    """Whether an assistant turn begins there after another role's message, and no format drops one of the two."""
    previous, message = messages[index - 1], messages[index]
    is_boundary = message.role == "assistant" and previous.role in ("user", "tool")
    return is_boundary and _is_never_dropped(previous) and _is_never_dropped(message)


def _is_never_dropped(message: Message) -> bool:
    """Whether every format writes something for a message; otherwise its neighbours may be merged."""
    return any(
        type(part) in (ToolCallRequest, ToolCallResult)
        or (type(part) is Text and part.text and not part.text.isspace())
        for part in message.parts
    )


def _sentinel_index(written: list[Any], places: range) -> int:
    """Where the sentinel message is; it is nearly always at the first of the `places`."""
    for index in places:
        entry = written[index]
        content = _field(entry, "content") or _field(entry, "parts")
        if content == _SENTINEL_TEXT:
            return index
        if type(content) is list and any(_field(block, "text") == _SENTINEL_TEXT for block in content):
            return index
    raise AssertionError("the writer dropped a sentinel message")


def _field(value: Any, name: str) -> Any:
    """A field of an object or of its shape; None if it has none."""
    return value.get(name) if type(value) is dict else getattr(value, name, None)


def _place_losses(losses: list[Loss], repeated: int, offset: int, *, is_last: bool) -> list[Loss]:
    """The losses with their index in the whole conversation, without those of the `repeated` messages in front.

    Losses beside the messages are the same for every chunk and are reported with the last.
    """
    placed: list[Loss] = []
    for loss in losses:
        match = _INDEX.search(loss.path)
        if match is None:
            placed += [loss] if is_last else []
        elif int(match[1]) >= repeated:
            path = loss.path[: match.start()] + f"messages[{int(match[1]) + offset}]" + loss.path[match.end() :]
            placed.append(structs.replace(loss, path=path))
    return placed
