"""`RequestWriter`: the order in which a request is written, for every format; `RequestEncoder`: a growing one, again and again.

A format gives the steps. Its writer is made for a target with the tools, gets the messages one by one, and finishes the body:
messages, choice, parameters and extras, cache breakpoints. Rules about several values are kept by the `fixes` of the rule book,
at their stage.

Law L9 lets the encoder keep bytes: what is written for a turn never changes once a turn of the model follows it. Entries before
such a boundary are settled and kept as bytes; the messages after it are added, the body is finished, and the writer is put back.
So a request late in a long conversation costs as much as one in a short conversation, except for copying bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec
from msgspec import structs

from antiphon.parts import Text, ToolCallRequest, ToolCallResult
from antiphon.wire.capabilities import capabilities_for
from antiphon.wire.format import DEFAULT_OPTIONS, Format, WriteOptions, surrogate_error
from antiphon.wire.loss import Loss, Losses
from antiphon.wire.native_as_text import reasoning_as_text
from antiphon.wire.request import Message, ModelRequest, PromptCaching
from antiphon.wire.rules.book import Fixes, Stage
from antiphon.wire.tools.definitions import find_wrapped_tools, with_wrapped_calls
from antiphon.wire.tools.namespaces import namespaces_origin


class ListWriter:
    """Writes the messages of a request into `entries`."""

    entries: list[Any]
    losses: Losses

    def add(self, index: int, message: Message) -> None:
        """Write a message, as far as it is complete."""
        raise NotImplementedError

    def settle(self) -> None:
        """End what is open, because a turn of the model follows."""

    def helpers(self) -> tuple[object, ...]:
        """The other objects that have state while messages are written."""
        return ()


class RequestWriter:
    """Writes one request. `request` has everything but the messages until the body is finished."""

    format: ClassVar[str]
    fixes: ClassVar[Fixes] = {}
    """Those of the format's rule book."""
    messages: ListWriter
    wraps_calls: bool = True
    """Whether arguments of earlier calls must fit schemas whose root is written wrapped."""

    def __init__(self, request: ModelRequest, losses: Losses, options: WriteOptions) -> None:
        self.request = request
        self.losses = losses
        self.options = options
        self.model = capabilities_for(options.model or request.model, self.format, options.capabilities)
        self.begin()
        self._wrapped = find_wrapped_tools(request.tools) if self.wraps_calls and request.tools else None
        self._is_plain = not self._wrapped and not options.reasoning_as_text

    def write(self, messages: Sequence[Message]) -> dict[str, Any]:
        """The body with these messages."""
        add = self.messages.add if self._is_plain else self.add
        for index, message in enumerate(messages):
            add(index, message)
        return self.finish(self.request)

    def add(self, index: int, message: Message) -> None:
        """Write a message, as far as it is complete."""
        if self.options.reasoning_as_text:
            message = reasoning_as_text(message, self.format)
        if self._wrapped:
            message = with_wrapped_calls(message, self._wrapped)
        self.messages.add(index, message)

    def finish(self, request: ModelRequest) -> dict[str, Any]:
        """The body, after the last message."""
        self.request = request
        body = self.end_messages()
        if request.tool_choice is not None or request.parallel_tool_calls is not None:
            self.write_choice(body)
            self.fix("choice", body)
        self.write_parameters(body)
        for fix in self.fixes.get("end", ()):
            fix(body, self)
        if request.cache_prompt is not None:
            self.mark_prompt(body, request.cache_prompt)
        return body

    def fix(self, stage: Stage, body: dict[str, Any]) -> None:
        """Keep the rules about several values of this stage."""
        for fix in self.fixes.get(stage, ()):
            fix(body, self)

    # The steps of a format, in their order.

    def begin(self) -> None:
        """Prepare for the target: its dialect, the tools, and the writer of the messages."""
        raise NotImplementedError

    def settle(self) -> list[Any]:
        """End what is open, because a turn of the model follows; returns the list of all entries. They never change again."""
        self.messages.settle()
        return self.messages.entries

    def end_messages(self) -> dict[str, Any]:
        """The body with its messages and tools."""
        raise NotImplementedError

    def write_choice(self, body: dict[str, Any]) -> None:
        """Which tools may be called, and whether several at once."""

    def write_parameters(self, body: dict[str, Any]) -> None:
        """The parameters of the request, and what only this format has; the extras of others are reported."""

    def mark_prompt(self, body: dict[str, Any], caching: PromptCaching) -> None:
        """Set the cache breakpoints that a request asks for."""

    def needs_whole(self) -> bool:
        """Whether finishing looks at, or changes, entries of any age."""
        return False


class _SavedState:
    """What lists, sets, dicts and other fields of a writer were; entries themselves are never changed once they are settled."""

    def __init__(self, writer: RequestWriter) -> None:
        self._losses, self._count = writer.losses, len(writer.losses)
        self._fields = [
            (vars(part), dict(vars(part))) for part in (writer, writer.messages, *writer.messages.helpers())
        ]
        self._contents = {
            id(value): (value, value.copy())
            for _, fields in self._fields
            for value in fields.values()
            if type(value) in (list, set, dict)
        }

    def restore(self) -> None:
        del self._losses[self._count :]
        for current, fields in self._fields:
            current.clear()
            current.update(fields)
        for value, content in self._contents.values():
            value.clear()
            value.extend(content) if type(value) is list else value.update(content)


class RequestEncoder:
    """Encodes the requests of one conversation in one format, and keeps what it encoded."""

    def __init__(self, wire: Format, options: WriteOptions = DEFAULT_OPTIONS) -> None:
        self.losses: list[Loss] = []
        self._wire = wire
        self._options = options
        self._key = wire.spec.messages_key
        self._head: ModelRequest | None = None
        self._writer: RequestWriter | None = (
            None  # after the settled messages; None if it must have all of them at once
        )
        self._settled: tuple[Message, ...] = ()
        self._encoded: list[bytes] = []  # settled entries, each chunk with its comma

    def write(self, request: ModelRequest) -> bytes:
        """The body of `request`; `losses` then has what it could not express."""
        return b"".join(self.chunks(request))

    def chunks(self, request: ModelRequest) -> list[bytes]:
        """The same in pieces that can be sent one after the other without copying."""
        try:
            return self._chunks(request)
        except BaseException as error:
            self._head = None  # what is kept may be incomplete
            if isinstance(error, UnicodeEncodeError):
                raise surrogate_error(self._wire.name, request.messages) from error
            raise

    def _chunks(self, request: ModelRequest) -> list[bytes]:
        writer, messages = self._writer_for(request), request.messages
        if writer is None or writer.needs_whole():
            return self._write_whole(request)
        ends = request.cache_prompt.ends if request.cache_prompt is not None else ()
        if (cut := _last_turn_boundary(messages, len(self._settled))) > len(self._settled):
            self._settle(writer, messages, cut, ends)
        saved = _SavedState(writer)
        for index in range(len(self._settled), len(messages)):
            writer.add(index, messages[index])
        if writer.needs_whole():
            saved.restore()
            return self._write_whole(request)
        if ends and self._encoded and _count_user_entries(writer.messages.entries) <= max(ends):
            self._head = None  # an entry to be marked is kept as bytes: a change was made there that changed no message
            return self._chunks(request)
        chunks = self._encode(writer.finish(request))
        self.losses = list(writer.losses)
        saved.restore()
        return chunks

    def _writer_for(self, request: ModelRequest) -> RequestWriter | None:
        """The writer after the settled messages; a new one if this is not the same conversation."""
        head = structs.replace(request, messages=(), cache_prompt=None)
        messages, known = request.messages, len(self._settled)
        # The messages are nearly always the same objects, so that comparing them is cheap.
        # What follows them may be another turn after a compaction: they are kept only if it does not merge with them.
        if (
            head != self._head
            or messages[:known] != self._settled
            or (0 < known < len(messages) and not _is_turn_boundary(messages, known))
        ):
            self._head, self._settled, self._encoded = head, (), []
            has_one_list = self._wire.spec.has_tool_namespaces or namespaces_origin(request) is None
            self._writer = self._wire.request_writer(head, Losses(), self._options) if has_one_list else None
        return self._writer

    def _write_whole(self, request: ModelRequest) -> list[bytes]:
        body, self.losses = self._wire.build_request(request, self._options)
        return [msgspec.json.encode(body)]

    def _settle(self, writer: RequestWriter, messages: Sequence[Message], cut: int, ends: tuple[int, ...]) -> None:
        """Keep the entries of the messages before `cut` as bytes; the last ones, which may get a breakpoint, as they are."""
        for index in range(len(self._settled), cut):
            writer.add(index, messages[index])
        entries = writer.settle()
        self._settled = tuple(messages[:cut])
        if writer.needs_whole():
            return
        marked = self._wire.spec.marked_messages
        if marked and ends:  # they count back from the last message of the user
            marked = max(marked, max(ends) + 1)
        start = _first_open_entry(entries, marked) if marked else len(entries) - 1
        if start > 0:
            self._encoded.append(_join(entries[:start]) + b",")
            del entries[:start]

    def _encode(self, body: dict[str, Any]) -> list[bytes]:
        entries = body.pop(self._key, None)
        head = msgspec.json.encode(body)
        if entries is None:
            return [head]
        opening = b',"' if len(head) > 2 else b'"'
        return [head[:-1], opening, self._key.encode(), b'":[', *self._encoded, _join(entries), b"]}"]


def _join(entries: Sequence[Any]) -> bytes:
    return msgspec.json.encode(entries)[1:-1]


def _first_open_entry(written: Sequence[Any], count: int) -> int:
    """The index from which on `count` messages are the user's: those may be marked."""
    for index in range(len(written) - 1, 0, -1):
        entry = written[index]
        if type(entry) is dict and entry.get("role") == "user":
            count -= 1
            if not count:
                return index
    return 0


def _count_user_entries(written: Sequence[Any]) -> int:
    return sum(type(entry) is dict and entry.get("role") == "user" for entry in written)


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
