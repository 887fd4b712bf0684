"""Who a request is from: `ClientKeys`, who may use the gateway, and `admit_client`, which is decided on the head of each request.

Only hashes of keys are stored. A key from `antiphon key new` has 192 random bits, so a plain SHA-256 is enough: slow, salted
hashes protect passwords that people choose, and would cost milliseconds per request. The digest is the key of a dictionary: the
time of a lookup depends on digests, which a client cannot steer, and not on the number of keys.

A request needs a valid key; or, on a gateway without client keys, a program on this machine asks: the peer is a loopback address,
`Host` is a name of this machine, no foreign web page and no proxy is between. An operator presents a key with `admin = true`;
without keys programs on this machine are operators. A refusal is in the format of the endpoint. A body of a request that is not
admitted is never read.

Gemini's clients send a file to the URL they were given, without a key, so that URL has a ticket: the client key, the upload and
when it expires, and no secret (law L10). The gateway signs it with a key made of the providers' keys, so that every worker and
host with the same configuration accepts it; without any of these it is a random one, which its workers inherit.
"""

from __future__ import annotations

import hmac
import re
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from hashlib import sha256
from pathlib import PurePath
from secrets import token_bytes, token_hex
from typing import Any, Protocol

from msgspec import structs

from antiphon.http.messages import ClientRequest, Response
from antiphon.http.origin import OriginRules, is_loopback, local_problem, site_problem
from antiphon.providers.keys.secret import unique_name
from antiphon.wire.output import ProviderError
from antiphon_gateway.config.references import HASH_PREFIX, digest_of, key_digest
from antiphon_gateway.config.settings import Config, KeyRules
from antiphon_gateway.errors import error_response
from antiphon_gateway.routes import Access, Endpoint, NoRoute, error_format_for_path
from antiphon_gateway.utc_time import utc_text

_KEY_PREFIX = "sk-antiphon-"
_KEY_BYTES = 24
MONEY_LIMITS = ("budget_per_day", "budget_per_month")
BUDGET_LIMITS = ("tokens_per_day", "tokens_per_month", *MONEY_LIMITS)
METERED_LIMITS = ("tokens_per_minute", *BUDGET_LIMITS)
"""Limits of what answers use; that of requests per minute is known before."""


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
        is_metered = bool(self.limits_of(METERED_LIMITS))
        computed = {
            "has_budget": bool(self.limits_of(BUDGET_LIMITS)),
            "has_money_budget": bool(self.limits_of(MONEY_LIMITS)),
            "is_limited": is_metered or self.requests_per_minute is not None,
            "is_metered": is_metered,
            "is_checked": is_metered or "*" not in self.models,
        }
        for name, value in computed.items():
            structs.force_setattr(self, name, value)

    def limits_of(self, kind: Iterable[str]) -> list[str]:
        """The limits of a kind that are set, by name."""
        return [limit for limit in kind if getattr(self, limit) is not None]

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


class AccessRules(Protocol):
    """The part of a configuration in use that access reads."""

    keys: ClientKeys
    origin_rules: OriginRules

    @property
    def signing_secrets(self) -> tuple[str, ...]:
        """The secrets that every process with this configuration has; they sign tickets."""


TICKET = "ticket"
UPLOAD_ID = "upload_id"
"""Parameters of the URL of an upload: the ticket, and the id that the provider gave the upload."""
_TICKET_SECONDS = 86_400
_PROCESS_KEY = token_bytes(32)


def new_ticket(loaded: AccessRules, client: str, upload_id: str, seconds: float = _TICKET_SECONDS) -> str:
    """A ticket for one upload of a client, valid for a day."""
    name = urlsafe_b64encode(client.encode("utf-8", "surrogateescape")).decode().rstrip("=")
    expires = str(int(time.time() + seconds))
    return f"{name}.{expires}.{_signature(loaded, name, expires, upload_id)}"


def ticket_client(loaded: AccessRules, query: Mapping[str, str]) -> ClientKey | None:
    """The client of a valid ticket, if its key is still accepted; None without one."""
    name, _, rest = query.get(TICKET, "").partition(".")
    expires, _, given = rest.partition(".")
    signed = _signature(loaded, name, expires, query.get(UPLOAD_ID, ""))
    if not hmac.compare_digest(given.encode("utf-8", "replace"), signed.encode()) or int(expires) < time.time():
        return None
    client = urlsafe_b64decode(name + "=" * (-len(name) % 4)).decode("utf-8", "surrogateescape")
    key = loaded.keys.named(client)
    return None if key is None or key.refusal() else key


def _signature(loaded: AccessRules, *parts: str) -> str:
    secrets = "\0".join(loaded.signing_secrets).encode("utf-8", "surrogateescape")
    key = sha256(secrets).digest() if secrets else _PROCESS_KEY
    message = "\0".join(("upload", str(len(parts)), *parts)).encode("utf-8", "surrogateescape")
    return hmac.new(key, message, sha256).hexdigest()


LOCAL_OPERATOR = ClientKey(name="", admin=True)
"""The operator of a gateway without client keys."""
MAX_KEYLESS_BYTES, MAX_SETTINGS_BYTES = 8 * 1024, 64 * 1024
"""The most bytes of a body without a key, and of what is sent to endpoints that take settings."""
_FOR_OPERATORS = Endpoint("", access="operator")
_KEYLESS: tuple[Access, ...] = ("anyone", "probe")
"""The status page has no data; its login is limited by itself."""
_LOOPBACK_ONLY = "no client keys are configured, so only loopback clients are allowed; add gateway.client_keys"
_NOT_ADMIN = ProviderError(
    "this endpoint is for operators; use a key with admin = true", "permission", code="admin_required"
)
_UNREAD_KEYS = ProviderError(
    "the gateway has just started, and its database has not answered which client keys there are; try again",
    "overloaded",
    retry_after=1.0,
)
_INVALID_KEY = ProviderError("missing or invalid API key", "authentication", code="invalid_api_key")
_KEY_HEADERS = ("authorization", "x-api-key", "x-goog-api-key", "api-key")
_ADDRESS_HEADERS = ("x-forwarded-for", "x-real-ip", "x-client-ip", "true-client-ip", "cf-connecting-ip")
_forwarded_for = re.compile(r'for\s*=\s*"?(\[[^\]]*\]|[^;,"\s]*)', re.IGNORECASE).findall


def refuse_route(request: ClientRequest, missing: NoRoute) -> Response:
    """The refusal of a path that does not exist, or of a method that it does not have, in the shape its clients read."""
    format_name = error_format_for_path(request.path, request.headers)
    if missing.allowed:
        allowed = ", ".join(missing.allowed)
        message = f"method {request.method} is not allowed for {request.path[:200]}; use {allowed}"
        error = ProviderError(message, "not_found", code="method_not_allowed")
        return error_response(format_name, error, status=405, headers={"allow": allowed})
    return error_response(
        format_name, ProviderError(f"no route for {request.path[:200]}; see /v1/models", "not_found", code="not_found")
    )


def admit_client(loaded: AccessRules, request: ClientRequest, endpoint: Endpoint) -> ClientKey | Response:
    """The client of a request, by its key or because it is on this machine; or the response that refuses it."""
    keys, is_operators = loaded.keys, endpoint.access == "operator"
    key = None if endpoint.access in _KEYLESS else keys.find(request.headers, request.query)
    if key is not None and not ((key.expires is not None or key.is_disabled) and key.refusal()):
        return error_response(endpoint.format, _NOT_ADMIN) if is_operators and not key.admin else key
    if keys.allows_anonymous:
        problem = _local_problem(loaded, request, is_probe=endpoint.access == "probe")
        if problem:
            return error_response(endpoint.format, ProviderError(problem, "permission"))
        return LOCAL_OPERATOR if is_operators else ANONYMOUS
    if endpoint.access in _KEYLESS:
        return ANONYMOUS
    if TICKET in request.query and request.path.startswith("/upload/") and not is_operators:
        client = ticket_client(loaded, request.query)
        if client is not None:
            return client
    return error_response(endpoint.format, _key_error(keys, request, key))


def find_operator(loaded: AccessRules, request: ClientRequest) -> ClientKey | None:
    """The operator who sent a request, whatever it asks for; None if it is not from one."""
    found = admit_client(loaded, request, _FOR_OPERATORS)
    return found if isinstance(found, ClientKey) else None


def _local_problem(loaded: AccessRules, request: ClientRequest, *, is_probe: bool) -> str:
    """Why a gateway without keys refuses a request; probes come from other machines, under any host name."""
    headers, rules = request.headers, loaded.origin_rules
    problem = site_problem(headers, rules)
    if problem or is_probe:
        return problem
    return local_problem(headers, rules) if is_loopback(request.peer) else _LOOPBACK_ONLY


def _key_error(keys: ClientKeys, request: ClientRequest, known: ClientKey | None) -> ProviderError:
    """Why no key was accepted. Only a client that has the whole key learns that it expired or is disabled."""
    if known is None and keys.is_unread and (request.query.get("key") or any(map(request.headers.get, _KEY_HEADERS))):
        return _UNREAD_KEYS
    return (
        ProviderError(known.refusal(), "authentication", code=_INVALID_KEY.code) if known is not None else _INVALID_KEY
    )


def forwarded_addresses(headers: Mapping[str, str]) -> list[str]:
    """The addresses that proxies say they forward a request for. They can be forged."""
    lists = [
        address.strip() for name in _ADDRESS_HEADERS for address in headers.get(name, "").split(",") if name in headers
    ]
    return lists + (_forwarded_for(headers["forwarded"]) or [""] if "forwarded" in headers else [])
