"""`ClientKeys`: who may use the gateway. Only hashes of the keys are stored.

A key from `antiphon key new` has 192 random bits, so a plain SHA-256 is enough: slow, salted hashes protect passwords that
people choose, and would cost milliseconds per request. Keys from `env:` and `file:` are hashed when they are read. The digest is
the key of a dictionary: the time of a lookup depends on digests, which a client cannot steer, and not on the number of keys.

Without keys the gateway serves loopback clients only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from hashlib import sha256
from pathlib import PurePath
from secrets import token_hex
from typing import Any, Protocol

from msgspec import structs

from antiphon.http.origin import is_loopback
from antiphon.providers.keys.secret import unique_name
from antiphon_gateway.config.references import HASH_PREFIX, digest_of, key_digest
from antiphon_gateway.config.settings import Config, KeyRules
from antiphon_gateway.utc_time import utc_text

_KEY_PREFIX = "sk-antiphon-"
_KEY_BYTES = 24
BUDGET_LIMITS = ("tokens_per_day", "tokens_per_month", "budget_per_day", "budget_per_month")


class ClientKey(KeyRules, frozen=True, kw_only=True):
    """A client: its name and permissions. The key itself is not stored here."""

    name: str
    is_limited: bool = False
    """Whether a limit is set. Computed; a request without limits costs this one check."""
    has_budget: bool = False
    """Whether a limit per day or month is set. Computed."""
    has_money_budget: bool = False
    """Whether money is limited. Computed."""
    is_metered: bool = False
    """Whether tokens or money are limited, so that the usage of each answer must be known. Computed."""
    is_checked: bool = False
    """Whether fields of its requests decide what it may do: the model, or what they may cost. Computed."""
    is_disabled: bool = False
    key_hash: str = ""
    """The hash of the key it presents; after a rotation a client has another one."""

    def __post_init__(self) -> None:
        has_budget = any(getattr(self, limit) is not None for limit in BUDGET_LIMITS)
        per_minute = self.requests_per_minute is not None or self.tokens_per_minute is not None
        is_metered = has_budget or self.tokens_per_minute is not None
        computed = {
            "has_budget": has_budget,
            "has_money_budget": self.budget_per_day is not None or self.budget_per_month is not None,
            "is_limited": has_budget or per_minute,
            "is_metered": is_metered,
            "is_checked": is_metered or "*" not in self.models,
        }
        for name, value in computed.items():
            structs.force_setattr(self, name, value)

    @property
    def limits(self) -> list[str]:
        """The limits of tokens and money that are set, by name."""
        return [limit for limit in ("tokens_per_minute", *BUDGET_LIMITS) if getattr(self, limit) is not None]

    @property
    def money_limits(self) -> list[str]:
        """Those of money."""
        return [limit for limit in self.limits if limit.startswith("budget_")]

    def refusal(self, now: datetime | None = None) -> str:
        """Why this key is not accepted now; empty if it is."""
        if self.is_disabled:
            return "this API key is disabled"
        if self.expires is not None and self.expires <= (now or datetime.now(UTC)):
            return f"this API key expired at {utc_text(self.expires)}"
        return ""

    def may_use(self, model: str) -> bool:
        """Whether this client may use a model of that name."""
        return "*" in self.models or any(fnmatchcase(model, glob) for glob in self.models)


ANONYMOUS = ClientKey(name="")
"""A client without a key."""


class KeyDirectory(Protocol):
    """Keys that are not in the configuration."""

    @property
    def is_unread(self) -> bool:
        """Whether it is not known yet which there are."""

    @property
    def is_empty(self) -> bool:
        """Whether there are none."""

    def find(self, digest: bytes) -> ClientKey | None:
        """The client of a digest."""

    def named(self, name: str) -> ClientKey | None:
        """The client of a name."""


class ClientKeys:
    """The clients of one configuration, and those of a directory. Raises `CredentialError` where a key cannot be read."""

    def __init__(
        self, config: Config, environ: Mapping[str, str] | None = None, stored: KeyDirectory | None = None
    ) -> None:
        digests = ((key_digest(reference, environ), client) for reference, client in _configured_clients(config))
        self._known = {
            digest: structs.replace(client, key_hash=HASH_PREFIX + digest.hex()) for digest, client in digests
        }
        self._by_name = {client.name: client for client in self._known.values()}
        self._stored = stored

    @property
    def allows_anonymous(self) -> bool:
        """Whether there are no keys, so that only this machine is served."""
        return not self._known and (self._stored is None or self._stored.is_empty)

    @property
    def is_unread(self) -> bool:
        """Whether the keys of the directory are not known yet, so that a client may have one that is not found."""
        return self._stored is not None and self._stored.is_unread

    @property
    def has_several(self) -> bool:
        """Whether there may be more than one client."""
        return len(self._by_name) > 1 or not (self._stored is None or self._stored.is_empty)

    @property
    def clients(self) -> tuple[ClientKey, ...]:
        """All clients that have a key in the configuration."""
        return tuple(self._known.values())

    def configured_client(self, name: str) -> ClientKey | None:
        """The client of that name in the configuration."""
        return self._by_name.get(name)

    def named(self, name: str) -> ClientKey | None:
        """The client of that name; one of the configuration goes first."""
        return self._by_name.get(name) or (self._stored.named(name) if self._stored is not None else None)

    def allows_peer(self, peer: str) -> bool:
        """Whether a client at that address may send requests."""
        return not self.allows_anonymous or is_loopback(peer)

    def authenticate(self, headers: Mapping[str, str], query: Mapping[str, str]) -> ClientKey | None:
        """The client of the presented key; None if the key is unknown, expired or disabled."""
        client = self.find(headers, query)
        return None if client is None or client.refusal() else client

    def find(self, headers: Mapping[str, str], query: Mapping[str, str]) -> ClientKey | None:
        """The client of the first known key, in any header or parameter that clients use; None if all are unknown.

        It may not be accepted any more (`ClientKey.refusal`).
        """
        get, stored = headers.get, self._stored
        scheme, _, bearer = get("authorization", "").partition(" ")
        bearer = bearer.strip() if scheme.lower() == "bearer" else ""
        for key in (bearer, get("x-api-key"), get("x-goog-api-key"), query.get("key"), get("api-key")):
            if key:
                digest = sha256(key.encode("utf-8", "surrogateescape")).digest()  # as `digest_of`
                found = self._known.get(digest) or (stored.find(digest) if stored is not None else None)
                if found is not None:
                    return found
        return None

    def __repr__(self) -> str:
        return f"<ClientKeys of {', '.join(client.name for client in self.clients) or 'no clients'}>"


def new_key() -> str:
    """A new random key."""
    return _KEY_PREFIX + token_hex(_KEY_BYTES)


def hash_key(key: str) -> str:
    """The hash of a key, in the form the configuration expects."""
    return HASH_PREFIX + digest_of(key).hex()


def client_of(name: str, rules: KeyRules, *, is_disabled: bool = False, key_hash: str = "") -> ClientKey:
    """The client with a name and its rules."""
    return ClientKey(name=name, is_disabled=is_disabled, key_hash=key_hash, **rules_of(rules))


def rules_of(key: KeyRules) -> dict[str, Any]:
    """What a key may do and use, by name, without what else it has."""
    return {field: getattr(key, field) for field in KeyRules.__struct_fields__}


def _configured_clients(config: Config) -> Iterator[tuple[str, ClientKey]]:
    taken = {key.name for key in config.keys}
    for key in config.keys:
        yield key.key, client_of(key.name, key)
    for reference in config.gateway.client_keys:
        name = unique_name(_default_name(reference), taken)
        taken.add(name)
        yield reference, ClientKey(name=name)


def _default_name(reference: str) -> str:
    """The default name of a key: its variable, its file, or the beginning of its hash."""
    kind, _, rest = reference.partition(":")
    if kind == "file":
        return PurePath(rest).name
    return rest if kind == "env" else f"{HASH_PREFIX}{rest[:8].lower()}"
