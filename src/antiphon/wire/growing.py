"""The body of a conversation that grows: what was encoded for earlier messages is kept, and the next body is a join of bytes.

This is what law L9 is for. Appending changes nothing that was written before, so it need not be written again: the messages
before the last answer are frozen as bytes, and only what came since is read, written and encoded. A round late in a long
conversation costs what one early in a short one does, but for copying bytes.

How the pieces stay right: a piece is cut only where the model begins to speak behind somebody else, and is written between two
sentinels, a user's message and an answer, that are cut off the result. So a piece never merges with its neighbour, never stands
first or last in a request that goes on, and needs no state of a writer.

Where a format looks at the whole conversation at once (cache marks, of which Anthropic takes four; thinking, which needs its
proofs in the last turn), the body is written whole, as if this was not here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile
from typing import Any

import msgspec
from msgspec import structs

from antiphon.parts import Text, ToolCallRequest, ToolCallResult
from antiphon.wire.format import Format
from antiphon.wire.loss import Loss
from antiphon.wire.request import Message, ModelRequest

_SENTINEL_TEXT = "\u2063antiphon: the conversation before\u2063"
_BEFORE = Message("user", (Text(_SENTINEL_TEXT),))
_BEHIND = Message("assistant", (Text(_SENTINEL_TEXT),))
_LISTS = {"openai-chat": "messages", "openai-responses": "input", "anthropic": "messages", "gemini": "contents"}
_INDEX = re.compile(r"messages\[(\d+)\]")


class GrowingBody:
    """Writes the requests of one conversation in one format, each as bytes, and remembers what it wrote."""

    def __init__(self, wire: Format, **options: Any) -> None:
        self.losses: list[Loss] = []
        self._wire = wire
        self._options = options
        self._key = _LISTS[wire.name]
        self._list = self._key.encode()
        self._frozen: list[bytes] = []  # pieces of the list, each with its comma
        self._losses: list[Loss] = []
        self._known: tuple[Message, ...] = ()  # the messages that are frozen
        self._head: ModelRequest | None = None

    def write(self, request: ModelRequest) -> bytes:
        """The body of `request`. `losses` is then what it could not say."""
        return b"".join(self.chunks(request))

    def chunks(self, request: ModelRequest) -> list[bytes]:
        """The same in pieces, for whoever can send them one after the other: then nothing is copied."""
        head = structs.replace(request, messages=())
        # The messages are the same objects, nearly always: then comparing them is quick.
        if head != self._head or request.messages[: len(self._known)] != self._known:
            self._head, self._known, self._frozen, self._losses = head, (), [], []
        if self._looks_around(request):
            body, self.losses = self._wire.compose_request(request, **self._options)
            return [msgspec.json.encode(body)]
        cut = _last_answer(request.messages, len(self._known))
        if cut > len(self._known):
            self._freeze(request, cut)
        body, pieces, losses = self._pieces(request, request.messages[len(self._known) :], is_last=True)
        self.losses = self._losses + losses
        head_bytes = msgspec.json.encode(body)[:-1]
        opening = b',"' if len(head_bytes) > 1 else b'"'
        last = b",".join(pieces)
        if self._frozen and not last:
            return [head_bytes, opening, self._list, b'":[', *self._frozen[:-1], self._frozen[-1][:-1], b"]}"]
        return [head_bytes, opening, self._list, b'":[', *self._frozen, last, b"]}"]

    def _looks_around(self, request: ModelRequest) -> bool:
        """Whether the writer must see the whole conversation."""
        if self._wire.name == "anthropic" and request.reasoning is not None:
            return True
        if request.output_format is not None and request.output_format.kind == "json_object":
            return True
        since = request.messages[len(self._known) :]  # what is frozen was looked at when it was
        natives = (getattr(part, "native", None) or {} for message in since for part in message.parts)
        return any("cache_control" in extras for native in natives for extras in native.values())

    def _freeze(self, request: ModelRequest, cut: int) -> None:
        _, pieces, losses = self._pieces(request, request.messages[len(self._known) : cut], is_last=False)
        if pieces:
            self._frozen.append(b",".join(pieces) + b",")
        self._losses += losses
        self._known = request.messages[:cut]

    def _pieces(
        self, request: ModelRequest, messages: Sequence[Message], *, is_last: bool
    ) -> tuple[dict[str, Any], list[bytes], list[Loss]]:
        """The rest of the body, and the messages of this piece as bytes."""
        known = len(self._known)
        leading = takewhile(lambda message: message.role in ("system", "developer"), request.messages)
        before = (*leading, _BEFORE) if known else ()
        behind = () if is_last else (_BEHIND,)
        body, losses = self._wire.compose_request(
            structs.replace(request, messages=(*before, *messages, *behind)), **self._options
        )
        body = dict(body)
        written = body.pop(self._key)
        if before:
            written = written[_sentinel_place(written) + 1 :]
        if behind:
            written = written[: _sentinel_place(written)]
        moved = known - len(before)
        told = [loss for loss in losses if is_last or "messages[" in loss.path]
        return body, [msgspec.json.encode(entry) for entry in written], [_moved(loss, moved) for loss in told]


def _last_answer(messages: Sequence[Message], known: int) -> int:
    """Where the last answer begins behind somebody else's message; `known` if there is none beyond it."""
    for index in range(len(messages) - 1, max(known, 1), -1):
        before, answer = messages[index - 1], messages[index]
        is_border = answer.role == "assistant" and before.role in ("user", "tool")
        if is_border and _speaks(before) and _speaks(answer):
            return index
    return known


def _speaks(message: Message) -> bool:
    """Whether every format writes something for a message; where one does not, the messages around it may become one."""
    return any(
        type(part) in (ToolCallRequest, ToolCallResult)
        or (type(part) is Text and part.text and not part.text.isspace())
        for part in message.parts
    )


def _sentinel_place(written: list[Any]) -> int:
    """Where the first sentinel stands among written messages."""
    for index, entry in enumerate(written):
        content = (entry.get("content") or entry.get("parts")) if isinstance(entry, dict) else None
        blocks = content if isinstance(content, list) else [{"text": content}]
        if any(isinstance(block, dict) and block.get("text") == _SENTINEL_TEXT for block in blocks):
            return index
    raise AssertionError("a writer left a sentinel out")


def _moved(loss: Loss, by: int) -> Loss:
    """A loss of a piece, at its place in the whole."""
    if not by:
        return loss
    path = _INDEX.sub(lambda found: f"messages[{int(found[1]) + by}]", loss.path, count=1)
    return structs.replace(loss, path=path)
