"""What a configuration refers to: files, keys by their hash, a shared store by its URL, and parts that may not be installed.

`StoreUrl` is the shared store in `[gateway] shared`: redis://host:port/0, rediss:// (TLS), valkey://, valkeys:// or
unix:/path?db=0. A password is never part of one (law L10): it is in `shared_password`.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from msgspec import Struct

from antiphon.errors import AntiphonError
from antiphon.extensions import EXTENSIONS, load_part
from antiphon.providers.keys.secret import Credential, is_reference

HASH_PREFIX = "sha256:"


def key_digest(reference: str, environ: Mapping[str, str] | None = None) -> bytes:
    """The digest of a key in the configuration, which gives its hash or where to read it."""
    if reference.startswith(HASH_PREFIX):
        return bytes.fromhex(reference.removeprefix(HASH_PREFIX))
    return digest_of(Credential(secret=reference).read(environ))


def digest_of(key: str) -> bytes:
    """The digest of a key as a client presents it."""
    # The raw bytes of the header are hashed, even if they are not valid text.
    return sha256(key.encode("utf-8", "surrogateescape")).digest()


class PathResolver:
    """Makes the paths in a configuration absolute, from its folder on. `secret_files` are those that secrets are read from."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.secret_files: dict[Path, None] = {}

    def __call__(self, holds: str, written: str) -> str:
        """The text with its path made absolute, if it has one. Raises `ValueError`."""
        is_path = bool(written)
        if holds in ("reference", "address"):
            kind, colon, place = written.partition(":")
            if kind == "file" and place:
                return kind + colon + self._absolute(place, is_secret=True)
            is_path = is_path and holds == "address" and not is_reference(written) and "://" not in written
        return self._absolute(written, is_secret=holds == "certificate") if is_path else written

    def _absolute(self, written: str, *, is_secret: bool) -> str:
        if "\0" in written:
            raise ValueError("not a valid path")
        try:
            path = self._folder / Path(written).expanduser()
        except RuntimeError:
            raise ValueError(f"not a valid path: there is no home folder {Path(written).parts[0]}") from None
        if is_secret:
            self.secret_files[path] = None
        return str(path)


def load_cache_watch() -> ModuleType:
    """The module with the cache doctor's `CacheWatch`. Raises `ExtraMissing` if it is not installed."""
    return load_part(EXTENSIONS, "cache_watch", "the cache doctor")


_SCHEMES = {"redis": False, "valkey": False, "rediss": True, "valkeys": True}
_FORMS = "redis://host:port/0, rediss://host:port/0 or unix:/path/of/the/socket"
_PORT = 6379
_MOST_DATABASES = 16_384


class InvalidStoreUrl(AntiphonError):
    """A value that is not the URL of a shared store. The message completes a sentence that names the key."""


class StoreUrl(Struct, frozen=True, kw_only=True):
    """A server, by host and port or by the path of its socket, and the database number."""

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


def parse_store_url(written: str) -> StoreUrl:
    """Parse a URL. Raises `InvalidStoreUrl`, whose message does not repeat the URL: it may contain a password."""
    try:
        parts = urlsplit(written)
        port = parts.port
    except ValueError:
        raise InvalidStoreUrl(f"not a valid URL; use {_FORMS}") from None
    if parts.password is not None:
        raise InvalidStoreUrl('contains a password; remove it and set shared_password = "env:NAME"')
    if parts.scheme == "unix":
        return _parse_socket(parts)
    if parts.scheme not in _SCHEMES or not parts.netloc:
        raise InvalidStoreUrl(f"not a Redis or Valkey URL; use {_FORMS}")
    if not parts.hostname:
        raise InvalidStoreUrl(f"has no host; use {_FORMS}")
    if parts.query or parts.fragment:
        raise InvalidStoreUrl("has a query or fragment; only host, port and database are supported")
    return StoreUrl(
        host=parts.hostname,
        port=_PORT if port is None else port,
        user=unquote(parts.username or ""),
        database=_parse_database(parts.path.strip("/")),
        is_encrypted=_SCHEMES[parts.scheme],
    )


def _parse_socket(parts: SplitResult) -> StoreUrl:
    query = parse_qs(parts.query, keep_blank_values=True)
    if parts.hostname or not parts.path.startswith("/") or parts.path == "/":
        raise InvalidStoreUrl("has no socket path; use an absolute path, as in unix:/run/redis/redis.sock")
    if set(query) - {"db"} or parts.fragment:
        raise InvalidStoreUrl("has unsupported parameters; only ?db=number is allowed")
    return StoreUrl(
        path=unquote(parts.path),
        user=unquote(parts.username or ""),
        database=_parse_database("".join(query.get("db", []))),
    )


def _parse_database(written: str) -> int:
    if not written:
        return 0
    if not written.isascii() or not written.isdigit() or int(written[:9]) >= _MOST_DATABASES:
        raise InvalidStoreUrl("has an invalid database number; the first one is 0")
    return int(written)
