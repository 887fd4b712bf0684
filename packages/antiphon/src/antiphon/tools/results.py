"""Converts the return value of a tool to the parts that a model sees.

Every value becomes parts, and always the same parts for the same value: text as it is, parts as they are, pictures and
PDFs among bytes as what they are, everything else as JSON. In that JSON the order of mappings and fields is kept, sets are
sorted (their own order changes from process to process), numbers JSON does not have (NaN) are strings. An empty
result has a text of its own, because an empty text is not legal everywhere.

Text that is too long is cut in the middle, with a note of how much is missing: the head shows what it is, the tail how it ended.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import math
import reprlib
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence, ValuesView
from collections.abc import Set as AbstractSet
from enum import Enum
from typing import Any

import msgspec
from msgspec import Struct

from antiphon.media_types import sniff_bytes
from antiphon.parts import (
    Audio,
    Document,
    Image,
    Native,
    ResultPart,
    Text,
    ToolCallRequest,
    ToolCallResult,
    ToolExecutionStatus,
)
from antiphon.text import replace_lone_surrogates

NO_OUTPUT = "(no output)"
MAX_MEDIA_CHARACTERS = 20_000_000
"""How long the base64 of a picture, sound or document may be: about what the most generous provider takes."""

_PARTS = (Text, Image, Audio, Document, Native)
_TEXT_PARTS = (Text, Document)
_MEDIA = (Image, Audio, Document)
_BINARY_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf"})
"""The types of bytes that become an image or document; all others are text or a short description."""


def to_result(call: ToolCallRequest, value: Any) -> ToolCallResult:
    """The result of `call`, of whatever its tool returned. A returned exception or failed result is a failure."""
    if type(value) is str and value and value.isascii():  # what most tools return
        return ToolCallResult(call.tool_name, call.tool_call_id, content=(Text(value),))
    if isinstance(value, ToolCallResult):
        content = value.content or (Text(NO_OUTPUT),)
        return ToolCallResult(call.tool_name, call.tool_call_id, value.status, content, native=value.native)
    status = ToolExecutionStatus.FAILED if isinstance(value, BaseException) else ToolExecutionStatus.SUCCESS
    return ToolCallResult(call.tool_name, call.tool_call_id, status, as_content(value))


def is_plain_text(result: ToolCallResult) -> bool:
    """Whether a result is one ASCII text, as most are: it is stored and read back as it is."""
    if type(result.content) is not tuple or len(result.content) != 1 or type(result.content[0]) is not Text:
        return False
    text = result.content[0]
    return (
        type(text.text) is str
        and text.text.isascii()
        and text.native is None
        and text.source is None
        and type(result.tool_name) is str
        and result.tool_name.isascii()
        and type(result.status) is ToolExecutionStatus
        and result.native is None
        and result.source is None
    )


def as_content(value: Any) -> tuple[ResultPart, ...]:
    """A value as parts. There is always at least one."""
    if isinstance(value, str):
        return (Text(replace_lone_surrogates(value) if value else NO_OUTPUT),)
    if value is None:
        return (Text(NO_OUTPUT),)
    if isinstance(value, _PARTS):
        return (value,)
    if isinstance(value, bytes | bytearray | memoryview):
        return (_of_bytes(bytes(value)),)
    if isinstance(value, list | tuple) and any(isinstance(item, _PARTS) for item in value):
        return tuple(part for item in value for part in as_content(item))
    return (Text(replace_lone_surrogates(as_text(value))),)


def as_text(value: Any) -> str:
    """A value that is not text, as text: JSON if possible, else its `repr`."""
    if isinstance(value, BaseException):
        return exception_text(value)
    try:
        return _encoder.encode(value)
    except (TypeError, ValueError):
        # Keys that are not strings, numbers JSON does not have, or something that contains itself.
        pass
    except Exception as error:
        return _repr_fallback(value, error)
    try:
        return _encoder.encode(_plain_tree(value))
    except Exception as error:  # whatever the value's own code raises: the tool has done its work
        return _repr_fallback(value, error)


_MAX_TRACEBACK_CHARS = 8_000


def traceback_text(error: BaseException) -> str:
    """The traceback of an exception without the frames of this library; the end of it, if it is long."""
    try:
        own = traceback.TracebackException.from_exception(error, limit=-20)
        text = "".join(own.format())
    except Exception:  # an exception whose own code fails
        return ""
    return text if len(text) <= _MAX_TRACEBACK_CHARS else "…" + text[-_MAX_TRACEBACK_CHARS:]


def exception_text(error: BaseException) -> str:
    """The kind and words of an exception, without traceback; of a group, those of its members."""
    if isinstance(error, BaseExceptionGroup):
        members = [exception_text(member) for member in error.exceptions[:10]]
        left_out = len(error.exceptions) - len(members)
        more = [f"… and {left_out} more"] if left_out else []
        return f"{type(error).__name__}: {error.message}: " + "; ".join([*members, *more])
    try:
        words = str(error)
    except Exception:  # an exception whose own `str` fails
        words = ""
    return f"{type(error).__name__}: {words}" if words else type(error).__name__


def truncate_content(content: tuple[ResultPart, ...], limit: int) -> tuple[ResultPart, ...]:
    """The same parts if they fit; else with at most `limit` characters of text, and remarks for media no provider takes."""
    if len(content) == 1 and type(content[0]) is Text and len(content[0].text) <= limit:
        return content
    words = sum([len(part.text) for part in content if isinstance(part, _TEXT_PARTS)])
    if words <= limit and not any(map(_is_too_large, content)):
        return content
    kept: list[ResultPart] = []
    left = limit
    for part in content:
        if isinstance(part, _MEDIA) and _is_too_large(part):
            kind = type(part).__name__.lower()
            kept.append(Text(f"({kind} left out: {len(part.data):,} characters of data are more than a model takes)"))
        elif isinstance(part, _TEXT_PARTS) and len(part.text) > left:
            kept.append(msgspec.structs.replace(part, text=truncate_text(part.text, left)))
            left = 0
        else:
            kept.append(part)
            left -= len(part.text) if isinstance(part, _TEXT_PARTS) else 0
    return tuple(kept)


def truncate_text(text: str, limit: int) -> str:
    """The head and the tail of a text, and between them how much is missing."""
    if len(text) <= limit:
        return text
    # The mark takes room too, and its length depends on the number it states: every digit is written out first.
    room = max(0, limit - len(_mark(len(text), len(text))))
    tail = room // 3
    return text[: room - tail] + _mark(len(text) - room, len(text)) + (text[-tail:] if tail else "")


def _mark(omitted: int, characters: int) -> str:
    return f"\n\n[… {omitted:,} of {characters:,} characters omitted; request a smaller part …]\n\n"


def size_of(content: Iterable[ResultPart]) -> int:
    """How many characters the parts have, text and data."""
    size = 0
    for part in content:
        if isinstance(part, Text):
            size += len(part.text)
        elif isinstance(part, Native):
            size += len(as_text(part.data))
        else:
            size += len(part.data) + len(getattr(part, "text", "")) + len(part.url)
    return size


def _is_too_large(part: ResultPart) -> bool:
    return isinstance(part, _MEDIA) and len(part.data) > MAX_MEDIA_CHARACTERS


def _of_bytes(data: bytes) -> ResultPart:
    media_type = sniff_bytes(data)
    if media_type in _BINARY_TYPES and (len(data) * 4) // 3 <= MAX_MEDIA_CHARACTERS:
        encoded = base64.b64encode(data).decode()
        if media_type == "application/pdf":
            return Document(media_type=media_type, data=encoded)
        return Image(media_type=media_type, data=encoded)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return Text(f"({len(data):,} bytes of binary data, beginning with {data[:16].hex(' ')})")
    return Text(text or NO_OUTPUT)


def _to_json_value(value: Any) -> Any:
    """What json does not know, as something it does. It is called for one value at a time, and again for what is in it."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, AbstractSet):
        return sorted(value, key=_sort_key)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence | ValuesView) and not isinstance(value, bytes | bytearray | memoryview):
        return list(value)
    if isinstance(value, Struct):
        return _fields_of(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    if isinstance(value, BaseException):
        return exception_text(value)
    dump = getattr(type(value), "model_dump", None)
    if callable(dump):  # a pydantic model
        return dump(value, mode="json")
    try:
        return msgspec.to_builtins(value)  # dates, times, UUIDs, Decimals
    except (TypeError, ValueError):
        return _custom_str(value)


_encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_to_json_value)


def _plain_tree(value: Any) -> Any:
    """The whole value as what JSON has: every key a string, every number finite."""
    if isinstance(value, float) and not math.isfinite(value):
        return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, dict):
        return {_key(key): _plain_tree(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain_tree(item) for item in value]
    return _plain_tree(_to_json_value(value))


def _key(key: Any) -> str:
    return key if type(key) is str else _bare(as_text(key))


def _bare(text: str) -> str:
    return text[1:-1] if text.startswith('"') else text


def _fields_of(value: Struct) -> dict[str, Any]:
    config = value.__struct_config__
    fields: dict[str, Any] = {}
    if config.tag_field is not None:
        fields[config.tag_field] = config.tag
    for name, written in zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True):
        item = getattr(value, name)
        if item is not msgspec.UNSET:
            fields[written] = item
    return fields


def _sort_key(value: Any) -> tuple[str, Any]:
    # Numbers among themselves by size; what cannot be compared, by how it is written.
    return ("", value) if isinstance(value, int | float) else (type(value).__name__, as_text(value))


def _custom_str(value: Any) -> str:
    kind: Any = type(value)
    if isinstance(value, Iterator) and not hasattr(value, "read"):  # it may never end, so it is not read here
        return f"({kind.__name__} that was not read; the tool must return a list)"
    if kind.__str__ is object.__str__ and kind.__repr__ is object.__repr__:
        return f"({kind.__name__} object)"  # its repr is an address, and another one each time
    return str(value)


def _repr_fallback(value: Any, error: Exception) -> str:
    note = f"({type(value).__name__} that cannot be written as JSON: {type(error).__name__})"
    try:
        return f"{note} {reprlib.repr(value)}"
    except Exception:
        return note
