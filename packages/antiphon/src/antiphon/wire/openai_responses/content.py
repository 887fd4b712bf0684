"""Content parts and the model's items, read and written.

A part is read by its `type` into the neutral part of its kind; other fields go into its `native`, under "openai" if Chat
Completions has them too, else under "openai-responses". A part of unknown shape stays `Native`.

Consecutive items of the model are one assistant turn. Its message items have their own fields as the extra `item` of their first
part: a text with that extra starts an item, any other text continues the one before. Items of a response have every field that
clients may look for; generated ids are never sent to an API. Reasoning of another origin is written as a summary; its
signature is a loss.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from msgspec import UNSET

from antiphon.parts import (
    Audio,
    Document,
    Image,
    InputPart,
    Native,
    OutputPart,
    Part,
    Refusal,
    Source,
    Text,
    Thinking,
    ToolCallRequest,
)
from antiphon.wire.capabilities import Capabilities, format_capabilities
from antiphon.wire.capabilities.accepted_media import fit_medium, locate, omission_note
from antiphon.wire.loss import Losses
from antiphon.wire.media import (
    audio_format,
    audio_media_type,
    data_url,
    decode_text,
    file_name,
    inline_base64,
    is_web_url,
    media_type_of_url,
    parse_data_url,
)
from antiphon.wire.native_as_text import readable_parts, transcribe
from antiphon.wire.openai_responses import FORMAT
from antiphon.wire.openai_responses.item_ids import IdGenerator
from antiphon.wire.openai_responses.limits import REFUSED_FILES
from antiphon.wire.openai_responses.shapes import ITEMS, Item, fields_of, other_field, shape_of, value_of
from antiphon.wire.provenance import is_from
from antiphon.wire.shared_openai import OPENAI, translate_citations, unread_fields

NAME = "OpenAI Responses"
MESSAGE_FIELDS = frozenset({"type", "role", "content"})
_AUDIO_FORMATS = ("mp3", "wav")
_OUTPUT_TEXT = ("type", "text")
_OFTEN_EMPTY = ("annotations", "logprobs")
_REFUSAL = ("type", "refusal")


def is_refused_file_url(url: str) -> bool:
    """Whether a URL is of a type that is refused as a file (OR-05)."""
    return is_web_url(url) and media_type_of_url(url).startswith(REFUSED_FILES)


def read_input_part(part: Any) -> InputPart:
    """A part of a user's, system's or developer's message, or of a tool result."""
    kind = part.get("type") if type(part) is dict else None
    read = _READERS[kind](part) if type(kind) is str and kind in _READERS else None
    return read or Native(FORMAT, part)


def _read_text(part: dict[str, Any]) -> Text | None:
    text = part.get("text")
    # The API accepts the model's text type in a user's message (OR-23), so the type is kept.
    known = ("type", "text") if part["type"] == "input_text" else ("text",)
    return Text(text, native=unread_fields(part, FORMAT, known)) if type(text) is str else None


def _read_image(part: dict[str, Any]) -> Image | None:
    url, file_id = part.get("image_url"), part.get("file_id")
    native = unread_fields(part, FORMAT, ("type", "image_url", "file_id"))
    if type(url) is str and url and file_id is None:
        inline = inline_base64(url)
        if inline and inline.data:
            return Image(inline.media_type, inline.data, native=native)
        return Image(url=url, native=native)
    if type(file_id) is str and file_id and url is None:
        return Image(file_id=file_id, native=native)
    return None


def _read_file(part: dict[str, Any]) -> Document | None:
    sources = [field for field in ("file_data", "file_url", "file_id") if part.get(field) is not None]
    name = part.get("filename") or ""
    if len(sources) != 1 or type(name) is not str:
        return None
    source = part[sources[0]]
    if type(source) is not str or not source:
        return None
    native = unread_fields(part, FORMAT, ("type", "filename", sources[0]))
    if sources[0] == "file_url":
        return Document(url=source, name=name, native=native)
    if sources[0] == "file_id":
        return Document(file_id=source, name=name, native=native)
    inline = inline_base64(source)
    if inline is None or not inline.data:
        return None
    text = _plain_text(inline.data) if inline.media_type == "text/plain" else None
    if text:
        return Document("text/plain", text=text, name=name, native=native)
    return Document(inline.media_type, inline.data, name=name, native=native)


def _plain_text(data: str) -> str | None:
    """Base64 as text, if encoding that text gives the same base64 again."""
    text = decode_text(data)
    return text if b64encode(text.encode()).decode() == data else None


def _read_audio(part: dict[str, Any]) -> Audio | None:
    audio = part.get("input_audio")
    if type(audio) is not dict or len(audio) != 2 or len(part) != 2:
        return None
    data, kind = audio.get("data"), audio.get("format")
    if type(data) is str and data and type(kind) is str and kind in _AUDIO_FORMATS:
        # The empty extras mark audio of this format: a host may accept what OpenAI refuses.
        return Audio(audio_media_type(kind), data, source=Source(FORMAT))
    return None


_READERS: dict[str, Callable[[dict[str, Any]], InputPart | None]] = {
    "input_text": _read_text,
    "output_text": _read_text,
    "input_image": _read_image,
    "input_file": _read_file,
    "input_audio": _read_audio,
}


def write_input_part(part: Part, losses: Losses, model: Capabilities | None = None) -> list[dict[str, Any]]:
    """The content of a client's message or a tool result: one part, or none if it is not accepted."""
    body: dict[str, Any] | None
    if not isinstance(part, Text):
        part = fit_medium(part, model, losses)
    if isinstance(part, Native):
        if part.origin == FORMAT and part.data is not None:
            return [part.data]
        if part.origin == FORMAT:
            losses.add(block_type(part), "null content; dropped")
            return []
        return [
            body
            for readable in readable_parts(part, losses, NAME)
            for body in write_input_part(readable, losses, model)
        ]
    if isinstance(part, Text | Refusal):
        body = {"type": "input_text", "text": part.text}
        if isinstance(part, Refusal):
            losses.add("refusal", "refusals are allowed only in assistant messages; sent as text")
    elif isinstance(part, Image):
        body = _write_image(part)
    elif isinstance(part, Document):
        body = _write_document(part)
    elif isinstance(part, Audio):
        body = _write_audio(part)
    else:
        losses.add(type(part).__name__, "not allowed in a message of this role; dropped")
        return []
    if body is None:
        kind = type(part).__name__.lower()
        if isinstance(part, Image | Audio | Document) and (part.data or part.url):
            losses.add(kind, "not supported by OpenAI Responses; replaced by a note")
            return [{"type": "input_text", "text": omission_note(part, "not supported here")}]
        losses.add(kind, "not supported by OpenAI Responses; dropped")
        return []
    return [{**body, **losses.take_extras(part.native, OPENAI, FORMAT)}]


def block_type(native: Native) -> str:
    """The type of a native block, for losses."""
    data = native.data
    kind = data.get("type") if isinstance(data, dict) else None
    return kind if isinstance(kind, str) else "block"


def _write_image(image: Image) -> dict[str, Any] | None:
    place, value, kind = locate(image, NAME, "url", "data", "file")
    if place == "data":
        kind = kind or "image/png"
        if not is_from(image, FORMAT) and not format_capabilities(FORMAT).accepts_image(kind):
            return None
        value = data_url(kind, value)
    return {"type": "input_image", "file_id" if place == "file" else "image_url": value} if place else None


def _write_document(document: Document) -> dict[str, Any] | None:
    place, value, kind = locate(document, NAME, "data", "text", "url", "file")
    body: dict[str, Any] = {"type": "input_file"}
    if place in ("data", "text"):
        if place == "text":
            kind, value = kind or "text/plain", b64encode(value.encode()).decode()
        kind = kind or "application/pdf"
        file_data = data_url(kind, value)
        parsed = parse_data_url(file_data)
        if kind.startswith(REFUSED_FILES) or parsed is None or not parsed.is_base64:
            return None  # refused as file data (OR-05)
        # File data needs a name (OR-05).
        return {**body, "filename": document.name or file_name(kind), "file_data": file_data}
    if place == "url" and (kind.startswith(REFUSED_FILES) or is_refused_file_url(value) or value.startswith("data:")):
        return None
    if document.name:
        body["filename"] = document.name
    return {**body, f"file_{'id' if place == 'file' else 'url'}": value} if place else None


def _write_audio(audio: Audio) -> dict[str, Any] | None:
    """Audio read from this format is written back; OpenAI refuses any other."""
    kind = audio_format(audio.media_type)
    if not is_from(audio, FORMAT) or kind not in _AUDIO_FORMATS:
        return None
    return {"type": "input_audio", "input_audio": {"data": audio.data, "format": kind}}


def read_output_part(part: Any) -> Text | Refusal | None:
    """A part of the model's own message; None if it cannot be read as one."""
    if type(part) is not dict or "item" in part:  # reserved for the fields of the item
        return None
    if part.get("type") == "output_text" and type(part.get("text")) is str:
        unmarked = (part.get("annotations") == []) + (part.get("logprobs") == [])
        if len(part) == 2 + unmarked:
            return Text(part["text"])
        known = [*_OUTPUT_TEXT, *(field for field in _OFTEN_EMPTY if part.get(field) == [])]
        return Text(part["text"], native=unread_fields(part, FORMAT, known))
    if part.get("type") == "refusal" and type(part.get("refusal")) is str:
        return Refusal(part["refusal"], native=unread_fields(part, FORMAT, _REFUSAL))
    return None


def write_output_part(part: Text | Refusal, losses: Losses, *, complete: bool) -> dict[str, Any]:
    """A part of the model's own message; `complete`: with every field that clients may look for."""
    body: dict[str, Any]
    if isinstance(part, Refusal):
        body = {"type": "refusal", "refusal": part.text}
    elif complete:
        body = {"type": "output_text", "annotations": [], "logprobs": [], "text": part.text}
    else:
        body = {"type": "output_text", "text": part.text}
    body.update(losses.take_extras(translate_citations(part.native, FORMAT), OPENAI, FORMAT))
    body.pop("item", None)
    return body


def read_model_item(turn: list[Any], item: Any) -> None:
    """Append the parts of an item of the model to its turn; the item is of plain values."""
    add_model_item(turn, ITEMS.fit(item))


def add_model_item(turn: list[Any], item: Any) -> None:
    """The same for the shape of an item."""
    shape = shape_of(item)
    kind = None if shape is None else shape.type
    is_read = False
    if shape is not None:
        if kind == "function_call":
            is_read = add_call(turn, item, shape, shape.arguments, _CALL_FIELDS)
        elif kind == "custom_tool_call":
            is_read = add_call(turn, item, shape, other_field(item, "input"), _CUSTOM_CALL_FIELDS)
        elif kind == "reasoning":
            is_read = type(shape.summary) is list
            if is_read:
                own = fields_of(item, ("type",))
                turn.append(Thinking(reasoning_text(own), native={FORMAT: own}))
        elif kind == "message" and shape.role in ("assistant", None, UNSET):
            is_read = add_assistant_item(turn, item, shape)
    if not is_read:
        turn.append(Native(FORMAT, value_of(item)))


_CALL_FIELDS = frozenset({"type", "call_id", "name", "arguments"})
_CUSTOM_CALL_FIELDS = frozenset({"type", "call_id", "name", "input"})


def add_call(turn: list[Any], item: Any, shape: Item, text: Any, known: frozenset[str]) -> bool:
    """Add a call to its turn; False if it cannot be read. `known` are the fields that the part has."""
    call_id, name, freeform = shape.call_id, shape.name, known is _CUSTOM_CALL_FIELDS
    if type(call_id) is not str or type(name) is not str or type(text) is not str:
        return False
    own = fields_of(item, known)
    if "id" not in own and turn and type(turn[-1]) is Thinking and _must_keep_missing_id(turn):
        own["id"] = None
    # No arguments at all mean an empty object.
    arguments = text if freeform else text or "{}"
    turn.append(ToolCallRequest(name, call_id, arguments, freeform, native={FORMAT: own} if own else None))
    return True


def add_assistant_item(turn: list[Any], item: Any, shape: Item) -> bool:
    """Read a message item of the model into its turn; False if its content is empty or unknown."""
    content = shape.content
    if type(content) is str:
        parts: list[Text | Refusal | None] = [Text(content)]
    elif type(content) is list and content:
        parts = [read_output_part(part) for part in content]
        if not all(parts):
            return False
    else:
        return False
    last = turn[-1] if turn else None
    fields = {name: value for name, value in fields_of(item, MESSAGE_FIELDS).items() if value is not None}
    if last is not None and type(last) is Thinking and "id" not in fields and _must_keep_missing_id(turn):
        fields["id"] = None
    if fields or type(last) is Text or type(last) is Refusal:
        first: Any = parts[0]
        own = {"item": fields}
        native = (
            {FORMAT: own} if first.native is None else {**first.native, FORMAT: {**own, **first.native.get(FORMAT, {})}}
        )
        parts[0] = type(first)(first.text, native=native)
    turn.extend(parts)
    return True


def _must_keep_missing_id(turn: list[Any]) -> bool:
    """Whether the last item is reasoning with an id, so that a missing id of the next must be kept (OR-21)."""
    last = turn[-1] if turn else None
    return isinstance(last, Thinking) and (last.native or {}).get(FORMAT, {}).get("id") is not None


def reasoning_text(item: dict[str, Any]) -> str:
    """The text of a reasoning item: its content, or else its summary."""
    for field in ("content", "summary"):
        parts = item.get(field)
        if type(parts) is list and parts:
            texts = [part.get("text") for part in parts if type(part) is dict]
            readable = [text for text in texts if type(text) is str]
            if readable:
                return "\n\n".join(readable)
    return ""


def write_output_items(parts: Sequence[OutputPart], losses: Losses) -> list[Any]:
    ids = IdGenerator()
    items: list[Any] = []
    texts: list[Text | Refusal] = []  # the content of one message item
    for index, part in enumerate((*parts, None)):
        if texts and (not isinstance(part, Text | Refusal) or starts_new_item(part)):
            losses.part = index - len(texts)
            items.append(message_item(texts, ids.new("message"), losses))
            texts = []
        losses.part = index
        if isinstance(part, Text | Refusal):
            texts.append(part)
        elif part is not None:
            items.extend(write_item(part, ids, losses))
    losses.part = -1
    return items


def write_item(part: OutputPart, ids: IdGenerator, losses: Losses) -> Iterator[Any]:
    """The item of a part other than text; none if the format has no such item."""
    transcript = transcribe(part, losses)
    if transcript is not part and isinstance(transcript, Text):
        yield message_item([transcript], ids.new("message"), losses)
    elif isinstance(part, ToolCallRequest):
        yield call_item(part, ids.new("custom_tool_call" if part.freeform else "function_call"), losses)
    elif isinstance(part, Thinking):
        yield reasoning_item(part, ids.new("reasoning"), losses)
    elif isinstance(part, Native) and part.origin == FORMAT:
        yield part.data
    elif isinstance(part, Native):
        losses.add_foreign(block_type(part), part.origin)
    else:
        losses.add(type(part).__name__.lower(), "a response of OpenAI Responses holds only text and calls; dropped")


def starts_new_item(part: Text | Refusal) -> bool:
    """Whether a text that follows another starts a message item of its own."""
    return bool(part.native) and "item" in (part.native or {}).get(FORMAT, {})


def item_id(part: OutputPart) -> str | None:
    """The id that the item of a part has from this API."""
    fields = _own_fields(part)
    known = fields.get("item", {}).get("id") if isinstance(part, Text | Refusal) else fields.get("id")
    return known if isinstance(known, str) and known else None


def message_item(parts: Sequence[Text | Refusal], new_id: str, losses: Losses) -> dict[str, Any]:
    """The message item with these parts as content."""
    content = [write_output_part(part, losses, complete=True) for part in parts]
    fields = _own_fields(parts[0]).get("item", {})
    known = {field: value for field, value in fields.items() if value is not None}
    return {"id": new_id, "type": "message", "status": "completed", **known, "role": "assistant", "content": content}


def call_item(call: ToolCallRequest, new_id: str, losses: Losses) -> dict[str, Any]:
    item: dict[str, Any] = {
        "id": new_id,
        "type": "custom_tool_call" if call.freeform else "function_call",
        "status": "completed",
        "call_id": call.tool_call_id,
        "name": call.tool_name,
        "input" if call.freeform else "arguments": call.arguments,
    }
    _add_own(item, call, losses)
    return item


def reasoning_item(thinking: Thinking, new_id: str, losses: Losses) -> dict[str, Any]:
    item: dict[str, Any] = {"id": new_id, "type": "reasoning"}
    _add_own(item, thinking, losses)
    if not isinstance(item.get("summary"), list):
        item["summary"] = [{"type": "summary_text", "text": thinking.text}] if thinking.text else []
    return item


def _own_fields(part: OutputPart) -> dict[str, Any]:
    native = None if isinstance(part, Native) else part.native
    return native.get(FORMAT, {}) if native else {}


def _add_own(item: dict[str, Any], part: ToolCallRequest | Thinking, losses: Losses) -> None:
    if part.native:
        losses.report_extras(part.native, FORMAT, OPENAI)
        own = part.native.get(FORMAT, {})
        item.update(own if own.get("id") else {field: value for field, value in own.items() if field != "id"})
