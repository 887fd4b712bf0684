"""Content blocks: text, images, audio, files, refusals, and Mistral's thinking.

A block is read into a neutral part only if its shape is exactly known; anything else stays a `Native` part and is written
back unchanged. Keys that a neutral part has no field for are kept in its `native`: under `openai` if Responses has them too,
else under `openai-chat`.

Normalisations: `image_url` as a string is `{"url": …}`; base64 data without a file name gets one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from antiphon.parts import Audio, Document, Image, InputPart, Native, NativeExtras, Refusal, Source, Text, Thinking
from antiphon.wire.capabilities import Capabilities, format_capabilities
from antiphon.wire.capabilities.accepted_media import Place, fit_medium, locate, omission_note
from antiphon.wire.loss import Losses, other_fields
from antiphon.wire.media import (
    audio_format,
    audio_media_type,
    data_url,
    file_name,
    inline_base64,
    is_web_url,
    looks_like_base64,
)
from antiphon.wire.native_as_text import readable_parts
from antiphon.wire.openai_chat import FORMAT
from antiphon.wire.openai_chat.dialects import RESPONSE_DIALECT, Dialect
from antiphon.wire.shared_openai import OPENAI, translate_citations, unread_fields

THINKING_BLOCK = Source(FORMAT, ("thinking",))
"""Of reasoning in a block of the content (Mistral), with the extras of that."""
ContentPart = InputPart | Refusal | Thinking
NAME = "Chat Completions"


def read_content(content: list[Any]) -> list[ContentPart]:
    return [read_part(part) for part in content]


def read_part(part: Any) -> ContentPart:
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
    return Text(text, native=unread_fields(part, FORMAT, ("type", "text"))) if type(text) is str else None


def _read_refusal(part: dict[str, Any]) -> Refusal | None:
    text = part.get("refusal")
    return Refusal(text, native=unread_fields(part, FORMAT, ("type", "refusal"))) if type(text) is str else None


def _read_image(part: dict[str, Any]) -> Image | None:
    image: Any = part.get("image_url")
    if type(image) is str:
        image = {"url": image}
    if type(image) is not dict or "detail" in part:
        return None
    url, native = image.get("url"), unread_fields(part, FORMAT, ("type", "image_url")) or {}
    if type(url) is not str:
        return None
    more = other_fields(image, ("url",))
    if type(more.get("detail")) is str:
        native.setdefault(OPENAI, {})["detail"] = more.pop("detail")
    if more:
        native.setdefault(FORMAT, {})["image_url"] = more
    return read_image_url(url, native or None)


def read_image_url(url: str, native: NativeExtras | None = None) -> Image | None:
    """The image at a URL, from its data if it is a data URL; None if it is not the URL of an image."""
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
    return Audio(media_type, data, native=unread_fields(part, FORMAT, ("type", "input_audio")))


def _read_file(part: dict[str, Any]) -> Document | None:
    file, native = part.get("file"), unread_fields(part, FORMAT, ("type", "file"))
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
    native = unread_fields(part, FORMAT, ("document_url", "document_name"))
    return Document(url=url, name=name or "", native=native)  # `type` is kept: it decides how it is written


def _read_thinking(part: dict[str, Any]) -> Thinking | None:
    pieces = part.get("thinking")
    if type(pieces) is not list or len(pieces) != 1 or type(pieces[0]) is not dict:
        return None
    text = pieces[0].get("text")
    if pieces != [{"type": "text", "text": text}] or type(text) is not str:
        return None
    more = other_fields(part, ("type", "thinking"))
    return Thinking(text, native={FORMAT: more} if more else None, source=THINKING_BLOCK)


def thinking_text(part: Any) -> str | None:
    """The text of a Mistral thinking block."""
    pieces = part.get("thinking") if type(part) is dict and part.get("type") == "thinking" else None
    if type(pieces) is not list:
        return None
    return "".join(piece["text"] for piece in pieces if type(piece) is dict and type(piece.get("text")) is str)


_READERS: dict[str, Callable[[dict[str, Any]], ContentPart | None]] = {
    "text": _read_text,
    "refusal": _read_refusal,
    "image_url": _read_image,
    "input_audio": _read_audio,
    "file": _read_file,
    "document_url": _read_document_url,
    "thinking": _read_thinking,
}


class PartWriter:
    """Writes content blocks for a host and a model; without a model (in a response) all media are accepted."""

    def __init__(self, losses: Losses, dialect: Dialect, model: Capabilities | None = None) -> None:
        self.losses = losses
        self.dialect = dialect
        self._model = model

    def write(self, part: Any, *, is_fitted: bool = False) -> list[Any]:
        """The blocks of a part: one, or none if the host does not accept it and the loss is reported."""
        losses = self.losses
        if type(part) is not Text and self._model is not None and not is_fitted:
            part = fit_medium(part, self._model, losses, self.dialect.kinds_of_any_type)
        kind = type(part)
        if kind is Native:
            if part.origin == FORMAT:
                return [part.data]
            if self.dialect is RESPONSE_DIALECT:  # the reader of an answer needs only its own text
                losses.add_foreign("native", part.origin)
                return []
            carried = readable_parts(part, losses, NAME)
            return [block for readable in carried for block in self.write(readable, is_fitted=is_fitted)]
        if kind not in _WRITERS:
            losses.add(kind.__name__, "not allowed in a message of this role; dropped")
            return []
        native = translate_citations(part.native, FORMAT) if kind is Text else part.native
        written = _WRITERS[kind](self, part, losses.take_extras(native, OPENAI, FORMAT))
        return [] if written is None else [written]

    def _text(self, part: Text, more: dict[str, Any]) -> dict[str, Any]:
        return {"type": "text", "text": part.text, **more}

    def _refusal(self, part: Refusal, more: dict[str, Any]) -> dict[str, Any]:
        return {"type": "refusal", "refusal": part.text, **more}

    def _image(self, part: Image, more: dict[str, Any]) -> dict[str, Any] | None:
        place, url, kind = locate(part, NAME, "data", "web")
        if place == "data":  # OC-13
            is_accepted = kind != "" and format_capabilities(FORMAT).accepts_image(kind.lower())
            if (is_accepted and looks_like_base64(url)) or (kind and self.dialect.accepts_any_image):
                url = data_url(kind, url)
            else:
                reason = f"OpenAI does not support {kind or 'an unknown image type'} (PNG, JPEG, GIF and WebP only)"
                place, url = "", f"{reason}; dropped (OC-13)"
        if not place:
            self.losses.add("image", url)
            return None
        image = {"url": url, **more.pop("image_url", {})}
        if "detail" in more:
            image["detail"] = more.pop("detail")
        return {"type": "image_url", "image_url": image, **more}

    def _audio(self, part: Audio, more: dict[str, Any]) -> dict[str, Any] | None:
        place, data, media_type = locate(part, NAME, "data")
        if not place:
            self.losses.add("audio", data)
            return None
        name = audio_format(media_type) or "wav"
        return {"type": "input_audio", "input_audio": {"data": data, "format": name}, **more}

    def _document(self, part: Document, more: dict[str, Any]) -> dict[str, Any] | None:
        accepts_urls = self.dialect.accepts_document_urls or more.get("type") == "document_url"
        places: tuple[Place, ...] = ("text", "url", "data", "file") if accepts_urls else ("text", "data", "file")
        place, value, kind = locate(part, NAME, *places)
        if place == "text":
            return {"type": "text", "text": f"{part.name}\n\n{value}" if part.name else value, **more}
        if part.media_type.startswith(("video/", "audio/")):
            reason = f"{part.media_type} is not supported"
            self.losses.add("document", f"{reason} in {NAME}; replaced by a note")
            return {"type": "text", "text": omission_note(part, reason)}
        if not place:
            self.losses.add("document", value)
            return None
        if place == "url":
            named = {"document_name": part.name} if part.name else {}
            return {**more, "type": "document_url", "document_url": value, **named}
        if place == "data":
            kind = kind or "application/pdf"
            file = {"filename": part.name or file_name(kind), "file_data": data_url(kind, value)}
        else:
            file = {"file_id": value, **({"filename": part.name} if part.name else {})}
        return {"type": "file", "file": file, **more}


_WRITERS: dict[type, Callable[[PartWriter, Any, dict[str, Any]], dict[str, Any] | None]] = {
    Text: PartWriter._text,
    Refusal: PartWriter._refusal,
    Image: PartWriter._image,
    Audio: PartWriter._audio,
    Document: PartWriter._document,
}


def canonical_json(value: Any) -> str:
    """Text as it is; any other value as JSON with sorted keys."""
    return value if type(value) is str else msgspec.json.encode(value, order="sorted").decode()
