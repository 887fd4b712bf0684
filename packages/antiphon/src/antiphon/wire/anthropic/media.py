"""Images and documents, read and written.

A block whose source has exactly the known fields of its type becomes an `Image` or a `Document`; any other stays `Native`.
Writing is stricter, since parts may come from any format: only what the API accepts (AN-24) becomes a block, everything else a
loss. Base64 text becomes a text source, a data URL is split, and a missing media type is detected from the data.

File ids belong to one provider: those read here have a source, others are dropped. A document of text blocks keeps its
text, and its own `source` as an extra that replaces the written one.
"""

from __future__ import annotations

from typing import Any

from antiphon.parts import Document, Image, NativeExtras
from antiphon.wire.anthropic import FORMAT
from antiphon.wire.anthropic.limits import PDF, PLAIN_TEXT
from antiphon.wire.anthropic.shapes import SOURCE, DocumentShape, ImageShape
from antiphon.wire.capabilities import Capabilities
from antiphon.wire.capabilities.accepted_media import Place, locate
from antiphon.wire.loss import Losses
from antiphon.wire.media import decode_text, is_text_type, is_web_url
from antiphon.wire.provenance import is_from

NAME = "Anthropic"
_BASE64_FIELDS = {"type", "media_type", "data"}
_DOCUMENT_TYPES = ("", PDF, PLAIN_TEXT)


def read_image(source: dict[str, Any], extras: NativeExtras | None) -> Image | None:
    """The image of a source; None if that is unknown."""
    match source:
        case {"type": "base64", "media_type": str(media_type), "data": str(data)} if (
            source.keys() == _BASE64_FIELDS and media_type and data and not data.startswith("data:")
        ):
            return Image(media_type, data, native=extras)
        case {"type": "url", "url": str(url)} if len(source) == 2 and is_web_url(url):
            return Image(url=url, native=extras)
        case {"type": "file", "file_id": str(file_id)} if len(source) == 2 and file_id:
            return Image(file_id=file_id, native=extras, source=SOURCE)
    return None


def read_document(source: dict[str, Any], title: str, extras: NativeExtras | None) -> Document | None:
    """The document of a source; None if that is unknown."""
    match source:
        case {"type": "base64", "media_type": "application/pdf", "data": str(data)} if (
            source.keys() == _BASE64_FIELDS and data and not data.startswith("data:")
        ):
            return Document(PDF, data, name=title, native=extras)
        case {"type": "text", "media_type": "text/plain", "data": str(text)} if (
            source.keys() == _BASE64_FIELDS and text
        ):
            return Document(PLAIN_TEXT, text=text, name=title, native=extras)
        case {"type": "url", "url": str(url)} if len(source) == 2 and is_web_url(url):
            return Document(url=url, name=title, native=extras)
        case {"type": "file", "file_id": str(file_id)} if len(source) == 2 and file_id:
            return Document(file_id=file_id, name=title, native=extras, source=SOURCE)
        case {"type": "content", "content": content} if document_text(content):
            # Other formats get the text; the blocks are kept as an extra.
            own = {"source": source, **(extras[FORMAT] if extras else {})}
            return Document(PLAIN_TEXT, text=document_text(content), name=title, native={FORMAT: own})
    return None


def document_text(content: Any) -> str:
    """The text of a document of blocks; empty if any block is not text."""
    if isinstance(content, str):
        return content
    texts: list[str] = []
    for block in content if isinstance(content, list) else ():
        if not isinstance(block, dict) or block.get("type") != "text" or not isinstance(block.get("text"), str):
            return ""
        texts.append(block["text"])
    return "\n\n".join(texts)


def write_image(image: Image, losses: Losses, model: Capabilities, *, accepts_urls: bool) -> ImageShape | None:
    """The block of an image, or None and a loss."""
    place, value, media_type = locate(image, NAME, "data", *_references(image, accepts_urls))
    if place == "data" and not model.accepts_image(media_type):
        place, value = "", f"{NAME} does not support {media_type or 'unknown image types'}; dropped (AN-24)"
    if place == "data":
        return ImageShape({"type": "base64", "media_type": media_type, "data": value})
    if not place:
        losses.add("image", value)
        return None
    return ImageShape(_reference_source(place, value))


def write_document(document: Document, losses: Losses) -> DocumentShape | None:
    """The block of a document, or None and a loss."""
    source = _document_source(document, losses)
    return None if source is None else DocumentShape(source, document.name or None)


def _document_source(document: Document, losses: Losses) -> dict[str, Any] | None:
    place, value, media_type = locate(document, NAME, "text", "data", *_references(document, accepts_urls=True))
    if place == "data" and media_type == PDF:
        return {"type": "base64", "media_type": PDF, "data": value}
    text = value if place == "text" else decode_text(value) if place == "data" and is_text_type(media_type) else ""
    if text:
        return _text_source(media_type, text, losses)
    if place == "data" or media_type not in _DOCUMENT_TYPES:
        place, value = "", f"{NAME} does not support {media_type or 'unknown document types'}; dropped (AN-24)"
    if not place:
        losses.add("document", value)
        return None
    return _reference_source(place, value)


def _text_source(media_type: str, text: str, losses: Losses) -> dict[str, Any]:
    if media_type not in ("", PLAIN_TEXT):
        losses.add(media_type, "sent as text/plain (AN-24)", "media_type")
    return {"type": "text", "media_type": PLAIN_TEXT, "data": text}


def _references(media: Image | Document, accepts_urls: bool) -> tuple[Place, ...]:
    is_own_file = is_from(media, FORMAT) or media.file_id.startswith("file_")
    return (*(("file",) if is_own_file else ()), *(("web",) if accepts_urls and not media.file_id else ()))


def _reference_source(place: str, value: str) -> dict[str, Any]:
    return {"type": "file", "file_id": value} if place == "file" else {"type": "url", "url": value}
