"""`NetworkEnvironment`: the proxies and certificates that the environment names, as most programs read them.

Proxies: `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY`, in lower case too. Certificates: `SSL_CERT_FILE`, `SSL_CERT_DIR`
and `REQUESTS_CA_BUNDLE`. `.netrc` is not read: it would send another account's password.
"""

from __future__ import annotations

import os
import ssl
from base64 import b64encode
from collections.abc import Mapping
from functools import cached_property
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from antiphon.errors import TransportError
from antiphon.http.client.request import DEFAULT_PORTS, Origin

_METADATA_HOSTS = ("metadata.google.internal", "fd00:ec2::23", "fd00:ec2::254")
"""Services of a machine in a cloud, beside those with a link-local address. They answer only to that machine."""


class Proxy(Struct, frozen=True):
    """An HTTP proxy. `authorization` is the value of its header, empty without credentials."""

    origin: Origin
    authorization: str = ""

    def __repr__(self) -> str:
        return f"<Proxy {self.origin.authority}>"  # without its password


class NetworkEnvironment:
    """Proxies and certificates of `environ`, by default the process's."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self._environ = os.environ if environ is None else environ
        self._proxies = _proxies(self._environ)

    def proxy_for(self, origin: Origin) -> Proxy | None:
        """The proxy for an origin; None for a direct connection. Raises `TransportError`."""
        if not self._proxies:
            return None
        url = self._proxies.get(origin.scheme) or self._proxies.get("all")
        if url is None or _bypasses_proxy(origin.host, origin.port, self._proxies.get("no", "")):
            return None
        return _parse_proxy(url)

    @cached_property
    def tls_context(self) -> ssl.SSLContext:
        """The TLS settings, loaded on first use because that is slow. Raises `TransportError`."""
        file = self._environ.get("SSL_CERT_FILE") or self._environ.get("REQUESTS_CA_BUNDLE") or None
        folder = self._environ.get("SSL_CERT_DIR") or None
        if file is not None and os.path.isdir(file):
            file, folder = None, file
        try:
            context = ssl.create_default_context(cafile=file, capath=folder)
        except (OSError, ssl.SSLError) as error:
            raise TransportError(
                f"cannot read the certificates in {file or folder} ({error.strerror or 'no certificates'}); "
                "correct SSL_CERT_FILE, SSL_CERT_DIR or REQUESTS_CA_BUNDLE",
                "tls_failed",
            ) from None
        context.set_alpn_protocols(["http/1.1"])
        return context


def _parse_proxy(url: str) -> Proxy:
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        scheme, host, port = parts.scheme, parts.hostname, parts.port
    except ValueError:
        scheme, host, port = "", None, None
    if scheme not in ("http", "https") or not host:
        raise TransportError("the proxy in the environment is not an HTTP proxy; set another", "proxy_failed")
    origin = Origin(scheme, host, port or DEFAULT_PORTS[scheme])
    if parts.username is None:
        return Proxy(origin)
    account = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return Proxy(origin, f"Basic {b64encode(account.encode()).decode()}")


def _proxies(environ: Mapping[str, str]) -> dict[str, str]:
    """Proxies by scheme, and the hosts without one (`no`)."""
    proxies: dict[str, str] = {}
    for name in ("http", "https", "all", "no"):
        value = environ.get(f"{name}_proxy")
        # In a CGI program this variable is a request header that a client controls.
        if value is None and not (name == "http" and "REQUEST_METHOD" in environ):
            value = environ.get(f"{name.upper()}_PROXY")
        if value:
            proxies[name] = value
    return proxies


def _bypasses_proxy(host: str, port: int, exempt: str) -> bool:
    """Whether NO_PROXY names the host, a domain it is in, or everything. A proxy cannot reach metadata services."""
    if host.startswith("169.254.") or host in _METADATA_HOSTS:
        return True
    names = [name.strip().lower().lstrip(".") for name in exempt.split(",") if name.strip()]
    written = (host, f"{host}:{port}", f"[{host}]", f"[{host}]:{port}")
    return any(name == "*" or f".{place}".endswith(f".{name}") for name in names for place in written)
