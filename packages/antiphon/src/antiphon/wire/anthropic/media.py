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
from antiphon.wire.loss import Losses
from antiphon.wire.media import decode_text, inline_source, is_text_type, is_web_url, sniff_base64
from antiphon.wire.provenance import is_from

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
    media_type, data = _inline(image)
    if data:
        if model.accepts_image(media_type):
            return ImageShape({"type": "base64", "media_type": media_type, "data": data})
        losses.add("image", f"Anthropic does not support {media_type or 'unknown image types'}; dropped (AN-24)")
        return None
    source = _reference_source(image, accepts_urls)
    if source is None:
        losses.add("image", _unsupported_reason(image))
    return None if source is None else ImageShape(source)


def write_document(document: Document, losses: Losses) -> DocumentShape | None:
    """The block of a document, or None and a loss."""
    source = _document_source(document, losses)
    return None if source is None else DocumentShape(source, document.name or None)


def _document_source(document: Document, losses: Losses) -> dict[str, Any] | None:
    if document.text:
        return _text_source(document.media_type, document.text, losses)
    media_type, data = _inline(document)
    if data:
        if media_type == PDF:
            return {"type": "base64", "media_type": PDF, "data": data}
        text = decode_text(data) if is_text_type(media_type) else ""
        if text:
            return _text_source(media_type, text, losses)
        kind = media_type or "unknown document types"
    elif document.media_type in _DOCUMENT_TYPES:
        source = _reference_source(document)
        if source is None:
            losses.add("document", _unsupported_reason(document))
        return source
    else:
        kind = document.media_type
    losses.add("document", f"Anthropic does not support {kind}; dropped (AN-24)")
    return None


def _text_source(media_type: str, text: str, losses: Losses) -> dict[str, Any]:
    if media_type not in ("", PLAIN_TEXT):
        losses.add(media_type, "sent as text/plain (AN-24)", "media_type")
    return {"type": "text", "media_type": PLAIN_TEXT, "data": text}


def _inline(media: Image | Document) -> tuple[str, str]:
    """Media type and base64 of inline data; an unknown type is that of the bytes."""
    media_type, data = inline_source(media.media_type, media.data, media.url)
    return media_type or sniff_base64(data), data


def _reference_source(media: Image | Document, accepts_urls: bool = True) -> dict[str, Any] | None:
    if media.file_id:
        is_same_provider = is_from(media, FORMAT) or media.file_id.startswith("file_")
        return {"type": "file", "file_id": media.file_id} if is_same_provider else None
    return {"type": "url", "url": media.url} if accepts_urls and is_web_url(media.url) else None


def _unsupported_reason(media: Image | Document) -> str:
    if media.file_id:
        return "file id belongs to another provider; dropped"
    return "URL source not supported; dropped" if media.url else f"empty {type(media).__name__.lower()}; dropped"
