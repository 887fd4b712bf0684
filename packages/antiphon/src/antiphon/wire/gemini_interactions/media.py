"""Media of the Interactions API: `image`, `audio`, `document` and `video` contents, as base64 `data` or by `uri`.

Each kind has a closed list of MIME types (GI-06). A video is a `Document` with a video type, since there is no neutral part for
it. Contents with another type than their kind, with both sources or with none stay `Native`. A document that is text is sent
as text.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from antiphon.parts import Audio, Document, Image, Source
from antiphon.wire.capabilities.accepted_media import locate
from antiphon.wire.gemini_interactions import FORMAT
from antiphon.wire.gemini_interactions.limits import media_types
from antiphon.wire.loss import Loss, other_fields, own_extras
from antiphon.wire.media import media_type_of_url, same_media_types
from antiphon.wire.provenance import is_spelled, with_source
from antiphon.wire.vendors.google import read_base64, write_base64

Media: TypeAlias = Image | Audio | Document

_DEFAULTS = {"image": "image/png", "audio": "audio/wav", "document": "application/pdf", "video": "video/mp4"}
_READ_FIELDS = frozenset({"type", "data", "uri", "mime_type"})


def read_media(content: dict[str, Any]) -> Media | None:
    """A medium; None if it is malformed."""
    kind, media_type = content["type"], content.get("mime_type")
    data, uri = content.get("data"), content.get("uri")
    if media_type is not None and (type(media_type) is not str or media_type not in media_types(kind)):
        return None
    source = data if uri is None else uri
    if type(source) is not str or not source or source.startswith("data:") or (data is not None and uri is not None):
        return None
    extras = other_fields(content, _READ_FIELDS)
    spelling: list[str] = []
    if media_type is None:
        spelling.append("untyped")
        if kind == "video":
            spelling.append("video")
    if uri is None and not source.isascii():
        return None
    fields: dict[str, Any] = {"url": uri} if uri is not None else {"data": read_base64(source, spelling)}
    fields["native"] = {FORMAT: extras} if extras else None
    fields["source"] = Source(FORMAT, tuple(spelling)) if spelling else None
    if kind == "image":
        return Image(media_type or "", **fields)
    return Audio(media_type or "", **fields) if kind == "audio" else Document(media_type or "", **fields)


def write_media(part: Media, losses: list[Loss], path: str) -> dict[str, Any] | None:
    """The content for a medium; None, and a loss, if the API does not accept it."""
    part = with_source(part)
    place, value, media_type = locate(part, "the Interactions API", "data", "text", "address")
    if place == "text" and isinstance(part, Document):
        return _as_text(part, value, losses, path)
    if not place:
        losses.append(Loss(path, type(part).__name__.lower(), value))
        return None
    is_untyped = is_spelled(part, "untyped")
    if is_untyped:
        media_type = ""
    elif not media_type and place == "url":
        media_type = media_type_of_url(value)
    media_type = media_type.lower()
    kind = _kind(part, media_type)
    if media_type not in media_types(kind):
        media_type = next((name for name in same_media_types(media_type) if name in media_types(kind)), media_type)
    if not media_type and place == "data" and not is_untyped:
        media_type = _DEFAULTS[kind]
    if media_type and media_type not in media_types(kind):
        losses.append(Loss(path, kind, f"the Interactions API does not support {media_type[:80]}; dropped (GI-06)"))
        return None
    if isinstance(part, Document) and part.name:
        losses.append(Loss(f"{path}.name", "name", "the Interactions API has no file names; dropped"))
    written: dict[str, Any] = {"type": kind}
    if place == "url":
        written["uri"] = value
    else:
        written["data"] = write_base64(value, part)
    if media_type:
        written["mime_type"] = media_type
    return {**written, **own_extras(part.native, losses, path, FORMAT)}


def _kind(part: Media, media_type: str) -> str:
    if isinstance(part, Image):
        return "image"
    if isinstance(part, Audio):
        return "audio"
    family = media_type.partition("/")[0]
    if family == "video" or is_spelled(part, "video"):
        return "video"
    return family if family in ("image", "audio") else "document"


def _as_text(document: Document, text: str, losses: list[Loss], path: str) -> dict[str, Any]:
    own_extras(document.native, losses, path, FORMAT)
    return {"type": "text", "text": f"{document.name}\n\n{text}" if document.name else text}
