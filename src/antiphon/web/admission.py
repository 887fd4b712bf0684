"""`Admission`: whose request it is, and whether a page of ours sent it.

- Without keys only this machine is served, and only under a name that is this machine's: a page of somebody else's whose name was
  made to lead here (DNS rebinding) still says that name in `Host`, and is refused.
- With keys, everything but the page itself needs one.
- What changes something must come from our own page (CSRF): as JSON, with a header of ours, neither of which a form or a plain
  cross-site request can send without asking first, and nobody here says yes; and what a browser tells of where it comes from
  (`Origin`, `Sec-Fetch-Site`) must agree. What only reads is safe behind the same-origin rule, and refused to other sites all
  the same.
"""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlsplit

from antiphon.gateway.client_keys import ClientKey, ClientKeys, is_loopback
from antiphon.gateway.message import ClientRequest
from antiphon.web.refusal import Refused

HEADER = "x-antiphon-chat"
READING = frozenset({"GET", "HEAD"})
_ANYBODY = ClientKey(name="")
_OURS = ("same-origin", "none")
"""What `Sec-Fetch-Site` says of our own page, and of somebody who typed the address."""


class Admission:
    """Decides by the keys in force. `host` is where the server listens."""

    def __init__(self, keys: Callable[[], ClientKeys], host: Callable[[], str] = lambda: "127.0.0.1") -> None:
        self._keys = keys
        self._host = host

    @property
    def needs_key(self) -> bool:
        """Whether somebody without a key is refused."""
        return not self._keys().is_open

    def check_place(self, request: ClientRequest) -> None:
        """Whether somebody at that address, asking for that host, is served at all. Raises `Refused`."""
        keys = self._keys()
        if not keys.is_open:
            return
        if not keys.allows(request.peer):
            raise Refused("without client keys only this machine is served; add client_keys", 403, "forbidden")
        name = _host_name(request.headers.get("host", ""))
        if name is None or not (name == "localhost" or is_loopback(name) or name == self._host().lower()):
            raise Refused("without client keys this is served under the names of this machine only", 403, "forbidden")

    def check_caller(self, request: ClientRequest) -> ClientKey:
        """Whose request to the API it is. Raises `Refused`."""
        if request.method in READING:
            _check_site(request)
        else:
            _check_change(request)
        keys = self._keys()
        if keys.is_open:
            return _ANYBODY
        headers = request.headers
        # Not from the query: addresses are kept in too many places.
        key = keys.check(headers.get("authorization"), headers.get("x-api-key"))
        if key is None:
            raise Refused("the key is missing or not known here", 401, "invalid_api_key")
        return key


def _check_change(request: ClientRequest) -> None:
    _check_site(request)
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise Refused("send content-type: application/json", 415, "unsupported_media")
    if request.headers.get(HEADER) != "1":
        raise Refused(f"send the header {HEADER}: 1; it shows that a page of ours asks", 403, "forbidden")


def _check_site(request: ClientRequest) -> None:
    site = request.headers.get("sec-fetch-site", "").lower()
    if site and site not in _OURS:
        raise Refused("another site's page asks; only our own page may", 403, "forbidden")
    origin = request.headers.get("origin")
    if origin is not None and not _is_same(origin, request.headers.get("host", "")):
        raise Refused("a page of another origin asks; only our own page may", 403, "forbidden")


def _is_same(origin: str, host: str) -> bool:
    """Whether an origin is that of the host. The scheme may differ: a proxy in front may speak TLS."""
    try:
        parts = urlsplit(origin.lower())
        return parts.scheme in ("http", "https") and bool(host) and parts.netloc == host.lower()
    except ValueError:
        return False


def _host_name(host: str) -> str | None:
    """The name in a `Host` header, without port and brackets."""
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None
