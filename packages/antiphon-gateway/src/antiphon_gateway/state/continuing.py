"""How a request continues what is stored: the fields that name it, and the messages that come before its own.

A client may send only what is new and name the response it continues (`previous_response_id`, or the field of its format in
`PREVIOUS_FIELDS`), a `conversation`, or an item of a response (`item_reference`). `instructions` do not carry over to the next
response, as with OpenAI. What is not stored is refused in OpenAI's words.

A compaction item of the gateway has a summary in `encrypted_content`, which clients keep and send back unread. In its place
`expand_compactions` puts the summary. So a compacted conversation works with every model, also after a restart, and nothing is
stored. The content is encoded, not encrypted: it is the client's own conversation.
"""

from __future__ import annotations

import binascii
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import structs

from antiphon.errors import UnknownResponse, WireError
from antiphon.parts import Native, OutputPart, Part, Refusal, Source, Text, Thinking, ToolCallRequest
from antiphon.wire.openai_responses.namespaces import mark_namespaces
from antiphon.wire.output import ProviderError
from antiphon.wire.provenance import is_from
from antiphon.wire.request import Message, ModelRequest

FORMAT = "openai-responses"
STATE_FIELDS = {
    "openai-responses": ("previous_response_id", "conversation"),
    "gemini-interactions": ("previous_interaction_id",),
}
"""The fields that name earlier messages which the gateway has stored, in formats whose server stores answers."""
PREVIOUS_FIELDS = {name: fields[0] for name, fields in STATE_FIELDS.items()}
"""The one that names the answer that a request continues."""
_PART_KINDS: dict[str, tuple[type, ...]] = {
    "message": (Text, Refusal),
    "function_call": (ToolCallRequest,),
    "custom_tool_call": (ToolCallRequest,),
    "reasoning": (Thinking,),
}


def should_store(request: ModelRequest) -> bool:
    """Whether the client may continue the response later, which is the default."""
    return request.store is not False


def previous_response_id(request: ModelRequest) -> str:
    """The id of the response that a request continues, in any format; empty if there is none."""
    return _previous(request)[1]


def _previous(request: ModelRequest) -> tuple[str, str]:
    """The field in which a request names what it continues, and what it names there; empty if it names nothing."""
    native = request.native or {}
    named = ((field, native[origin].get(field)) for origin, field in PREVIOUS_FIELDS.items() if origin in native)
    return next(((field, str(value)) for field, value in named if value), ("", ""))


def continue_from(request: ModelRequest, earlier: Sequence[Message]) -> ModelRequest:
    """The request with earlier messages before its own, and without the field that named them."""
    leading = _instructions(request)
    native = dict(request.native or {})
    for origin, fields in STATE_FIELDS.items():
        extras = {name: value for name, value in native.pop(origin, {}).items() if name not in fields}
        if extras:
            native[origin] = extras
    messages = (*leading, *earlier, *own_messages(request))
    return mark_namespaces(structs.replace(request, messages=messages, native=native or None))


def own_messages(request: ModelRequest) -> tuple[Message, ...]:
    """The messages of a request without its instructions, so that they can follow or precede others."""
    return _mark_leading_system(request.messages[len(_instructions(request)) :])


def to_provider_error(unknown: UnknownResponse) -> ProviderError:
    """The error in the words of the API."""
    return ProviderError(str(unknown), "invalid_request", unknown.status, unknown.code, unknown.param)


def unknown_answer(response_id: str) -> UnknownResponse:
    return UnknownResponse(f"Response with id '{response_id}' not found.")


def unknown_previous(request: ModelRequest) -> UnknownResponse:
    """What a request continues is not stored."""
    field, response_id = _previous(request)
    if field != PREVIOUS_FIELDS[FORMAT]:
        return UnknownResponse(
            f"{field}: '{response_id}' not found; send the earlier steps in input", status=400, param=field
        )
    return UnknownResponse(
        f"Previous response with id '{response_id}' not found.",
        status=400,
        code="previous_response_not_found",
        param=field,
    )


def _instructions(request: ModelRequest) -> tuple[Message, ...]:
    """The leading message that is not an item: `instructions`. Items that come first have a source (see the format's `items`)."""
    first = request.messages[:1]
    return first if first and first[0].role == "system" and not is_from(first[0], FORMAT) else ()


def _mark_leading_system(items: tuple[Message, ...]) -> tuple[Message, ...]:
    """The same items; a system message that now comes first is marked, so that it is not read as instructions."""
    first = items[:1]
    if not first or first[0].role != "system" or is_from(first[0], FORMAT):
        return items
    return structs.replace(first[0], source=Source(FORMAT)), *items[1:]


def item_reference(part: Part) -> str | None:
    """The id of the item that a part refers to."""
    data = part.data if isinstance(part, Native) and part.origin == FORMAT else None
    if not isinstance(data, dict) or data.get("type", "item_reference") != "item_reference":
        return None
    item = data.get("id")
    return item if isinstance(item, str) else None


def has_references(message: Message) -> bool:
    return any(item_reference(part) is not None for part in message.parts)


def item_spans(body: Any, parts: Sequence[OutputPart]) -> Iterator[tuple[str, int, int]]:
    """The parts of each item of a response: its id, the first part, and the one after the last."""
    place = 0
    for item in body.get("output") or () if isinstance(body, dict) else ():
        fields = item if isinstance(item, dict) else {}
        kinds = _PART_KINDS.get(str(fields.get("type")), (Native,))
        content = fields.get("content")
        count = len(content) if fields.get("type") == "message" and isinstance(content, list) else 1
        while place < len(parts) and not isinstance(parts[place], kinds):
            place += 1  # a part that the format cannot express has no item
        if place + count > len(parts):
            return
        if isinstance(fields.get("id"), str):
            yield fields["id"], place, place + count
        place += count


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
    data = part.data if type(part) is Native and part.origin == FORMAT else None
    content = data.get("encrypted_content") if isinstance(data, dict) and data.get("type") == "compaction" else None
    return content if isinstance(content, str) and content.startswith(_MARK) else ""
