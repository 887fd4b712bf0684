"""Which web pages may call this server: the rules on `Host`, `Origin` and `Sec-Fetch-Site`, for gateway and chat alike.

A server without keys trusts every user of this machine. A proxy on this machine forwards requests of strangers, and a browser on
it runs pages of strangers. Three checks keep them out:

- No header may say that a proxy forwarded the request.
- `Host` must be a name of this machine. With DNS rebinding a page still sends the name that was made to resolve to 127.0.0.1.
- `Origin` and `Sec-Fetch-Site`, which a page cannot change, must not name another site.

Programs that are not browsers send neither of the last two. `OriginRules` adds names that are legitimate. Pages of the allowed
origins also get the CORS headers without which a browser hides the response.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from urllib.parse import urlsplit

from msgspec import Struct

from antiphon.http.messages import ClientRequest, Response

_OWN_SITE = frozenset({"same-origin", "none"})
"""Values of `Sec-Fetch-Site` for our own page, and for a URL that the user typed."""
_FORWARDING = frozenset({"forwarded", "via", "x-real-ip", "x-client-ip", "true-client-ip", "cf-connecting-ip"})
"""Headers that proxies add, besides `x-forwarded-…`. They can be forged, so they only ever take rights away."""
_MAX_HOST_LENGTH = 300
_PREFLIGHT_SECONDS = 600


class OriginRules(Struct, frozen=True):
    """The allowed names: `host` is where the server listens, `hosts` and `origins` come from the configuration.

    `section` is where people set them (`client_keys`, `allowed_hosts`, `allowed_origins`), for the advice in a refusal.
    """

    host: str = "127.0.0.1"
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    section: str = ""

    def advise(self, advice: str) -> str:
        """The end of a refusal: what to set, if there is anything to set."""
        return "; " + advice.replace("$", f"{self.section}.") if self.section else ""


@lru_cache(maxsize=1024)
def is_loopback(peer: str) -> bool:
    """Whether an address is a loopback address of this machine."""
    try:
        address = ip_address(peer.partition("%")[0])
    except ValueError:
        return False
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return address.is_loopback


def local_problem(headers: Mapping[str, str], rules: OriginRules) -> str:
    """Why a server without keys refuses a request by its headers: a proxy forwarded it, or its `Host` is not ours; or empty."""
    if not _FORWARDING.isdisjoint(headers) or "x-forwarded-" in " ".join(headers):
        problem = "without client keys only programs on this machine are answered, and a proxy forwarded this request"
        return problem + rules.advise("add $client_keys")
    host = headers.get("host", "")
    if len(host) <= _MAX_HOST_LENGTH and _is_allowed_host(host, rules):
        return ""
    problem = "without client keys only requests to a name of this machine are answered (localhost, 127.0.0.1)"
    return problem + rules.advise("add this Host to $allowed_hosts, or add $client_keys")


def site_problem(headers: Mapping[str, str], rules: OriginRules) -> str:
    """Why a request from a web page is refused; empty if it is not from a page, or from our own or an allowed one."""
    origin, site = headers.get("origin"), headers.get("sec-fetch-site", "")
    if origin is None and not site:
        return ""
    if origin is not None and is_allowed_origin(origin, rules.origins):
        return ""
    if site and site.lower() not in _OWN_SITE:
        problem = "requests from the web page of another site are refused"
    elif origin is not None and not _is_same_origin(origin, headers.get("host", "")):
        problem = "requests from a web page of another origin are refused"
    else:
        return ""
    return problem + rules.advise("add its origin to $allowed_origins")


def is_allowed_origin(origin: str, origins: tuple[str, ...]) -> bool:
    """Whether an origin is one of those in the configuration."""
    return origin.lower() in map(str.lower, origins)


def cors_headers(origin: str, origins: tuple[str, ...], exposed: str) -> dict[str, str]:
    """The headers with which a browser shows a response to a page of an allowed origin; `exposed` are those that it may read."""
    if not is_allowed_origin(origin, origins):
        return {"vary": "Origin"}
    return {"access-control-allow-origin": origin, "access-control-expose-headers": exposed, "vary": "Origin"}


def preflight_response(request: ClientRequest, methods: tuple[str, ...], origins: tuple[str, ...]) -> Response | None:
    """The answer to a browser that asks whether a page may send a request; None if it does not ask, or may not.

    The origin itself is in `cors_headers`, as in every other response.
    """
    headers = request.headers
    if request.method != "OPTIONS" or "access-control-request-method" not in headers:
        return None
    if not is_allowed_origin(headers.get("origin", ""), origins):
        return None
    answer = {
        "access-control-allow-methods": ", ".join(methods),
        "access-control-max-age": str(_PREFLIGHT_SECONDS),
    }
    if requested := headers.get("access-control-request-headers"):
        answer["access-control-allow-headers"] = requested
    if headers.get("access-control-request-private-network") == "true":
        answer["access-control-allow-private-network"] = "true"
    return Response(status=204, headers=answer)


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
