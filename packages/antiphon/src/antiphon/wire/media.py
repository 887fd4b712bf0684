"""Media in requests: data URLs, base64 by the signature of its first bytes, addresses, and OpenAI's names of audio formats."""

from __future__ import annotations

import re
from base64 import b64decode
from typing import NamedTuple

from antiphon.media_types import EXTENSIONS, sniff_signature
from antiphon.media_types import is_text_type as is_text_type

_EXTENSION_BY_TYPE = {media_type: extension for extension, media_type in reversed(EXTENSIONS.items())}
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
    if data and not data.startswith("data:"):
        return media_type, data
    for source in (data, url):
        parsed = parse_data_url(source) if source.startswith("data:") else None
        if parsed is not None and parsed.is_base64:
            return media_type or parsed.media_type, parsed.data
    return "", ""


def decode_text(data: str) -> str:
    """The text in base64 `data`; empty if it is not UTF-8."""
    try:
        return b64decode(data, validate=True).decode()
    except ValueError:
        return ""


def data_url(media_type: str, data: str) -> str:
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
        return sniff_signature(b64decode(head[: len(head) // 4 * 4])) or ""
    except ValueError:
        return ""


def same_media_types(media_type: str) -> tuple[str, ...]:
    """The names in use for a type, its own among them, the usual one first; empty if it has only one."""
    return next((names for names in _SAME_TYPES if media_type in names), ())


def media_type_of_url(url: str) -> str:
    """The media type that the extension of an address suggests; empty if unknown."""
    return EXTENSIONS.get(url.partition("#")[0].partition("?")[0].rpartition(".")[2].lower(), "")


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
