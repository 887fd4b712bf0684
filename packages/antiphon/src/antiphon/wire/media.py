"""Media: data URLs, media types by content, by extension and by audio format name.

Content decides the type: bytes are recognised by their signature, base64 by the signature of its first bytes. A declared type
counts only where the bytes leave it open: text has no signature, and WebM and MP4 hold audio or video. Markup is text, whatever
type was declared; no model accepts SVG as an image.
"""

from __future__ import annotations

import re
from base64 import b64decode
from typing import NamedTuple

_SIGNATURES: tuple[tuple[bytes, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"II*\0", "image/tiff"),
    (b"MM\0*", "image/tiff"),
    (b"BM", "image/bmp"),
    (b"%PDF-", "application/pdf"),
    (b"ID3\x02", "audio/mpeg"),
    (b"ID3\x03", "audio/mpeg"),
    (b"ID3\x04", "audio/mpeg"),
    (b"OggS", "audio/ogg"),
    (b"fLaC", "audio/flac"),
    (b"\xff\xf1", "audio/aac"),
    (b"\xff\xf9", "audio/aac"),
)
_RIFF_TYPES = {b"WEBP": "image/webp", b"WAVE": "audio/wav"}
_AIFF_TYPES = {b"AIFF": "audio/aiff", b"AIFC": "audio/aiff"}
_MP4_BRANDS = {
    b"heic": "image/heic",
    b"heix": "image/heic",
    b"mif1": "image/heif",
    b"msf1": "image/heif",
    b"avif": "image/avif",
    b"M4A ": "audio/mp4",
    b"M4B ": "audio/mp4",
}
_MATROSKA = b"\x1a\x45\xdf\xa3"
_TEXT_TYPES = frozenset({"application/json", "application/xml", "application/yaml", "application/x-yaml"})


_EXTENSIONS = {
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "gif": "image/gif",
    "webp": "image/webp",
    "heic": "image/heic",
    "pdf": "application/pdf",
    "txt": "text/plain",
    "md": "text/markdown",
    "csv": "text/csv",
    "html": "text/html",
    "mp3": "audio/mpeg",
    "wav": "audio/wav",
    "ogg": "audio/ogg",
    "flac": "audio/flac",
    "m4a": "audio/mp4",
    "aac": "audio/aac",
    "mp4": "video/mp4",
    "webm": "video/webm",
    "mov": "video/quicktime",
    "avi": "video/x-msvideo",
    "mkv": "video/x-matroska",
}
_EXTENSION_BY_TYPE = {media_type: extension for extension, media_type in reversed(_EXTENSIONS.items())}
_OFFICE = "application/vnd.openxmlformats-officedocument"
_EXTENSION_BY_TYPE |= {
    f"{_OFFICE}.wordprocessingml.document": "docx",
    f"{_OFFICE}.spreadsheetml.sheet": "xlsx",
    f"{_OFFICE}.presentationml.presentation": "pptx",
}
_AUDIO_FORMATS = {"mpeg": "mp3", "x-wav": "wav", "wave": "wav", "vnd.wave": "wav"}
_SAME_TYPES = (
    ("image/jpeg", "image/jpg", "image/pjpeg"),
    ("audio/mpeg", "audio/mp3"),
    ("audio/wav", "audio/x-wav", "audio/wave", "audio/vnd.wave"),
    ("audio/m4a", "audio/x-m4a", "audio/mp4"),
    ("video/mov", "video/quicktime"),
    ("video/avi", "video/x-msvideo"),
)
_SNIFFED_CHARACTERS = 64
_header = re.compile(r"data:([a-zA-Z0-9.+-]+/[a-zA-Z0-9.+-]+)?((?:;[^;,]{1,64}){0,4}),").match
_is_base64 = re.compile(r"[A-Za-z0-9+/=_\s%-]*").fullmatch


class DataUrl(NamedTuple):
    """The parts of a data URL. `parameters` is the text between the type and the data, without `;base64`."""

    media_type: str
    data: str
    parameters: str
    is_base64: bool


def parse_data_url(url: str) -> DataUrl | None:
    """Take a data URL apart without decoding it; None if it is not one."""
    header = _header(url, 0, 400)
    if header is None:
        return None
    parameters = header[2].removesuffix(";base64")
    return DataUrl(header[1] or "", url[header.end() :], parameters, parameters != header[2])


def inline_base64(url: str) -> DataUrl | None:
    """A data URL that is a media type and base64, and nothing else."""
    parsed = parse_data_url(url) if url.startswith("data:") else None
    return parsed if parsed and parsed.is_base64 and parsed.media_type and not parsed.parameters else None


def inline_source(media_type: str, data: str, url: str) -> tuple[str, str]:
    """The media type and the base64 of a medium that is inline, also in a data URL; both empty if it is not."""
    source = data or (url if url.startswith("data:") else "")
    if not source.startswith("data:"):
        return media_type if source else "", source
    parsed = parse_data_url(source)
    return (media_type or parsed.media_type, parsed.data) if parsed and parsed.is_base64 else ("", "")


def decode_text(data: str) -> str:
    """The text in base64 `data`; empty if it is not UTF-8."""
    try:
        return b64decode(data, validate=True).decode()
    except ValueError:
        return ""


def data_url(media_type: str, data: str) -> str:
    """A data URL of base64 `data`."""
    return f"data:{media_type};base64,{data}"


def is_web_url(url: str) -> bool:
    """Whether a provider could fetch this address."""
    return url.startswith(("https://", "http://"))


def looks_like_base64(data: str) -> bool:
    """Whether the beginning of `data` has only characters of base64."""
    return _is_base64(data[:_SNIFFED_CHARACTERS]) is not None


def sniff_base64(data: str) -> str:
    """The media type of base64 `data` by its signature; empty if unknown."""
    head = data[:_SNIFFED_CHARACTERS]
    try:
        return _by_signature(b64decode(head[: len(head) // 4 * 4]), "") or ""
    except ValueError:
        return ""


def same_media_types(media_type: str) -> tuple[str, ...]:
    """The names in use for a type, its own among them, the usual one first; empty if it has only one."""
    return next((names for names in _SAME_TYPES if media_type in names), ())


def is_text_type(media_type: str) -> bool:
    """Whether data of this type is text."""
    return media_type.startswith("text/") or media_type in _TEXT_TYPES or media_type.endswith(("+xml", "+json"))


def media_type_of_url(url: str) -> str:
    """The media type that the extension of an address suggests; empty if unknown."""
    return _EXTENSIONS.get(url.partition("#")[0].partition("?")[0].rpartition(".")[2].lower(), "")


def file_name(media_type: str) -> str:
    """A name for a document without one."""
    return f"document.{_EXTENSION_BY_TYPE.get(media_type) or media_type.rpartition('/')[2]}"


def audio_format(media_type: str) -> str:
    """OpenAI's name of an audio type: `audio/mpeg` is `mp3`."""
    name = media_type.removeprefix("audio/")
    return _AUDIO_FORMATS.get(name, name)


def audio_media_type(name: str) -> str:
    """The media type of OpenAI's audio format `name`."""
    return "audio/mpeg" if name == "mp3" else f"audio/{name}"


def sniff_bytes(data: bytes, declared: str = "") -> str | None:
    """The media type of `data`; None if it is not supported. `declared` is the content type it came with."""
    declared = declared.partition(";")[0].strip().lower()
    return _by_signature(data, declared) or _as_text(data, declared)


def _by_signature(data: bytes, declared: str) -> str | None:
    for signature, media_type in _SIGNATURES:
        # Many texts begin with "BM"; a bitmap also states its own size.
        if data.startswith(signature) and (
            media_type != "image/bmp" or int.from_bytes(data[2:6], "little") == len(data)
        ):
            return media_type
    head, inner = data[:4], data[8:12]
    if head == b"RIFF":
        return _RIFF_TYPES.get(inner)
    if head == b"FORM":
        return _AIFF_TYPES.get(inner)
    if data[4:8] == b"ftyp":
        return _MP4_BRANDS.get(inner) or (
            "audio/mp4" if declared in ("audio/mp4", "audio/m4a", "audio/x-m4a") else None
        )
    if head == _MATROSKA:
        return "audio/webm" if declared == "audio/webm" else None
    is_frame = len(data) > 3 and data[0] == 0xFF and data[1] & 0xE6 == 0xE2  # a frame of MPEG audio, layer III
    return "audio/mpeg" if is_frame else None


def _as_text(data: bytes, declared: str) -> str | None:
    """A text type, if declared as text or not at all, and valid UTF-8."""
    if (declared and not is_text_type(declared)) or not data or b"\0" in data:
        return None
    try:
        data.decode()
    except UnicodeDecodeError:
        return None
    return declared if declared.startswith("text/") else "text/plain"
