"""Where a request goes and how it starts: `parse_url` splits a URL, `request_head` writes the request line and headers.

URLs come from configurations and from clients. Characters that a request line cannot carry are escaped; what cannot be a URL is
refused. Host names in other scripts become their ASCII form (IDNA), so that the name that is resolved is the name that is sent.
Headers that many requests have in common are `SharedHeaders`: with them a head is written once for each address.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote, urlsplit

from antiphon import __version__
from antiphon.errors import TransportError
from antiphon.http.client.request import DEFAULT_PORTS, HttpRequest, Origin, transport_error
from antiphon.http.headers import CODEC, ERRORS, write_fields

_DEFAULTS = {"user-agent": f"antiphon/{__version__}", "accept-encoding": "identity"}
"""Headers of every request, besides its host. The caller's values replace them, and the host."""
_COMPUTED = frozenset({"content-length", "transfer-encoding"})
_BODILESS_METHODS = ("GET", "HEAD", "OPTIONS", "DELETE")
_MAX_KEPT = 64
_SAFE = "/:@!$&'()*+,;=-._~%?[]"
_is_host = re.compile(r"[A-Za-z0-9_.-]+|[0-9A-Fa-f:.]+(?:%[A-Za-z0-9_.-]+)?").fullmatch
_is_method = re.compile(r"[A-Z]{3,16}").fullmatch
_header_breaks = re.compile(r"[\r\n\0]").search


class ParsedUrl(NamedTuple):
    """An origin and the path with the query, as a request line carries it."""

    origin: Origin
    target: str


@lru_cache(maxsize=1024)
def parse_url(url: str) -> ParsedUrl:
    """The parts of a URL. Raises `ValueError`."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if not host.isascii():
        host = host.encode("idna").decode()  # a UnicodeError is a ValueError
    if parts.scheme not in DEFAULT_PORTS or not _is_host(host) or "@" in parts.netloc:
        raise ValueError("not an http or https URL")
    target = parts.path or "/"
    target = f"{target}?{parts.query}" if parts.query else target
    return ParsedUrl(Origin(parts.scheme, host, parts.port or DEFAULT_PORTS[parts.scheme]), quote(target, safe=_SAFE))


class SharedHeaders(dict[str, str]):
    """The headers of all requests with one key. They do not change, so the heads that were written with them are kept."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        super().__init__(headers)
        self.heads: dict[tuple[str, str, Origin], str] = {}


def request_head(request: HttpRequest, target: str, origin: Origin, more: Mapping[str, str] | None = None) -> bytes:
    """The head of a request. Raises `TransportError` if it contains what HTTP does not allow."""
    method, headers, body = request.method, request.headers, request.body
    try:
        if type(headers) is SharedHeaders and not more:
            start = headers.heads.get((method, target, origin)) or _kept_start(method, target, origin, headers)
        else:
            start = _start(method, target, origin, headers, more)
        if request.stream is not None:
            length = request.stream_length
            framing = "transfer-encoding: chunked\r\n" if length is None else f"content-length: {length}\r\n"
        else:
            size = len(body[0]) if len(body) == 1 else sum(map(len, body))
            framing = f"content-length: {size}\r\n" if size or method not in _BODILESS_METHODS else ""
        return f"{start}{framing}\r\n".encode(CODEC, ERRORS)
    except ValueError:  # also of a text that no codec can write
        raise _invalid(request) from None


def _kept_start(method: str, target: str, origin: Origin, headers: SharedHeaders) -> str:
    if len(headers.heads) >= _MAX_KEPT:
        headers.heads.clear()
    start = headers.heads[method, target, origin] = _start(method, target, origin, headers)
    return start


def _start(
    method: str, target: str, origin: Origin, headers: Mapping[str, str], more: Mapping[str, str] | None = None
) -> str:
    """A head up to its length. The caller's own values of our headers are used. Raises `ValueError`."""
    if not _is_method(method):
        raise ValueError("not a method")
    fields = {"host": origin.authority, **_DEFAULTS}
    for name, value in headers.items():
        known = name.lower()
        if known not in _COMPUTED:
            fields[known if known in fields else name] = value
    if more:
        fields.update(more)
    return f"{method} {target} HTTP/1.1\r\n{write_fields(fields)}"


def _invalid(request: HttpRequest) -> TransportError:
    for name, value in request.headers.items():
        if _header_breaks(name + value):
            return transport_error("invalid_header", request.host, request.timeouts, repr(name[:80]))
    return transport_error("invalid_url", request.host, request.timeouts)
