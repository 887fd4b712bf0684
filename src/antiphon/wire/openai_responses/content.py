"""Content parts: what stands in the `content` of a message item and in the `output` of a tool's answer.

Theory of operation. A part is read by its `type` into the neutral part of its kind; what it says beyond that goes into the
part's `native`, under "openai" where Chat Completions says it with the same word and under "openai-responses" otherwise. A
part that cannot be read whole (unknown type, two sources of one image, a number where text should be) is kept as `Native`.
Writing is the mirror. A part that the format cannot say is a `Loss`, and None is returned for it.
"""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from collections.abc import Callable, Container, Iterator
from typing import Any, TypeAlias

from antiphon.parts import Audio, Document, Image, InputPart, Native, NativeExtras, Part, Refusal, Text
from antiphon.wire.loss import Loss, own_extras
from antiphon.wire.media import (
    audio_format,
    audio_media_type,
    data_url,
    file_name,
    inline_base64,
    is_web_url,
    media_type_of_url,
)

FORMAT = "openai-responses"
SHARED = "openai"
"""The origin of extras that both OpenAI formats understand."""

Body: TypeAlias = dict[str, Any]

_SHARED_FIELDS = frozenset({"detail", "prompt_cache_breakpoint"})
_AUDIO_FORMATS = ("mp3", "wav")


def is_recording(url: str) -> bool:
    """Whether a URL is of audio or video, which is refused as a file (OR-05)."""
    return is_web_url(url) and media_type_of_url(url).startswith(("audio/", "video/"))


def extras_of(given: Body, known: Container[str]) -> NativeExtras | None:
    """What is said beyond the known fields, as native extras. Null counts as not said."""
    own: Body = {}
    shared: Body = {}
    for field, value in given.items():
        if field not in known and value is not None:
            (shared if field in _SHARED_FIELDS else own)[field] = value
    return natives(own, shared)


def natives(own: Body, shared: Body) -> NativeExtras | None:
    native: NativeExtras = {}
    if own:
        native[FORMAT] = own
    if shared:
        native[SHARED] = shared
    return native or None


def read_input(part: Any) -> InputPart:
    """A part of a user's, system's or developer's message, or of a tool's answer."""
    kind = part.get("type") if type(part) is dict else None
    found = _READERS[kind](part) if type(kind) is str and kind in _READERS else None
    return found or Native(FORMAT, part)


def _read_text(part: Body) -> Text | None:
    text = part.get("text")
    # A model's text where a user's is expected: the API takes it (OR-23), so its type is kept.
    known = ("type", "text") if part["type"] == "input_text" else ("text",)
    return Text(text, native=extras_of(part, known)) if type(text) is str else None


def _read_image(part: Body) -> Image | None:
    url, file_id = part.get("image_url"), part.get("file_id")
    native = extras_of(part, ("type", "image_url", "file_id"))
    if type(url) is str and url and file_id is None:
        inline = inline_base64(url)
        if inline and inline.data:
            return Image(inline.media_type, inline.data, native=native)
        return Image(url=url, native=native)
    if type(file_id) is str and file_id and url is None:
        return Image(file_id=file_id, native=native)
    return None


def _read_file(part: Body) -> Document | None:
    sources = [field for field in ("file_data", "file_url", "file_id") if part.get(field) is not None]
    name = part.get("filename") or ""
    if len(sources) != 1 or type(name) is not str:
        return None
    source = part[sources[0]]
    if type(source) is not str or not source:
        return None
    native = extras_of(part, ("type", "filename", sources[0]))
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
    try:
        text = b64decode(data, validate=True).decode()
    except (binascii.Error, ValueError):
        return None
    return text if b64encode(text.encode()).decode() == data else None


def _read_sound(part: Body) -> Audio | None:
    sound = part.get("input_audio")
    if type(sound) is not dict or len(sound) != 2 or len(part) != 2:
        return None
    data, kind = sound.get("data"), sound.get("format")
    if type(data) is str and data and type(kind) is str and kind in _AUDIO_FORMATS:
        # The empty extras say that it came from here, where one host may take what OpenAI refuses.
        return Audio(audio_media_type(kind), data, native={FORMAT: {}})
    return None


_READERS: dict[str, Callable[[Body], InputPart | None]] = {
    "input_text": _read_text,
    "output_text": _read_text,
    "input_image": _read_image,
    "input_file": _read_file,
    "input_audio": _read_sound,
}


def write_input(part: Part, losses: list[Loss], path: str) -> list[Body]:
    """A part of a message that is not the model's, or of a tool's answer, in a list; none if it cannot be said."""
    body: Body | None
    if isinstance(part, Native):
        if part.origin == FORMAT and part.data is not None:
            return [part.data]
        why = f"only {part.origin} can say it" if part.origin != FORMAT else "null is no part of a message"
        losses.append(Loss(path, kind_of(part), why))
        return []
    if isinstance(part, Text | Refusal):
        body = {"type": "input_text", "text": part.text}
        if isinstance(part, Refusal):
            losses.append(Loss(path, "refusal", "only an assistant refuses; it is sent as text"))
    elif isinstance(part, Image):
        body = _write_image(part)
    elif isinstance(part, Document):
        body = _write_document(part)
    elif isinstance(part, Audio):
        body = _write_sound(part)
    else:
        losses.append(Loss(path, type(part).__name__, "it has no place in this message"))
        return []
    if body is None:
        losses.append(Loss(path, type(part).__name__.lower(), "OpenAI Responses does not take it"))
        return []
    return [{**body, **own_extras(part.native, losses, path, SHARED, FORMAT)}]


def texts_of(items: Any) -> Iterator[str]:
    """What is said in the input of a body, whoever says it."""
    if isinstance(items, str):
        yield items
    for item in items if isinstance(items, list) else ():
        content = (item.get("content") or item.get("output")) if isinstance(item, dict) else None
        if isinstance(content, str):
            yield content
        for part in content if isinstance(content, list) else ():
            if isinstance(part, dict) and isinstance(part.get("text"), str):
                yield part["text"]


def kind_of(native: Native) -> str:
    """What to call a native block in a loss."""
    data = native.data
    kind = data.get("type") if isinstance(data, dict) else None
    return kind if isinstance(kind, str) else "block"


def _write_image(image: Image) -> Body | None:
    if image.data:
        return {"type": "input_image", "image_url": data_url(image.media_type or "image/png", image.data)}
    if image.url:
        return {"type": "input_image", "image_url": image.url}
    return {"type": "input_image", "file_id": image.file_id} if image.file_id else None


def _write_document(document: Document) -> Body | None:
    kind, data = document.media_type, document.data
    body: Body = {"type": "input_file"}
    if document.text and not data:
        kind, data = kind or "text/plain", b64encode(document.text.encode()).decode()
    if data:
        kind = kind or "application/pdf"
        if kind.startswith(("audio/", "video/")) or "," in kind or len(kind) > 48:
            return None  # refused as file data (OR-05)
        # File data needs a name (OR-05).
        return {**body, "filename": document.name or file_name(kind), "file_data": data_url(kind, data)}
    if document.name:
        body["filename"] = document.name
    if document.url and not is_recording(document.url):
        return {**body, "file_url": document.url}
    return {**body, "file_id": document.file_id} if document.file_id else None


def _write_sound(sound: Audio) -> Body | None:
    """Sound that was read from this format goes back to it; OpenAI refuses any other."""
    kind = audio_format(sound.media_type)
    if sound.native is None or FORMAT not in sound.native or kind not in _AUDIO_FORMATS:
        return None
    return {"type": "input_audio", "input_audio": {"data": sound.data, "format": kind}}


_OUTPUT_TEXT = ("type", "text")
_OFTEN_EMPTY = ("annotations", "logprobs")
_REFUSAL = ("type", "refusal")


def read_output(part: Any) -> Text | Refusal | None:
    """A part of the model's own message; None if it cannot be read as one."""
    if type(part) is not dict or "item" in part:  # that name is taken, for the fields of the item
        return None
    if part.get("type") == "output_text" and type(part.get("text")) is str:
        unmarked = (part.get("annotations") == []) + (part.get("logprobs") == [])
        if len(part) == 2 + unmarked:
            return Text(part["text"])
        known = [*_OUTPUT_TEXT, *(field for field in _OFTEN_EMPTY if part.get(field) == [])]
        return Text(part["text"], native=extras_of(part, known))
    if part.get("type") == "refusal" and type(part.get("refusal")) is str:
        return Refusal(part["refusal"], native=extras_of(part, _REFUSAL))
    return None


def write_output(part: Text | Refusal, losses: list[Loss], path: str, *, whole: bool) -> Body:
    """A part of the model's own message; `whole` parts have every field a client may look for."""
    body: Body
    if isinstance(part, Refusal):
        body = {"type": "refusal", "refusal": part.text}
    elif whole:
        body = {"type": "output_text", "annotations": [], "logprobs": [], "text": part.text}
    else:
        body = {"type": "output_text", "text": part.text}
    body.update(own_extras(part.native, losses, path, SHARED, FORMAT))
    body.pop("item", None)
    return body
