"""`PageFiles`: the files of a page, as they are sent to a browser.

The modules are one script and the style sheets one sheet (`bundle.py`), both compressed. The page itself is revalidated each
time; it names everything else with the digest of its content, which a browser may then keep for good. Files of the page's own
folder come before those that all pages share.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from antiphon.http.messages import ClientRequest, Response
from antiphon.page.bundle import SHARED, bundle_script, bundle_styles, modules_of

SECURITY_HEADERS: Mapping[str, str] = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}
"""What every response of a page has: no guessing of types, no framing, no referrer."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Only our own files run or style a page, and no other page frames it."""
SANDBOX = (
    "sandbox allow-scripts; default-src 'none'; script-src 'self'; style-src 'unsafe-inline'; frame-ancestors 'self'"
)
"""For what draws untrusted text: a frame with an origin of its own, which reaches nothing. Its files are for another origin."""
SCRIPT, STYLES = "page.js", "page.css"

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".json": "application/json",
    ".woff2": "font/woff2",
}
_COMPRESSED = frozenset({".woff2", ".png"})
_REFERENCE = re.compile(rb'(?P<before>(?:href|src)="(?:[\w./-]*/)?page/|url\()(?P<name>[\w./-]+\.\w+)(?P<after>"|\))')
_FOREVER = "public, max-age=31536000, immutable"


class PageFile(Struct, frozen=True):
    """A file as it is sent. `packed` is its content compressed by gzip, empty if that is not smaller."""

    kind: str
    body: bytes
    packed: bytes
    tag: str


class PageFiles:
    """The files of the page in `folder`: `main.js` with what it imports, `styles` as one sheet, and every other file there.

    They are read when they are first asked for; after a change of a source file, again. Files in the folder `sandboxed` are those
    of a frame that the page has (`SANDBOX`).
    """

    def __init__(self, folder: Path, styles: Sequence[str], *, policy: str = POLICY, sandboxed: str = "") -> None:
        self._folder = folder
        self._styles = styles
        self._policy = f"{policy}; frame-src 'self'" if sandboxed else policy
        self._sandboxed = sandboxed
        self._sent: dict[str, tuple[dict[Path, int], PageFile]] = {}
        """The files with what they are made of, and when that was last changed."""

    def answer(self, request: ClientRequest, name: str) -> Response | None:
        """The response with the file of that name, 304 if the browser has it, or None if there is no such file."""
        file = self.read(name)
        if file is None:
            return None
        headers = {**SECURITY_HEADERS, "content-type": file.kind, "etag": f'"{file.tag}"', "vary": "Accept-Encoding"}
        headers["cache-control"] = _FOREVER if request.query.get("v") == file.tag else "no-cache"
        is_sandboxed = bool(self._sandboxed) and name.startswith(f"{self._sandboxed}/")
        if is_sandboxed:
            headers |= {"x-frame-options": "SAMEORIGIN", "cross-origin-resource-policy": "cross-origin"}
        if file.kind.startswith("text/html"):
            headers["content-security-policy"] = SANDBOX if is_sandboxed else self._policy
        known = [
            one.strip().removeprefix("W/").strip('"') for one in request.headers.get("if-none-match", "").split(",")
        ]
        if file.tag in known or "*" in known:
            return Response(status=304, headers=headers)
        if file.packed and "gzip" in request.headers.get("accept-encoding", ""):
            return Response(headers={**headers, "content-encoding": "gzip"}, body=file.packed)
        return Response(headers=headers, body=file.body)

    def read(self, name: str) -> PageFile | None:
        """The file of that name, made again if a file that it is made of has changed."""
        known = self._sent.get(name)
        if known is None or not _are_unchanged(known[0]):
            sources = self._sources(name)
            if not sources:
                return None
            changed = {source: source.stat().st_mtime_ns for source in sources}
            known = self._sent[name] = (changed, self._made(name, sources))
        return known[1]

    def _sources(self, name: str) -> list[Path]:
        if name == SCRIPT:
            return modules_of(self._folder / "main.js")
        if name == STYLES:
            return [path for style in self._styles for path in [self._file(style)] if path is not None]
        path = self._file(name)
        if path is None or path.suffix not in _TYPES:
            return []
        # A page has the digests of everything it names.
        return [path, *self._sources(SCRIPT), *self._sources(STYLES)] if path.suffix == ".html" else [path]

    def _file(self, name: str) -> Path | None:
        for folder in (self._folder, SHARED):
            path = (folder / name.replace("\0", "?")).resolve()
            if os.path.isfile(path) and path.is_relative_to(folder.resolve()):  # a name may be too long for a file
                return path
        return None

    def _made(self, name: str, sources: Sequence[Path]) -> PageFile:
        suffix = Path(name).suffix
        if name == SCRIPT:
            body = bundle_script(sources[-1])
        elif name == STYLES:
            body = bundle_styles(sources)
        else:
            body = sources[0].read_bytes()
        if suffix == ".js" and name != SCRIPT:  # a module alone, as the tests load it
            body = body.replace(b'"antiphon/', b'"./' + b"../" * name.count("/"))
        if suffix in (".html", ".css"):
            body = _REFERENCE.sub(self._with_digest, body)
        packed = b"" if suffix in _COMPRESSED else gzip.compress(body, 9, mtime=0)
        tag = hashlib.sha256(body).hexdigest()[:24]
        return PageFile(_TYPES[suffix], body, packed if len(packed) < len(body) else b"", tag)

    def _with_digest(self, found: re.Match[bytes]) -> bytes:
        file = self.read(found["name"].decode())
        digest = b"?v=" + file.tag.encode() if file is not None else b""
        return found["before"] + found["name"] + digest + found["after"]


def _are_unchanged(sources: Mapping[Path, int]) -> bool:
    try:
        return all(source.stat().st_mtime_ns == changed for source, changed in sources.items())
    except FileNotFoundError:
        return False
