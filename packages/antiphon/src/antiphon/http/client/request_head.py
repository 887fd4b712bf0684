"""Where a request goes and how it starts: `parse_url` splits a URL, `request_head` writes the request line and headers.

URLs come from configurations and from clients. Characters that a request line cannot carry are escaped; what cannot be a URL is
refused. Host names in other scripts become their ASCII form (IDNA), so that the name that is resolved is the name that is sent.
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
from antiphon.http.header_fields import CODEC, ERRORS

_USER_AGENT = f"user-agent: antiphon/{__version__}\r\n"
_PLAIN = "accept-encoding: identity\r\n"
_OWN_HEADERS = frozenset({"user-agent", "accept-encoding", "host", "content-length", "transfer-encoding"})
"""Headers that are written here. The caller's value of the first three replaces ours; the others are computed."""
_BODILESS_METHODS = ("GET", "HEAD", "OPTIONS", "DELETE")
_SAFE = "/:@!$&'()*+,;=-._~%?[]"
_is_host = re.compile(r"[A-Za-z0-9_.-]+|[0-9A-Fa-f:.]+(?:%[A-Za-z0-9_.-]+)?").fullmatch
_is_method = re.compile(r"[A-Z]{3,16}").fullmatch
_field = "%s: %s\r\n".__mod__
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


def request_head(request: HttpRequest, target: str, origin: Origin, more: Mapping[str, str] | None = None) -> bytes:
    """The head of a request. Raises `TransportError` if it contains what HTTP does not allow."""
    method, headers, body = request.method, request.headers, request.body
    try:
        start = _start(method, target, origin, tuple(headers))
        if not start:
            start, headers = _merge(method, target, origin, headers)
        if more:
            headers = {**headers, **more}
        fields = "".join(map(_field, headers.items()))
        breaks = len(headers)
        if fields.count("\n") != breaks or fields.count("\r") != breaks or "\0" in fields:
            raise _invalid(request)
        if request.stream is not None:
            length = request.stream_length
            framing = "transfer-encoding: chunked\r\n" if length is None else f"content-length: {length}\r\n"
        else:
            size = len(body[0]) if len(body) == 1 else sum(map(len, body))
            framing = f"content-length: {size}\r\n" if size or method not in _BODILESS_METHODS else ""
        return f"{start}{fields}{framing}\r\n".encode(CODEC, ERRORS)
    except ValueError:  # also of a text that no codec can write
        raise _invalid(request) from None


@lru_cache(maxsize=1024)
def _start(method: str, target: str, origin: Origin, names: tuple[str, ...]) -> str:
    """The start of a head whose other headers have these names; empty if some of them are ours."""
    if not _is_method(method):
        raise ValueError("not a method")
    if not _OWN_HEADERS.isdisjoint(map(str.lower, names)):
        return ""
    return f"{method} {target} HTTP/1.1\r\nhost: {origin.authority}\r\n{_USER_AGENT}{_PLAIN}"


def _merge(method: str, target: str, origin: Origin, headers: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """The start of a head, and the other headers, of a request with its own values of ours."""
    given = {name.lower(): value for name, value in headers.items() if name.lower() in _OWN_HEADERS}
    host = given.get("host", origin.authority)
    if _header_breaks(host):
        raise ValueError("the host header contains a line break")
    start = f"{method} {target} HTTP/1.1\r\nhost: {host}\r\n"
    others = {name: value for name, value in headers.items() if name.lower() not in _OWN_HEADERS}
    for name, default in (("user-agent", _USER_AGENT), ("accept-encoding", _PLAIN)):
        if name in given:
            others[name] = given[name]
        else:
            start += default
    return start, others


def _invalid(request: HttpRequest) -> TransportError:
    for name, value in request.headers.items():
        if _header_breaks(name + value):
            return transport_error("invalid_header", request.host, request.timeouts, repr(name[:80]))
    return transport_error("invalid_url", request.host, request.timeouts)
