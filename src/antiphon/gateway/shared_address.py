"""`SharedAddress`: where the store is that several workers and hosts share, as the configuration writes it.

    redis://host:port/number    rediss://…  (TLS)    unix:/path/of/a/socket?db=number

`valkey://` and `valkeys://` are the same as the first two: it is the same protocol. A name of a user may stand before the host. A
password never does (law L10): it is read from where `shared_password` says, each time a connection is made, so that one that was
changed is used.
"""

from __future__ import annotations

from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from msgspec import Struct

from antiphon.errors import AntiphonError

_SCHEMES = {"redis": False, "valkey": False, "rediss": True, "valkeys": True}
_FORMS = "redis://host:port/0, rediss://host:port/0 or unix:/path/of/the/socket"
_PORT = 6379
_MOST_DATABASES = 16_384


class NoAddress(AntiphonError):
    """What is written is no address of a shared store. The message is the rest of a sentence that names the key."""


class SharedAddress(Struct, frozen=True, kw_only=True):
    """A server, by host and port or by the path of its socket, and the number of a database in it."""

    host: str = ""
    port: int = _PORT
    path: str = ""
    user: str = ""
    database: int = 0
    is_encrypted: bool = False

    def __str__(self) -> str:
        if self.path:
            return f"unix:{self.path}" + (f"?db={self.database}" if self.database else "")
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'rediss' if self.is_encrypted else 'redis'}://{host}:{self.port}/{self.database}"


def address_of(written: str) -> SharedAddress:
    """The address that was written. Raises `NoAddress`, whose words do not repeat it: there may be a password in it."""
    try:
        parts = urlsplit(written)
        port = parts.port
    except ValueError:
        raise NoAddress(f"is no address; write {_FORMS}") from None
    if parts.password is not None:
        raise NoAddress(
            'holds a password, and none is ever written into this file; take it out and write shared_password = "env:NAME"'
        )
    if parts.scheme == "unix":
        return _socket(parts)
    if parts.scheme not in _SCHEMES or not parts.netloc:
        raise NoAddress(f"is no address of a Redis or Valkey server; write {_FORMS}")
    if not parts.hostname:
        raise NoAddress(f"names no host; write {_FORMS}")
    if parts.query or parts.fragment:
        raise NoAddress("says more than host, port and database; what stands behind the ? or # is not known here")
    return SharedAddress(
        host=parts.hostname,
        port=_PORT if port is None else port,
        user=unquote(parts.username or ""),
        database=_database(parts.path.strip("/")),
        is_encrypted=_SCHEMES[parts.scheme],
    )


def _socket(parts: SplitResult) -> SharedAddress:
    asked = parse_qs(parts.query, keep_blank_values=True)
    if parts.hostname or not parts.path.startswith("/") or parts.path == "/":
        raise NoAddress("names no socket: unix: is followed by a full path, as in unix:/run/redis/redis.sock")
    if set(asked) - {"db"} or parts.fragment:
        raise NoAddress("says more than the socket and the database: only ?db=number may follow")
    return SharedAddress(
        path=unquote(parts.path), user=unquote(parts.username or ""), database=_database("".join(asked.get("db", [])))
    )


def _database(written: str) -> int:
    if not written:
        return 0
    if not written.isascii() or not written.isdigit() or int(written[:9]) >= _MOST_DATABASES:
        raise NoAddress("ends in what is no number of a database; the first one is 0")
    return int(written)
