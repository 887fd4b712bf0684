"""Which web pages may call this server: the rules on `Host`, `Origin` and `Sec-Fetch-Site`, for gateway and chat alike.

A server without keys trusts every user of this machine, and a browser on this machine runs pages of strangers. Two checks keep
them out:

- `Host` must be a name of this machine. A page whose own name was made to resolve to 127.0.0.1 (DNS rebinding) still sends that
  name.
- `Origin` and `Sec-Fetch-Site`, which a page cannot change, must not name another site.

Programs that are not browsers send neither of the last two. `gateway.allowed_hosts` and `gateway.allowed_origins` add names
that are legitimate.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import urlsplit

from msgspec import Struct

from antiphon.gateway.access.client_keys import is_loopback
from antiphon.gateway.config.settings import GatewaySettings

_OWN_SITE = frozenset({"same-origin", "none"})
"""Values of `Sec-Fetch-Site` for our own page, and for a URL that the user typed."""
_MAX_HOST_LENGTH = 300


class OriginRules(Struct, frozen=True):
    """The allowed names: `host` is where the server listens, `hosts` and `origins` come from the configuration."""

    host: str = "127.0.0.1"
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()

    @classmethod
    def of(cls, settings: GatewaySettings) -> OriginRules:
        """The rules of a configuration."""
        return cls(settings.host, settings.allowed_hosts, settings.allowed_origins)


def host_problem(headers: Mapping[str, str], rules: OriginRules) -> str:
    """Why a request for that `Host` is refused; empty if it is not."""
    host = headers.get("host", "")
    if len(host) <= _MAX_HOST_LENGTH and _is_allowed_host(host, rules):
        return ""
    return (
        "without client keys only requests to a name of this machine are answered (localhost, 127.0.0.1); "
        "add this Host to gateway.allowed_hosts, or add gateway.client_keys"
    )


def site_problem(headers: Mapping[str, str], rules: OriginRules) -> str:
    """Why a request from a web page is refused; empty if it is not from a page, or from our own or an allowed one."""
    origin, site = headers.get("origin"), headers.get("sec-fetch-site", "")
    if origin is None and not site:
        return ""
    if origin is not None and origin.lower() in map(str.lower, rules.origins):
        return ""
    if site and site.lower() not in _OWN_SITE:
        return "requests from the web page of another site are refused; add its origin to gateway.allowed_origins"
    if origin is not None and not _is_same_origin(origin, headers.get("host", "")):
        return "requests from a web page of another origin are refused; add its origin to gateway.allowed_origins"
    return ""


@lru_cache(maxsize=64)
def _is_allowed_host(host: str, rules: OriginRules) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname
    except ValueError:
        return False
    if not name:
        return False
    known = (rules.host, *rules.hosts)
    return name == "localhost" or is_loopback(name) or name in {one.strip("[]").lower() for one in known}


def _is_same_origin(origin: str, host: str) -> bool:
    """Whether an origin is that of the host. The scheme may differ: a reverse proxy may add TLS."""
    try:
        parts = urlsplit(origin.lower())
        return parts.scheme in ("http", "https") and bool(host) and parts.netloc == host.lower()
    except ValueError:
        return False
