"""Media of session files as parts: programs keep a type and base64 data, or a data URL with both."""

from __future__ import annotations

from antiphon.parts import Audio, Document, Image
from antiphon.wire.media import inline_base64, is_web_url


def media_part(media_type: str, data: str, name: str = "") -> Image | Audio | Document:
    """The part for base64 `data`."""
    if media_type.startswith("image/"):
        return Image(media_type, data)
    if media_type.startswith("audio/"):
        return Audio(media_type, data)
    return Document(media_type, data, name=name)


def media_at(url: str, media_type: str, name: str = "") -> Image | Audio | Document | None:
    """The part for a data URL or a web address; None for anything else, such as a path."""
    if (inline := inline_base64(url)) is not None:
        return media_part(inline.media_type, inline.data, name)
    if not is_web_url(url):
        return None
    if media_type.startswith("image/"):
        return Image(media_type, url=url)
    if media_type.startswith("audio/"):
        return Audio(media_type, url=url)
    return Document(media_type, url=url, name=name)
