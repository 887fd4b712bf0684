"""Images and documents, read and written.

A block whose source has exactly the known fields of its type becomes an `Image` or a `Document`; any other stays `Native`.
Writing is stricter, since parts may come from any format: only what the API accepts (AN-24) becomes a block, everything else a
loss. Base64 text becomes a text source, a data URL is split, and a missing media type is detected from the data.

File ids belong to one provider: those read here have an origin marker, others are dropped. A document of text blocks keeps its
text, and its own `source` as an extra that replaces the written one.
"""

from __future__ import annotations

from typing import Any

from antiphon.parts import Document, Image
from antiphon.wire.anthropic.limits import PDF, PLAIN_TEXT
from antiphon.wire.capabilities import Capabilities
from antiphon.wire.loss import Loss
from antiphon.wire.media import decode_text, inline_source, is_text_type, is_web_url, sniff_base64
from antiphon.wire.vendors.anthropic import is_same_format, origin_marker, unread_fields

_BASE64_FIELDS = {"type", "media_type", "data"}
_DOCUMENT_TYPES = ("", PDF, PLAIN_TEXT)


def read_image(block: dict[str, Any]) -> Image | None:
    """The image in a block; None if its source is unknown."""
    source = block.get("source")
    if type(source) is not dict:
        return None
    match source:
        case {"type": "base64", "media_type": str(media_type), "data": str(data)} if (
            source.keys() == _BASE64_FIELDS and media_type and data and not data.startswith("data:")
        ):
            return Image(media_type, data, native=unread_fields(block, _IMAGE_FIELDS))
        case {"type": "url", "url": str(url)} if len(source) == 2 and is_web_url(url):
            return Image(url=url, native=unread_fields(block, _IMAGE_FIELDS))
        case {"type": "file", "file_id": str(file_id)} if len(source) == 2 and file_id:
            return Image(file_id=file_id, native=unread_fields(block, _IMAGE_FIELDS) or origin_marker())
    return None


def read_document(block: dict[str, Any]) -> Document | None:
    """The document in a block; None if its source is unknown."""
    source, title = block.get("source"), block.get("title")
    title = "" if title is None else title
    if type(source) is not dict or type(title) is not str:
        return None
    match source:
        case {"type": "base64", "media_type": "application/pdf", "data": str(data)} if (
            source.keys() == _BASE64_FIELDS and data and not data.startswith("data:")
        ):
            return Document(PDF, data, name=title, native=unread_fields(block, _DOCUMENT_FIELDS))
        case {"type": "text", "media_type": "text/plain", "data": str(text)} if (
            source.keys() == _BASE64_FIELDS and text
        ):
            return Document(PLAIN_TEXT, text=text, name=title, native=unread_fields(block, _DOCUMENT_FIELDS))
        case {"type": "url", "url": str(url)} if len(source) == 2 and is_web_url(url):
            return Document(url=url, name=title, native=unread_fields(block, _DOCUMENT_FIELDS))
        case {"type": "file", "file_id": str(file_id)} if len(source) == 2 and file_id:
            native = unread_fields(block, _DOCUMENT_FIELDS) or origin_marker()
            return Document(file_id=file_id, name=title, native=native)
        case {"type": "content", "content": content} if document_text(content):
            # Other formats get the text; the blocks are kept as an extra.
            return Document(
                PLAIN_TEXT, text=document_text(content), name=title, native=unread_fields(block, _CONTENT_FIELDS)
            )
    return None


_IMAGE_FIELDS = frozenset({"type", "source"})
_CONTENT_FIELDS = frozenset({"type", "title"})
_DOCUMENT_FIELDS = _IMAGE_FIELDS | _CONTENT_FIELDS


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


def write_image(
    image: Image, path: str, losses: list[Loss], model: Capabilities, *, accepts_urls: bool
) -> dict[str, Any] | None:
    """The block of an image, or None and a loss."""
    media_type, data = _inline(image)
    if data:
        if model.accepts_image(media_type):
            return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}
        losses.append(
            Loss(path, "image", f"Anthropic does not support {media_type or 'unknown image types'}; dropped (AN-24)")
        )
        return None
    source = _reference_source(image, accepts_urls)
    if source is None:
        losses.append(Loss(path, "image", _unsupported_reason(image)))
        return None
    return {"type": "image", "source": source}


def write_document(document: Document, path: str, losses: list[Loss]) -> dict[str, Any] | None:
    """The block of a document, or None and a loss."""
    source = _document_source(document, path, losses)
    if source is None:
        return None
    if document.name:
        return {"type": "document", "source": source, "title": document.name}
    return {"type": "document", "source": source}


def _document_source(document: Document, path: str, losses: list[Loss]) -> dict[str, Any] | None:
    if document.text:
        if document.media_type not in ("", PLAIN_TEXT):
            losses.append(Loss(f"{path}.media_type", document.media_type, "sent as text/plain (AN-24)"))
        return {"type": "text", "media_type": PLAIN_TEXT, "data": document.text}
    media_type, data = _inline(document)
    if data:
        return _inline_document(media_type, data, path, losses)
    if document.media_type not in _DOCUMENT_TYPES:
        losses.append(Loss(path, "document", f"Anthropic does not support {document.media_type}; dropped (AN-24)"))
        return None
    source = _reference_source(document)
    if source is None:
        losses.append(Loss(path, "document", _unsupported_reason(document)))
    return source


def _inline_document(media_type: str, data: str, path: str, losses: list[Loss]) -> dict[str, Any] | None:
    if media_type == PDF:
        return {"type": "base64", "media_type": PDF, "data": data}
    text = decode_text(data) if is_text_type(media_type) else ""
    if text:
        if media_type != PLAIN_TEXT:
            losses.append(Loss(f"{path}.media_type", media_type, "sent as text/plain (AN-24)"))
        return {"type": "text", "media_type": PLAIN_TEXT, "data": text}
    losses.append(
        Loss(path, "document", f"Anthropic does not support {media_type or 'unknown document types'}; dropped (AN-24)")
    )
    return None


def _inline(media: Image | Document) -> tuple[str, str]:
    """Media type and base64 of inline data; an unknown type is that of the bytes."""
    media_type, data = inline_source(media.media_type, media.data, media.url)
    return media_type or sniff_base64(data), data


def _reference_source(media: Image | Document, accepts_urls: bool = True) -> dict[str, Any] | None:
    if media.file_id:
        is_same_provider = is_same_format(media.native) or media.file_id.startswith("file_")
        return {"type": "file", "file_id": media.file_id} if is_same_provider else None
    return {"type": "url", "url": media.url} if accepts_urls and is_web_url(media.url) else None


def _unsupported_reason(media: Image | Document) -> str:
    if media.file_id:
        return "file id belongs to another provider; dropped"
    return "URL source not supported; dropped" if media.url else f"empty {type(media).__name__.lower()}; dropped"
