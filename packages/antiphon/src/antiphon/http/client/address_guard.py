"""`AddressGuard`: which network addresses a URL written by a client may lead to.

A host name may resolve to another address each time, so addresses are judged at the last moment: `dial` asks for all that a name
resolves to, and again for each one just before it connects a socket to exactly that address. That covers names, addresses in the
URL in any spelling, and redirects. A name with any address that is not public is refused: an answer that mixes the two is an
attack or a mistake.

Public is everything outside the registries of special addresses: for IPv4 all that is not listed below, for IPv6 the global
unicast block without its special parts. Addresses that embed an IPv4 address are judged by that one, or refused if the scheme is
obsolete. The metadata addresses of clouds, which hold secrets, are in private blocks, with one exception.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import TypeAlias
from urllib.parse import urlsplit

from antiphon.errors import MediaFetchError
from antiphon.http.client.request import DEFAULT_PORTS

IpAddress: TypeAlias = IPv4Address | IPv6Address

WEB_PORTS = frozenset({80, 443})

_SPECIAL_IPV4 = tuple(
    map(
        IPv4Network,
        (
            "0.0.0.0/8",  # this network
            "10.0.0.0/8",
            "100.64.0.0/10",  # shared by the customers of a provider; Alibaba's metadata
            "127.0.0.0/8",
            "168.63.129.16/32",  # Azure's metadata, in the middle of public addresses
            "169.254.0.0/16",  # link-local; most clouds' metadata
            "172.16.0.0/12",
            "192.0.0.0/24",
            "192.0.2.0/24",
            "192.88.99.0/24",
            "192.168.0.0/16",
            "198.18.0.0/15",
            "198.51.100.0/24",
            "203.0.113.0/24",
            "224.0.0.0/4",  # multicast
            "240.0.0.0/4",  # reserved, and broadcast
        ),
    )
)
_GLOBAL_IPV6 = IPv6Network("2000::/3")
_SPECIAL_IPV6 = tuple(
    map(
        IPv6Network,
        (
            "2001::/23",  # protocols; Teredo, which embeds IPv4 addresses
            "2001:db8::/32",
            "2002::/16",  # 6to4, which embeds IPv4 addresses
            "3fff::/20",
            "3ffe::/16",
        ),
    )
)
_NAT64 = IPv6Network("64:ff9b::/96")


def is_public(address: IpAddress) -> bool:
    """Whether an address is public."""
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _SPECIAL_IPV4)
    if address in _NAT64:
        return is_public(IPv4Address(int(address) & 0xFFFFFFFF))
    return address in _GLOBAL_IPV6 and not any(address in network for network in _SPECIAL_IPV6)


class AddressGuard:
    """Refuses URLs and addresses. `allow` may permit an address that is not public; `ports` are the allowed ports."""

    def __init__(
        self,
        *,
        allow: Callable[[IpAddress], bool] | None = None,
        ports: Container[int] = WEB_PORTS,
    ) -> None:
        self._allow = allow
        self._ports = ports

    def check_url(self, url: str) -> None:
        """Refuse a URL that can be refused without the network. Raises `MediaFetchError`."""
        try:
            parts = urlsplit(url)
            if parts.scheme not in ("http", "https"):
                raise MediaFetchError("only http and https URLs are fetched")
            if "@" in parts.netloc:
                raise MediaFetchError("URLs with a user name or password are not fetched")
            port = parts.port or DEFAULT_PORTS[parts.scheme]
        except ValueError:
            raise MediaFetchError("invalid URL") from None
        if not parts.hostname:
            raise MediaFetchError("the URL has no host")
        if port not in self._ports:
            raise MediaFetchError(f"port {port} is not allowed for media")

    def check(self, text: str, port: int) -> None:
        """Refuse an address that is not public, or a port. Raises `AddressBlocked`. No connection is made without this check."""
        try:
            address = ip_address(text.partition("%")[0])
        except ValueError:
            raise AddressBlocked from None
        is_allowed = is_public(address) or (self._allow is not None and self._allow(address))
        if not is_allowed or port not in self._ports:  # another parser may read another port from the same URL
            raise AddressBlocked


class AddressBlocked(OSError):
    """An address that must not be connected to."""
