"""Media parts: `inlineData` (base64) and `fileData` (a URI), distinguished by their MIME type.

A video is a `Document`, since there is no neutral part for it. A file name is Vertex's `displayName`, which the Gemini API
rejects: it is written only if it was read as one (its `source`). Files by `file_id` belong to other providers.

Google also accepts URL-safe base64, and its SDK sends it. Other providers reject it: it is read into the standard alphabet and
written back as it came (again by its source).
"""

from __future__ import annotations

from base64 import b64encode
from typing import Any, TypeAlias

from antiphon.parts import Audio, Document, Image
from antiphon.wire.capabilities.accepted_media import locate
from antiphon.wire.gemini import FORMAT
from antiphon.wire.gemini.native import field_spellings, gemini_extras, native_extras, spelled, split_fields
from antiphon.wire.loss import Loss, lose_native
from antiphon.wire.media import media_type_of_url
from antiphon.wire.provenance import is_spelled, with_source
from antiphon.wire.vendors.google import read_base64, write_base64

Media: TypeAlias = Image | Audio | Document

_INLINE_DATA_FIELDS = field_spellings(("data", "mimeType", "displayName"))
_FILE_DATA_FIELDS = field_spellings(("fileUri", "mimeType", "displayName"))

NAME = "Gemini"
DEFAULT_MEDIA_TYPES = {Image: "image/png", Audio: "audio/wav", Document: "application/pdf"}


def read_inline_data(value: Any, extras: dict[str, Any]) -> Media | None:
    """Media as base64; None if it is malformed."""
    if type(value) is not dict:
        return None
    fields, inner_extras = split_fields(value, _INLINE_DATA_FIELDS)
    data, media_type = fields.get("data"), fields.get("mimeType")
    if type(data) is not str or type(media_type) is not str or not media_type:
        return None
    if not data.isascii() or data.startswith("data:"):
        return None
    return _build_media(media_type, "inlineData", fields, inner_extras, extras, data=data)


def read_file_data(value: Any, extras: dict[str, Any]) -> Media | None:
    """Media by URI; None if it is malformed."""
    if type(value) is not dict:
        return None
    fields, inner_extras = split_fields(value, _FILE_DATA_FIELDS)
    uri, media_type = fields.get("fileUri"), fields.get("mimeType")
    if type(uri) is not str or not uri or uri.startswith("data:"):
        return None
    if media_type is not None and (type(media_type) is not str or not media_type):
        return None
    return _build_media(media_type or "", "fileData", fields, inner_extras, extras, url=uri)


def _build_media(
    media_type: str,
    field: str,
    fields: dict[str, Any],
    inner_extras: dict[str, Any],
    extras: dict[str, Any],
    **location: str,
) -> Media:
    name = fields.get("displayName")
    family = media_type.partition("/")[0].lower()
    is_document = family not in ("image", "audio")
    is_named = is_document and type(name) is str
    if name is not None and not is_named:
        inner_extras["displayName"] = name
    if inner_extras:
        extras = {**extras, field: inner_extras}
    spelling = ["displayName"] if is_named else []
    if not media_type:
        spelling.append("untyped")
    if "data" in location:
        location["data"] = read_base64(location["data"], spelling)
    native, source = native_extras(extras), spelled(*spelling)
    if is_document:
        return Document(media_type, name=str(name) if is_named else "", native=native, source=source, **location)
    kind = Image if family == "image" else Audio
    return kind(media_type, native=native, source=source, **location)


def write_media(part: Media, losses: list[Loss], path: str) -> dict[str, Any] | None:
    """The part for Gemini; None, and a loss, if it has no usable data."""
    part = with_source(part)
    lose_native(losses, path, part.native, FORMAT)
    extras = gemini_extras(part.native)
    place, value, media_type = locate(part, NAME, "data", "text", "address")
    if place == "url":
        field, content = "fileData", _file_data(part)
    elif place == "text":
        text = value.encode("utf-8", "replace")
        field, content = "inlineData", {"mimeType": media_type or "text/plain", "data": b64encode(text).decode()}
    elif place == "data":
        media_type = media_type or DEFAULT_MEDIA_TYPES[type(part)]
        field, content = "inlineData", {"mimeType": media_type, "data": write_base64(value, part)}
    elif part.media_type and not (part.data or part.url or part.file_id):
        field, content = "inlineData", {"mimeType": part.media_type, "data": ""}  # read from a body of Gemini (L2)
    else:
        losses.append(Loss(path, type(part).__name__.lower(), value))
        return None
    written: dict[str, Any] = {field: {**content, **extras.get(field, {})}}
    if isinstance(part, Document) and is_spelled(part, "displayName"):
        next(iter(written.values()))["displayName"] = part.name
    elif isinstance(part, Document) and part.name:
        losses.append(Loss(f"{path}.name", "name", "Gemini does not support file names; dropped"))
    written.update((name, value) for name, value in extras.items() if name not in ("inlineData", "fileData"))
    return written


def is_image_type(media_type: str) -> bool:
    return media_type[:6].lower() == "image/"


def _file_data(part: Media) -> dict[str, Any]:
    media_type = part.media_type
    if not media_type and not is_spelled(part, "untyped"):
        media_type = media_type_of_url(part.url)
    return {"fileUri": part.url, "mimeType": media_type} if media_type else {"fileUri": part.url}
