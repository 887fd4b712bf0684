"""What kind of data it is: media types by content and by the ending of a name.

Content decides: bytes are recognised by their signature. A declared type counts only where the bytes leave it open: text has no
signature, and WebM and MP4 hold audio or video. Markup is text, whatever type was declared; no model accepts SVG as an image.
"""

from __future__ import annotations

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
EXTENSIONS = {
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
"""The usual type of files by the ending of their names."""


def is_text_type(media_type: str) -> bool:
    """Whether data of this type is text."""
    return media_type.startswith("text/") or media_type in _TEXT_TYPES or media_type.endswith(("+xml", "+json"))


def sniff_bytes(data: bytes, declared: str = "") -> str | None:
    """The media type of `data`; None if it is not supported. `declared` is the content type it came with."""
    declared = declared.partition(";")[0].strip().lower()
    return sniff_signature(data, declared) or _as_text(data, declared)


def sniff_signature(data: bytes, declared: str = "") -> str | None:
    """The media type of data with a signature; None if it has none that is known."""
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
