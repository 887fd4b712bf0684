"""`PageFiles`: the page. A file is found in the list of those that are there, never by the path that was asked for."""

from __future__ import annotations

import hashlib
from pathlib import Path

from antiphon.gateway.http.messages import Answer, ClientRequest
from antiphon.web.refusal import Refused

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".json": "application/json",
}


class PageFiles:
    """The files of a folder."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or Path(__file__).with_name("page")

    def answer(self, request: ClientRequest, name: str) -> Answer:
        """The file of that name, or word that the browser has it already."""
        path = self._files().get(name)
        if path is None:
            raise Refused(f"there is no file {name[:80]!r} of the page", 404, "not_found")
        body = path.read_bytes()
        tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        headers = {
            "content-type": _TYPES[path.suffix],
            "content-security-policy": POLICY,
            "etag": tag,
            "cache-control": "no-cache",  # asked again each time, and answered with "you have it"
        }
        known = [one.strip().removeprefix("W/") for one in request.headers.get("if-none-match", "").split(",")]
        if tag in known or "*" in known:
            return Answer(status=304, headers=headers)
        return Answer(headers=headers, body=body)

    def _files(self) -> dict[str, Path]:
        return {
            path.relative_to(self._folder).as_posix(): path
            for path in self._folder.rglob("*")
            if path.suffix in _TYPES and path.is_file()
        }
