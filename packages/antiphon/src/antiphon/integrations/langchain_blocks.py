"""Parts as LangChain's standard content blocks, and back.

A block has no field for a part's `native` extras: they are reported as a loss and restored from the carried entry (see
`langchain`). A provider's `extras` in a block become `native` extras of its format.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from antiphon.parts import Audio, Document, Image, Native, NativeExtras, Part, Refusal, Text, Thinking
from antiphon.wire.loss import Loss

LANGCHAIN = "langchain"
"""The origin of content that only LangChain's messages can express."""

_FORMATS = {"anthropic": "anthropic", "google_genai": "gemini", "google_vertexai": "gemini"}
"""Our format for LangChain's provider names, for block extras."""

_MEDIA = {"image": Image, "audio": Audio, "file": Document}


def to_block(part: Part, path: str, losses: list[Loss]) -> dict[str, Any]:
    """A part as one of LangChain's standard content blocks."""
    if native := getattr(part, "native", None):
        origins = ", ".join(native)
        losses.append(Loss(path, f"extras of {origins}", "a content block has no field for them"))
    match part:
        case Text():
            return {"type": "text", "text": part.text}
        case Thinking():
            return {"type": "reasoning", "reasoning": part.text}
        case Refusal():
            return {"type": "refusal", "refusal": part.text}
        case Image() | Audio():
            return {"type": type(part).__name__.lower()} | _location(part)
        case Document():
            return _to_document_block(part)
        case Native():
            if part.origin == LANGCHAIN and isinstance(part.data, dict):
                return part.data
            losses.append(Loss(path, f"a block of {part.origin}", "only its origin understands it"))
            return {"type": "non_standard", "value": {"origin": part.origin, "data": part.data, "model": part.model}}
    raise AssertionError(f"{type(part).__name__} is not a content part")


def _location(part: Image | Audio | Document) -> dict[str, Any]:
    fields = {"mime_type": part.media_type, "base64": part.data, "url": part.url, "file_id": part.file_id}
    return {name: value for name, value in fields.items() if value}


def _to_document_block(part: Document) -> dict[str, Any]:
    if part.text:
        block = {"type": "text-plain", "mime_type": part.media_type or "text/plain", "text": part.text}
        return block | ({"title": part.name} if part.name else {})
    block = {"type": "file"} | _location(part)
    return block | ({"extras": {"filename": part.name}} if part.name else {})


def from_block(block: Mapping[str, Any], provider: str = "") -> Any:
    """The part of a content block; a `Native` part for a block that has no other."""
    kind = block.get("type")
    native = _to_native(block.get("extras"), provider)
    if kind == "text":
        return Text(str(block.get("text", "")), native=_with_annotations(native, block))
    if kind == "reasoning":
        return Thinking(str(block.get("reasoning", "")), native=native)
    if kind == "refusal":
        return Refusal(str(block.get("refusal", "")))
    if kind == "text-plain" and "text" in block:
        name = str(block.get("title", ""))
        return Document(str(block.get("mime_type", "")), text=str(block["text"]), name=name, native=native)
    if kind in _MEDIA and any(block.get(name) for name in ("base64", "url", "file_id")):
        return _from_media_block(str(kind), block, native, provider)
    if kind == "non_standard":
        return _from_non_standard(block, provider)
    return Native(LANGCHAIN, dict(block))


def _from_media_block(kind: str, block: Mapping[str, Any], native: NativeExtras | None, provider: str) -> Any:
    location = [str(block.get(name) or "") for name in ("mime_type", "base64", "url", "file_id")]
    if kind != "file":
        return _MEDIA[kind](*location, native=native)
    extras = dict(block.get("extras") or {})
    name = str(extras.pop("filename", ""))
    media_type, data, url, file_id = location
    return Document(media_type, data, url=url, file_id=file_id, name=name, native=_to_native(extras, provider))


def _from_non_standard(block: Mapping[str, Any], provider: str) -> Any:
    value = block.get("value")
    if isinstance(value, Mapping):
        if set(value) == {"origin", "data", "model"}:
            return Native(str(value["origin"]), value["data"], str(value["model"]))
        if value.get("type") == "refusal":
            return from_block(value, provider)
    return Native(LANGCHAIN, dict(block))


def _to_native(extras: Any, provider: str) -> NativeExtras | None:
    return {_FORMATS.get(provider, LANGCHAIN): dict(extras)} if isinstance(extras, Mapping) and extras else None


def _with_annotations(native: NativeExtras | None, block: Mapping[str, Any]) -> NativeExtras | None:
    if not (annotations := block.get("annotations")):
        return native
    native = native or {}
    return {**native, LANGCHAIN: {**native.get(LANGCHAIN, {}), "annotations": annotations}}
