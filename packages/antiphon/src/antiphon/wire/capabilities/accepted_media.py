"""What becomes of an image, audio or document: what the model accepts of it, and where the format has its content.

The table of capabilities has the kinds (image, document, audio, video) and types that each model accepts (`fit_medium`). Content
is kept where that is possible: a wrong type is corrected by the bytes, text becomes text, audio becomes its transcript. Otherwise
a note takes the place of the medium, so that the model knows that something was there. A format says in which places it accepts
the content (`locate`): as text, data, an address or a file id. Every change is a loss with the path of the part.

The result depends on the part and the model alone, so earlier turns keep their bytes (L9).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from msgspec import structs

from antiphon.parts import Audio, Document, Image, Native, NativeExtras, Text
from antiphon.wire.capabilities import Capabilities, MediaKind
from antiphon.wire.loss import Losses
from antiphon.wire.media import (
    decode_text,
    inline_source,
    is_text_type,
    is_web_url,
    media_type_of_url,
    parse_data_url,
    same_media_types,
    sniff_base64,
)
from antiphon.wire.native_as_text import transcribe
from antiphon.wire.spec import MediaBlocks, spec_of

_Medium: TypeAlias = Image | Audio | Document
Place: TypeAlias = Literal["text", "data", "web", "address", "url", "file"]
"""Where a format accepts content. `web` is an address with HTTP, `address` any but a data URL, `url` any."""

ALL_KINDS: frozenset[MediaKind] = frozenset(get_args(MediaKind))
_FITTED = frozenset({Image, Audio, Document, Native})
_KINDS: dict[type, MediaKind] = {Image: "image", Audio: "audio", Document: "document"}
_KIND_BY_PREFIX: dict[str, MediaKind] = {"image/": "image", "audio/": "audio", "video/": "video"}


class Location(NamedTuple):
    """Where the content of a medium is: the place and what is there. Without a place, the reason why it cannot be sent."""

    place: Literal["text", "data", "url", "file", ""]
    value: str
    media_type: str
    """As stated, else that of the bytes; empty if neither is known."""


def locate(part: _Medium, target: str, *places: Place) -> Location:
    """The content of a medium in the first of the places that the target (by its name) accepts."""
    media_type, data = inline_source(part.media_type, part.data, part.url)
    for place in places:
        if place == "text":
            if type(part) is Document and part.text:
                return Location("text", part.text, part.media_type)
        elif place == "data":
            if data and data.isascii():
                return Location("data", data, media_type or sniff_base64(data))
        elif place == "file":
            if part.file_id:
                return Location("file", part.file_id, part.media_type)
        elif part.url and (place == "url" or _is_address(part.url, web=place == "web")):
            return Location("url", part.url, part.media_type)
    reason = f"empty {type(part).__name__.lower()}"
    if part.data or part.url or part.file_id:
        given = "data" if part.data or part.url.startswith("data:") else "URL" if part.url else "file id"
        reason = f"{target} does not accept this {given}"
    return Location("", f"{reason}; dropped", media_type)


def _is_address(url: str, *, web: bool) -> bool:
    return is_web_url(url) if web else not url.startswith("data:")


def fit_medium(
    part: Any,
    model: Capabilities | None,
    losses: Losses,
    any_type: frozenset[MediaKind] = frozenset(),
) -> Any:
    """A medium or a native block in a form that the model accepts; the same object if it is accepted, or another part.

    `any_type` has the kinds whose types are not limited here. Without a model (in a response) everything is accepted.
    """
    if model is None or type(part) not in _FITTED:
        return part
    return _MediaFitter(model, losses, any_type).fit(part)


def media_problems(
    entries: Any, place: str, model: Capabilities, blocks: MediaBlocks, *, with_types: bool = True
) -> Iterator[tuple[str, str]]:
    """The path of each medium in the messages, items or contents of a body that the model refuses, and why.

    `blocks` says where the format of the body has media. Types count unless the format checks them with the other rules of a
    block, as all do for images.
    """
    if model.media is None and not with_types:
        return
    for path, kind, media_type in _find_media(entries, place, blocks, with_types=with_types):
        if not _accepts(model, kind, "" if kind == "image" else media_type):
            yield path, refusal(kind or "document", media_type, model)


def _accepts(model: Capabilities, kind: MediaKind | None, media_type: str) -> bool:
    """whether a model accepts a medium; without a known kind or type it is refused only where every medium is."""
    return model.accepts_media(kind, media_type) if kind is not None else model.media != ()


def refusal(kind: MediaKind, media_type: str, model: Capabilities) -> str:
    """Why a model refuses a medium."""
    if model.media == ():
        return "the model takes text only"
    if not model.accepts_media(kind):
        return f"the model does not accept {kind} input"
    return f"{media_type} is not supported"


def omission_note(part: _Medium, reason: str) -> str:
    """The text in the place of a medium."""
    name = f" {part.name}" if type(part) is Document and part.name else ""
    return f"[{_kind_of(part)}{name} omitted: {reason}]"


class _MediaFitter:
    """Fits a medium to a model."""

    def __init__(self, model: Capabilities, losses: Losses, any_type: frozenset[MediaKind]) -> None:
        self._model = model
        self._losses = losses
        self._any_type = any_type

    def _accepts(self, kind: MediaKind, media_type: str) -> bool:
        return self._model.accepts_media(kind, "" if kind in self._any_type else media_type)

    def fit(self, part: Any) -> Any:
        if type(part) is Native:
            return self._fit_native(part)
        media_type, kind = _type_of(part), _kind_of(part)
        if self._accepts(kind, media_type):
            return part
        fitted = self._corrected(part, media_type) or self._as_text(part)
        if fitted is not None:
            return fitted
        reason = refusal(kind, media_type, self._model)
        self._losses.add(kind, f"{reason}; replaced by a note")
        return Text(omission_note(part, reason), native=_cache_marks(part.native))

    def _fit_native(self, part: Native) -> Any:
        """A block of the format itself; only kinds count, since its fields are unknown here."""
        spec = spec_of(part.origin) if self._model.media is not None else None
        found = () if spec is None else _find_media([part.data], "", spec.media_blocks, with_types=False)
        for _, found_kind, _ in found:
            if not _accepts(self._model, found_kind, ""):
                kind = found_kind or "document"
                reason = refusal(kind, "", self._model)
                self._losses.add(kind, f"{reason}; replaced by a note")
                return Text(f"[{kind} omitted: {reason}]")
        return part

    def _corrected(self, part: _Medium, media_type: str) -> _Medium | None:
        """The same bytes under another type that the model accepts: a usual name of it, or what the bytes are."""
        # The bytes of a video container look like those of an audio container, so only other kinds are recognised by them.
        sniffed = sniff_base64(part.data) if part.data and _kind_of(part) in ("image", "document") else ""
        for other in (*same_media_types(media_type), sniffed):
            kind = _KIND_BY_PREFIX.get(other[:6], "document")
            if other and other != media_type and self._accepts(kind, other):
                self._losses.add(media_type, f"sent as {other}", "media_type")
                return _as_kind(part, kind, other)
        right_kind = _KIND_BY_PREFIX.get(media_type[:6], "document")
        if right_kind == _kind_of(part) or not media_type or not self._accepts(right_kind, media_type):
            return None
        self._losses.add(_kind_of(part), f"{media_type} is sent as {right_kind}")
        return _as_kind(part, right_kind, media_type)

    def _as_text(self, part: _Medium) -> Any:
        """A document's text, or the transcript of audio; None if there is none."""
        if type(part) is Audio:
            transcript = transcribe(part, self._losses)
            return None if transcript is part else transcript
        text = _text_of(part) if type(part) is Document else ""
        if type(part) is not Document or not text:
            return None
        if self._accepts("document", ""):
            if not self._accepts("document", "text/plain"):  # the writers send it as text
                if part.data:
                    self._losses.add("document", f"{part.media_type} is not supported; sent as text")
                return structs.replace(part, data="", text=text)
            self._losses.add(part.media_type, "sent as text/plain", "media_type")
            return structs.replace(part, media_type="text/plain", data="", text=text)
        self._losses.add("document", f"{refusal('document', _type_of(part), self._model)}; sent as text")
        return Text(f"{part.name}\n\n{text}" if part.name else text, native=_cache_marks(part.native))


def _as_kind(part: _Medium, kind: MediaKind, media_type: str) -> _Medium:
    target: type[_Medium] = Image if kind == "image" else Audio if kind == "audio" else Document
    if target is type(part):
        return structs.replace(part, media_type=media_type)
    return target(media_type, data=part.data, url=part.url, file_id=part.file_id, native=_cache_marks(part.native))


def _type_of(part: _Medium) -> str:
    """The type that a medium states, else that of its bytes; empty if neither is known."""
    if part.media_type:
        return part.media_type.partition(";")[0].lower()
    if part.data:
        return sniff_base64(part.data)
    if part.url.startswith("data:"):
        parsed = parse_data_url(part.url)
        return parsed.media_type.lower() if parsed else ""
    return "text/plain" if type(part) is Document and part.text else ""


def _kind_of(part: _Medium) -> MediaKind:
    """The kind of a medium. Audio and video may be in a document, since there is no part for every kind."""
    by_type = _KIND_BY_PREFIX.get((_type_of(part) or media_type_of_url(part.url))[:6])
    return by_type if by_type in ("audio", "video") else _KINDS[type(part)]


def _text_of(document: Document) -> str:
    if document.text or not is_text_type(_type_of(document)):
        return document.text
    return decode_text(inline_source("", document.data, document.url)[1])


def _cache_marks(native: NativeExtras | None) -> NativeExtras | None:
    """The cache breakpoints of a part, which hold for what takes its place."""
    marks = {
        origin: {"cache_control": extras["cache_control"]}
        for origin, extras in (native or {}).items()
        if extras.get("cache_control") is not None
    }
    return marks or None


def _find_media(
    entries: Any, place: str, blocks: MediaBlocks, *, with_types: bool
) -> Iterator[tuple[str, MediaKind | None, str]]:
    """The path, the kind (None if unknown) and the type (empty if unknown) of each medium in a body."""
    stack = [(place, entries)]
    while stack:
        path, value = stack.pop()
        if isinstance(value, list):
            stack.extend((f"{path}[{index}]", value[index]) for index in reversed(range(len(value))))
        elif isinstance(value, dict):
            block_type = value.get(blocks.tag)
            kind = blocks.kinds.get(block_type) if isinstance(block_type, str) else None
            if kind is not None or any(name in value for name in blocks.fields):
                media_type = blocks.type_of(value) if with_types or kind is None else ""
                yield path, _block_kind(kind, media_type), media_type
            else:
                stack.extend((f"{path}.{name}", value[name]) for name in reversed(blocks.containers) if name in value)


def _block_kind(kind: MediaKind | None, media_type: str) -> MediaKind | None:
    by_type = _KIND_BY_PREFIX.get(media_type[:6])
    if kind is None:  # one block for all kinds
        return by_type or ("document" if media_type else None)
    return by_type if kind == "document" and by_type in ("audio", "video") else kind
