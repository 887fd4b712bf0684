"""What bytes are, told by how they begin: pictures, sound, PDF and text, and nothing else.

A header is believed only where the bytes leave it open: text has no beginning of its own, and WebM and MP4 hold sound or video.
Markup is text here, whatever its header calls it; an SVG is no picture a model takes.
"""

from __future__ import annotations

_BEGINNINGS: tuple[tuple[bytes, str], ...] = (
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
_IN_RIFF = {b"WEBP": "image/webp", b"WAVE": "audio/wav"}
_IN_FORM = {b"AIFF": "audio/aiff", b"AIFC": "audio/aiff"}
_BRANDS = {
    b"heic": "image/heic",
    b"heix": "image/heic",
    b"mif1": "image/heif",
    b"msf1": "image/heif",
    b"avif": "image/avif",
    b"M4A ": "audio/mp4",
    b"M4B ": "audio/mp4",
}
_MATROSKA = b"\x1a\x45\xdf\xa3"
_MEDIA_IN_TEXT = frozenset({"application/json", "application/xml", "application/yaml", "application/x-yaml", ""})
_FAMILIES = ("image/", "audio/")


def media_type_of(data: bytes, declared: str = "") -> str | None:
    """The media type of `data`; None if it is nothing that is taken. `declared` is the content type it came with."""
    declared = declared.partition(";")[0].strip().lower()
    return _by_beginning(data, declared) or _as_text(data, declared)


def _by_beginning(data: bytes, declared: str) -> str | None:
    for beginning, kind in _BEGINNINGS:
        # Two letters begin many a text: a bitmap also says its own size.
        if data.startswith(beginning) and (kind != "image/bmp" or int.from_bytes(data[2:6], "little") == len(data)):
            return kind
    head, inner = data[:4], data[8:12]
    if head == b"RIFF":
        return _IN_RIFF.get(inner)
    if head == b"FORM":
        return _IN_FORM.get(inner)
    if data[4:8] == b"ftyp":
        return _BRANDS.get(inner) or ("audio/mp4" if declared in ("audio/mp4", "audio/m4a", "audio/x-m4a") else None)
    if head == _MATROSKA:
        return "audio/webm" if declared == "audio/webm" else None
    is_frame = len(data) > 3 and data[0] == 0xFF and data[1] & 0xE6 == 0xE2  # a frame of MPEG audio, layer III
    return "audio/mpeg" if is_frame else None


def _as_text(data: bytes, declared: str) -> str | None:
    """A text type, if it is declared as one or as nothing, and is nothing but UTF-8."""
    is_text = declared.startswith("text/") or declared in _MEDIA_IN_TEXT or declared.endswith(("+xml", "+json"))
    if not is_text or not data or b"\0" in data:
        return None
    try:
        data.decode()
    except UnicodeDecodeError:
        return None
    return declared if declared.startswith("text/") else "text/plain"
