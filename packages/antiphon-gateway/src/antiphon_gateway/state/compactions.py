"""Compaction items of the gateway: a summary in `encrypted_content`, which clients keep and send back unread.

When an item comes back, `expand_compactions` puts the summary in its place. So a compacted conversation works with every model,
also after a restart, and nothing is stored. The content is encoded, not encrypted: it is the client's own conversation.
"""

from __future__ import annotations

import binascii
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator

from msgspec import structs

from antiphon.errors import WireError
from antiphon.parts import Native, Part, Text
from antiphon.wire.request import Message, ModelRequest

_FORMAT = "openai-responses"
_MARK = "antiphon-summary-1:"
_MAX_SUMMARY_BYTES = 16 * 1024 * 1024
_HEADING = "Summary of the conversation so far:\n\n"


def encode_summary(summary: str) -> str:
    """A summary as the `encrypted_content` of an item."""
    return _MARK + urlsafe_b64encode(zlib.compress(summary.encode())).decode()


def decode_summary(content: str) -> str:
    """The summary in the `encrypted_content` of an item of ours. Raises `WireError` if it was changed."""
    try:
        decoder = zlib.decompressobj()
        data = decoder.decompress(urlsafe_b64decode(content.removeprefix(_MARK)), _MAX_SUMMARY_BYTES)
        if decoder.eof:
            return data.decode()
        problem = "it is cut, or too long"
    except (binascii.Error, zlib.error, ValueError) as error:
        problem = str(error)
    raise WireError(f"encrypted_content: the compaction item was changed: {problem}")


def expand_compactions(request: ModelRequest) -> ModelRequest:
    """The request with the summaries of our compaction items as messages; the same object if there are none."""
    if not any(_own_content(part) for message in request.messages for part in message.parts):
        return request
    return structs.replace(request, messages=tuple(_expanded(request.messages)))


def _expanded(messages: tuple[Message, ...]) -> Iterator[Message]:
    for message in messages:
        parts: list[Part] = []
        for part in message.parts:
            content = _own_content(part)
            if not content:
                parts.append(part)
                continue
            if parts:
                yield structs.replace(message, parts=tuple(parts))
                parts = []
            yield Message("user", (Text(_HEADING + decode_summary(content)),))
        if parts:
            yield structs.replace(message, parts=tuple(parts))


def _own_content(part: Part) -> str:
    """The content of a compaction item of ours; empty if the part is none."""
    data = part.data if type(part) is Native and part.origin == _FORMAT else None
    content = data.get("encrypted_content") if isinstance(data, dict) and data.get("type") == "compaction" else None
    return content if isinstance(content, str) and content.startswith(_MARK) else ""
