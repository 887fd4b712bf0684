"""`ClientKeys`: who may use the gateway. Only hashes of the keys are stored.

A key from `antiphon key new` has 192 random bits, so a plain SHA-256 is enough: slow, salted hashes protect passwords that
people choose, and would cost milliseconds per request. Keys from `env:` and `file:` are hashed when they are read, so that all
keys are compared in one way: with every known key, each in constant time.

Without keys the gateway serves loopback clients only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from hashlib import sha256
from hmac import compare_digest
from ipaddress import IPv6Address, ip_address
from itertools import count
from pathlib import PurePath
from secrets import token_hex

from msgspec import Struct

from antiphon.gateway.config.settings import Config
from antiphon.providers.credentials.secret import Credential

HASH_PREFIX = "sha256:"
_KEY_PREFIX = "sk-antiphon-"
_KEY_BYTES = 24


class ClientKey(Struct, frozen=True, kw_only=True):
    """A client: its name and permissions. The key itself is not stored here."""

    name: str
    models: tuple[str, ...] = ("*",)
    strict: bool = False
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    admin: bool = False
    """Whether it may read `/status`, `/metrics` and the details of `/readyz`."""

    @property
    def is_limited(self) -> bool:
        """Whether a limit is set."""
        return self.requests_per_minute is not None or self.tokens_per_minute is not None

    def may_use(self, model: str) -> bool:
        """Whether this client may use a model of that name."""
        return "*" in self.models or any(fnmatchcase(model, glob) for glob in self.models)


class ClientKeys:
    """The clients of one configuration. Raises `CredentialError` where a key cannot be read."""

    def __init__(self, config: Config, environ: Mapping[str, str] | None = None) -> None:
        self._known = [(key_digest(reference, environ), client) for reference, client in _configured_clients(config)]

    @property
    def allows_anonymous(self) -> bool:
        """Whether there are no keys, so that only this machine is served."""
        return not self._known

    @property
    def clients(self) -> tuple[ClientKey, ...]:
        """All clients that have a key."""
        return tuple(client for _, client in self._known)

    def allows_peer(self, peer: str) -> bool:
        """Whether a client at that address may send requests."""
        return not self.allows_anonymous or is_loopback(peer)

    def authenticate(
        self,
        authorization: str | None = None,
        x_api_key: str | None = None,
        x_goog_api_key: str | None = None,
        query_key: str | None = None,
        api_key: str | None = None,
    ) -> ClientKey | None:
        """The client of the presented key, in any header or parameter that clients use; None if the key is unknown."""
        scheme, _, bearer = (authorization or "").partition(" ")
        bearer = bearer.strip() if scheme.lower() == "bearer" else ""
        match: ClientKey | None = None
        for key in filter(None, (bearer, x_api_key, x_goog_api_key, query_key, api_key)):
            digest = _digest(key)
            for known, client in self._known:
                if compare_digest(digest, known):
                    match = client
        return match

    def __repr__(self) -> str:
        return f"<ClientKeys of {', '.join(client.name for client in self.clients) or 'no clients'}>"


def new_key() -> str:
    """A new random key."""
    return _KEY_PREFIX + token_hex(_KEY_BYTES)


def hash_key(key: str) -> str:
    """The hash of a key, in the form the configuration expects."""
    return HASH_PREFIX + _digest(key).hex()


def key_digest(reference: str, environ: Mapping[str, str] | None = None) -> bytes:
    """The digest of a key in the configuration, which gives its hash or where to read it."""
    if reference.startswith(HASH_PREFIX):
        return bytes.fromhex(reference.removeprefix(HASH_PREFIX))
    return _digest(Credential(secret=reference).read(environ))


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


def _digest(key: str) -> bytes:
    # The raw bytes of the header are hashed, even if they are not valid text.
    return sha256(key.encode("utf-8", "surrogateescape")).digest()


def _configured_clients(config: Config) -> Iterator[tuple[str, ClientKey]]:
    taken = {key.name for key in config.keys}
    for key in config.keys:
        yield (
            key.key,
            ClientKey(
                name=key.name,
                models=key.models,
                strict=key.strict,
                requests_per_minute=key.requests_per_minute,
                tokens_per_minute=key.tokens_per_minute,
                admin=key.admin,
            ),
        )
    for reference in config.gateway.client_keys:
        name = _default_name(reference)
        name = next(one for one in _unique_names(name) if one not in taken)
        taken.add(name)
        yield reference, ClientKey(name=name)


def _default_name(reference: str) -> str:
    """The default name of a key: its variable, its file, or the beginning of its hash."""
    kind, _, rest = reference.partition(":")
    if kind == "file":
        return PurePath(rest).name
    return rest if kind == "env" else f"{HASH_PREFIX}{rest[:8].lower()}"


def _unique_names(name: str) -> Iterator[str]:
    yield name
    yield from (f"{name} #{number}" for number in count(2))
