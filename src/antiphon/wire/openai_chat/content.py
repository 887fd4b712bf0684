"""The parts of a message's content: text, images, sound, files, refusals, and Mistral's thinking.

Theory of operation. A part is read into a neutral one only if it is plainly what it says: anything odd, and every type this
module does not know, stays a `Native` part and goes back as it came. Keys beyond those a neutral part holds are kept in its
`native`: under `openai` what the Responses API understands too, under `openai-chat` the rest. Writing is the reverse; what
another format said about a part is reported as lost.

Normalisations: `image_url` as a string is `{"url": …}`; base64 data without a file name gets one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from antiphon.parts import Audio, Document, Image, InputPart, Native, NativeExtras, Refusal, Text, Thinking
from antiphon.wire.loss import Loss, own_extras
from antiphon.wire.media import (
    audio_format,
    audio_media_type,
    data_url,
    file_name,
    inline_base64,
    is_web_url,
    looks_like_base64,
    sniff_base64,
)
from antiphon.wire.openai_chat.dialects import Dialect
from antiphon.wire.vendors.openai import IMAGE_TYPES

FORMAT = "openai-chat"
SHARED = "openai"
"""Extras that both of OpenAI's formats understand."""

_SHARED_KEYS = ("prompt_cache_breakpoint", "detail")

ReadPart = InputPart | Refusal | Thinking


def extras(value: dict[str, Any], *known: str) -> NativeExtras | None:
    """What a part of the body says beyond the keys that are known."""
    own: dict[str, Any] = {}
    shared: dict[str, Any] = {}
    for key, extra in value.items():
        if key not in known and extra is not None:
            (shared if key in _SHARED_KEYS else own)[key] = extra
    native = {SHARED: shared} if shared else {}
    if own:
        native[FORMAT] = own
    return native or None


def read_content(content: list[Any]) -> list[ReadPart]:
    return [read_part(part) for part in content]


def read_part(part: Any) -> ReadPart:
    if type(part) is dict:
        if len(part) == 2 and part.get("type") == "text" and type(part.get("text")) is str:
            return Text(part["text"])
        kind = part.get("type")
        reader = _READERS.get(kind) if type(kind) is str else None
        read = reader(part) if reader is not None else None
        if read is not None:
            return read
    return Native(FORMAT, part)


def _read_text(part: dict[str, Any]) -> Text | None:
    text = part.get("text")
    return Text(text, native=extras(part, "type", "text")) if type(text) is str else None


def _read_refusal(part: dict[str, Any]) -> Refusal | None:
    text = part.get("refusal")
    return Refusal(text, native=extras(part, "type", "refusal")) if type(text) is str else None


def _read_image(part: dict[str, Any]) -> Image | None:
    image: Any = part.get("image_url")
    if type(image) is str:
        image = {"url": image}
    if type(image) is not dict or "detail" in part:
        return None
    url, native = image.get("url"), extras(part, "type", "image_url") or {}
    if type(url) is not str:
        return None
    more = {key: value for key, value in image.items() if key != "url" and value is not None}
    if type(more.get("detail")) is str:
        native.setdefault(SHARED, {})["detail"] = more.pop("detail")
    if more:
        native.setdefault(FORMAT, {})["image_url"] = more
    return picture(url, native or None)


def picture(url: str, native: NativeExtras | None = None) -> Image | None:
    """The image at an address: data URLs are taken apart. None if it is no address of an image."""
    if is_web_url(url):
        return Image(url=url, native=native)
    inline = inline_base64(url)
    if inline is None or not inline.media_type.startswith("image/") or not looks_like_base64(inline.data):
        return None
    return Image(inline.media_type, inline.data, native=native)


def _read_audio(part: dict[str, Any]) -> Audio | None:
    audio = part.get("input_audio")
    if type(audio) is not dict or len(audio) != 2:
        return None
    data, name = audio.get("data"), audio.get("format")
    if type(data) is not str or type(name) is not str:
        return None
    media_type = audio_media_type(name)
    if audio_format(media_type) != name:
        return None
    return Audio(media_type, data, native=extras(part, "type", "input_audio"))


def _read_file(part: dict[str, Any]) -> Document | None:
    file, native = part.get("file"), extras(part, "type", "file")
    if type(file) is not dict or not all(type(value) is str for value in file.values()):
        return None
    name, known = file.get("filename", ""), len(file) - ("filename" in file)
    if "filename" in file and not name:
        return None
    if known == 1 and file.get("file_id"):
        return Document(file_id=file["file_id"], name=name, native=native)
    inline = inline_base64(file.get("file_data", ""))
    if known == 1 and inline is not None:
        return Document(inline.media_type, inline.data, name=name, native=native)
    return None


def _read_document_url(part: dict[str, Any]) -> Document | None:
    url, name = part.get("document_url"), part.get("document_name")
    if type(url) is not str or not url or type(name) not in (str, type(None)):
        return None
    native = extras(part, "document_url", "document_name")
    return Document(url=url, name=name or "", native=native)  # `type` is kept: it says how to write it


def _read_thinking(part: dict[str, Any]) -> Thinking | None:
    pieces = part.get("thinking")
    if type(pieces) is not list or len(pieces) != 1 or type(pieces[0]) is not dict:
        return None
    text = pieces[0].get("text")
    if pieces != [{"type": "text", "text": text}] or type(text) is not str:
        return None
    more = {key: value for key, value in part.items() if key not in ("type", "thinking") and value is not None}
    return Thinking(text, native={FORMAT: {"field": "thinking", **({"part": more} if more else {})}})


def thinking_text(part: Any) -> str | None:
    """The words of a Mistral thinking part, of one piece or many."""
    pieces = part.get("thinking") if type(part) is dict and part.get("type") == "thinking" else None
    if type(pieces) is not list:
        return None
    return "".join(piece["text"] for piece in pieces if type(piece) is dict and type(piece.get("text")) is str)


_READERS: dict[str, Callable[[dict[str, Any]], ReadPart | None]] = {
    "text": _read_text,
    "refusal": _read_refusal,
    "image_url": _read_image,
    "input_audio": _read_audio,
    "file": _read_file,
    "document_url": _read_document_url,
    "thinking": _read_thinking,
}


def write_part(part: Any, losses: list[Loss], path: str, dialect: Dialect) -> list[Any]:
    """A part of a message's content, in a list; none if it cannot be said, and its losses are reported."""
    kind = type(part)
    if kind is Native:
        if part.origin == FORMAT:
            return [part.data]
        losses.append(Loss(path, "native", f"only {part.origin} understands this block"))
        return []
    written: dict[str, Any] | None = None
    if kind is Text:
        written = {"type": "text", "text": part.text, **own_extras(part.native, losses, path, SHARED, FORMAT)}
    elif kind is Refusal:
        written = {"type": "refusal", "refusal": part.text, **own_extras(part.native, losses, path, SHARED, FORMAT)}
    elif kind is Image:
        written = _write_image(part, losses, path, dialect)
    elif kind is Document:
        written = _write_document(part, losses, path, dialect)
    elif kind is Audio:
        written = _write_audio(part, losses, path)
    else:
        losses.append(Loss(path, kind.__name__, "it has no place in such a message"))
    return [] if written is None else [written]


def _write_image(part: Image, losses: list[Loss], path: str, dialect: Dialect) -> dict[str, Any] | None:
    more = own_extras(part.native, losses, path, SHARED, FORMAT)
    url, why = "", "no address"
    if part.data:  # what OpenAI takes an image by: OC-13
        kind = part.media_type or sniff_base64(part.data)
        if (kind.lower() in IMAGE_TYPES and looks_like_base64(part.data)) or (kind and dialect.takes_any_image):
            url = data_url(kind, part.data)
        why = f"only png, jpeg, gif and webp are taken, not {part.media_type or 'an unknown type'} (OC-13)"
    elif is_web_url(part.url):
        url = part.url
    elif part.file_id:
        why = "an image is taken by an http address or as data, not by a file's id"
    if not url:
        losses.append(Loss(path, "image", why))
        return None
    image = {"url": url, **more.pop("image_url", {})}
    if "detail" in more:
        image["detail"] = more.pop("detail")
    return {"type": "image_url", "image_url": image, **more}


def _write_audio(part: Audio, losses: list[Loss], path: str) -> dict[str, Any] | None:
    more = own_extras(part.native, losses, path, SHARED, FORMAT)
    if not part.data:
        losses.append(Loss(path, "audio", "sound is taken as data only"))
        return None
    name = audio_format(part.media_type) or "wav"
    return {"type": "input_audio", "input_audio": {"data": part.data, "format": name}, **more}


def _write_document(part: Document, losses: list[Loss], path: str, dialect: Dialect) -> dict[str, Any] | None:
    more = own_extras(part.native, losses, path, SHARED, FORMAT)
    if part.text:
        text = f"{part.name}\n\n{part.text}" if part.name else part.text
        return {"type": "text", "text": text, **more}
    if part.data:
        kind = part.media_type or "application/pdf"
        file = {"filename": part.name or file_name(kind), "file_data": data_url(kind, part.data)}
    elif part.file_id:
        file = {"file_id": part.file_id, **({"filename": part.name} if part.name else {})}
    elif part.url and (dialect.takes_document_urls or more.get("type") == "document_url"):
        named = {"document_name": part.name} if part.name else {}
        return {**more, "type": "document_url", "document_url": part.url, **named}
    else:
        why = "a file is taken as data or by its id, not by an address" if part.url else "there is nothing in it"
        losses.append(Loss(path, "document", why))
        return None
    return {"type": "file", "file": file, **more}


def stable_text(value: Any) -> str:
    """A value as text that is always the same for the same value."""
    return value if type(value) is str else msgspec.json.encode(value, order="sorted").decode()
