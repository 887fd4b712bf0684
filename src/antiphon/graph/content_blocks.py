"""Parts as LangChain's standard content blocks, and back.

What a block has no field for (a part's `native` extras) is not in it: it is told as a loss, and comes back by another way (see
`to_langchain`). What a block says that a part cannot (`extras` of a provider) becomes a `native` extra of its format.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from antiphon.parts import (
    Audio,
    Document,
    Image,
    Native,
    NativeExtras,
    Part,
    Refusal,
    Text,
    Thinking,
)
from antiphon.wire.loss import Loss

LANGCHAIN = "langchain"
"""The origin of what only LangChain's own messages can say."""

CARRIED = "antiphon"
"""Under this name a message carries what it cannot show of an entry (see `to_langchain`)."""

_FORMATS = {"anthropic": "anthropic", "google_genai": "gemini", "google_vertexai": "gemini"}
"""The formats whose extras we know, by LangChain's name of the provider."""

_MEDIA = {"image": Image, "audio": Audio, "file": Document}


def block_of(part: Part, path: str, losses: list[Loss]) -> dict[str, Any]:
    """The block that says what a part says."""
    if native := getattr(part, "native", None):
        origins = ", ".join(native)
        losses.append(Loss(path, f"extras of {origins}", "a content block has no place for them"))
    match part:
        case Text():
            return {"type": "text", "text": part.text}
        case Thinking():
            return {"type": "reasoning", "reasoning": part.text}
        case Refusal():
            return {"type": "refusal", "refusal": part.text}
        case Image() | Audio():
            return {"type": type(part).__name__.lower()} | _where(part)
        case Document():
            return _document(part)
        case Native():
            if part.origin == LANGCHAIN and isinstance(part.data, dict):
                return part.data
            losses.append(Loss(path, f"a block of {part.origin}", "only its origin understands it"))
            return {"type": "non_standard", "value": {"origin": part.origin, "data": part.data, "model": part.model}}
    raise AssertionError(f"a {type(part).__name__} is no content")


def _where(part: Image | Audio | Document) -> dict[str, Any]:
    fields = {"mime_type": part.media_type, "base64": part.data, "url": part.url, "file_id": part.file_id}
    return {name: value for name, value in fields.items() if value}


def _document(part: Document) -> dict[str, Any]:
    if part.text:
        block = {"type": "text-plain", "mime_type": part.media_type or "text/plain", "text": part.text}
        return block | ({"title": part.name} if part.name else {})
    block = {"type": "file"} | _where(part)
    return block | ({"extras": {"filename": part.name}} if part.name else {})


def part_of(block: Mapping[str, Any], provider: str = "") -> Any:
    """The part that says what a block says; a `Native` one for what we have no words for."""
    kind = block.get("type")
    native = _native(block.get("extras"), provider)
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
        return _media(str(kind), block, native, provider)
    if kind == "non_standard":
        return _non_standard(block, provider)
    return Native(LANGCHAIN, dict(block))


def _media(kind: str, block: Mapping[str, Any], native: NativeExtras | None, provider: str) -> Any:
    said = [str(block.get(name) or "") for name in ("mime_type", "base64", "url", "file_id")]
    if kind != "file":
        return _MEDIA[kind](*said, native=native)
    extras = dict(block.get("extras") or {})
    name = str(extras.pop("filename", ""))
    media_type, data, url, file_id = said
    return Document(media_type, data, url=url, file_id=file_id, name=name, native=_native(extras, provider))


def _non_standard(block: Mapping[str, Any], provider: str) -> Any:
    value = block.get("value")
    if isinstance(value, Mapping):
        if set(value) == {"origin", "data", "model"}:
            return Native(str(value["origin"]), value["data"], str(value["model"]))
        if value.get("type") == "refusal":
            return part_of(value, provider)
    return Native(LANGCHAIN, dict(block))


def _native(extras: Any, provider: str) -> NativeExtras | None:
    return {_FORMATS.get(provider, LANGCHAIN): dict(extras)} if isinstance(extras, Mapping) and extras else None


def _with_annotations(native: NativeExtras | None, block: Mapping[str, Any]) -> NativeExtras | None:
    if not (annotations := block.get("annotations")):
        return native
    native = native or {}
    return {**native, LANGCHAIN: {**native.get(LANGCHAIN, {}), "annotations": annotations}}
