"""Admission: what is decided on the head of a request, before its body is read; the only place that says who a request is from.

In order: the route exists; the key is valid (an invalid one gets no details); or, on a gateway without client keys, a program on
this machine asks: the peer is a loopback address, `Host` is a name of this machine, no foreign web page and no proxy is between.
An operator presents a key with `admin = true`; without keys programs on this machine are operators. The listener then checks
content type and declared length. A refusal is in the format of the endpoint. A body of a request that is not admitted is never
read.

Gemini's clients send a file to the URL they were given, without a key, so that URL has a ticket: the client key, the upload and
when it expires, and no secret (law L10). The gateway signs it with a key made of the providers' keys, so that every worker and
host with the same configuration accepts it; without any of these it is a random one, which its workers inherit.
"""

from __future__ import annotations

import hmac
import re
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from hashlib import sha256
from secrets import token_bytes
from typing import Protocol

from antiphon.http.messages import ClientRequest, Response
from antiphon.http.origin import OriginRules, is_loopback, local_problem, site_problem
from antiphon.wire.output import ProviderError
from antiphon_gateway.access.client_keys import ANONYMOUS, ClientKey, ClientKeys
from antiphon_gateway.errors import error_response
from antiphon_gateway.routes import Endpoint, NoRoute, error_format_for_path

TICKET = "ticket"
UPLOAD_ID = "upload_id"
"""Parameters of the URL of an upload: the ticket, and the id that the provider gave the upload."""
_TICKET_SECONDS = 86_400
_PROCESS_KEY = token_bytes(32)


class Signer(Protocol):
    """The part of a configuration in use that signs tickets."""

    keys: ClientKeys

    @property
    def signing_secrets(self) -> tuple[str, ...]:
        """The secrets that every process with this configuration has."""


def new_ticket(loaded: Signer, client: str, upload_id: str, seconds: float = _TICKET_SECONDS) -> str:
    """A ticket for one upload of a client, valid for a day."""
    name = urlsafe_b64encode(client.encode("utf-8", "surrogateescape")).decode().rstrip("=")
    expires = str(int(time.time() + seconds))
    return f"{name}.{expires}.{_signature(loaded, name, expires, upload_id)}"


def ticket_client(loaded: Signer, query: Mapping[str, str]) -> ClientKey | None:
    """The client of a valid ticket, if its key is still accepted; None without one."""
    name, _, rest = query.get(TICKET, "").partition(".")
    expires, _, given = rest.partition(".")
    signed = _signature(loaded, name, expires, query.get(UPLOAD_ID, ""))
    if not hmac.compare_digest(given.encode("utf-8", "replace"), signed.encode()) or int(expires) < time.time():
        return None
    client = urlsafe_b64decode(name + "=" * (-len(name) % 4)).decode("utf-8", "surrogateescape")
    key = loaded.keys.named(client)
    return None if key is None or key.refusal() else key


def _signature(loaded: Signer, *parts: str) -> str:
    secrets = "\0".join(loaded.signing_secrets).encode("utf-8", "surrogateescape")
    key = sha256(secrets).digest() if secrets else _PROCESS_KEY
    message = "\0".join(("upload", str(len(parts)), *parts)).encode("utf-8", "surrogateescape")
    return hmac.new(key, message, sha256).hexdigest()


LOCAL_OPERATOR = ClientKey(name="", admin=True)
"""The operator of a gateway without client keys."""
OPERATOR_ACTIONS = frozenset(
    {"metrics", "status", "list_credentials", "switch_credential", "list_keys", "create_key", "get_key", "change_key"}
    | {"delete_key", "disable_key", "enable_key", "rotate_key", "audit", "spend"}
)
"""What only operators may do."""
MAX_KEYLESS_BYTES, MAX_SETTINGS_BYTES = 8 * 1024, 64 * 1024
"""The most bytes of a body without a key, and of what is sent to endpoints that take settings."""

_PROBES = frozenset({"health", "ready"})
_KEYLESS = _PROBES | {"status_page", "status_login", "status_login_needed"}
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


class AccessRules(Signer, Protocol):
    """The part of a configuration in use that access reads."""

    origin_rules: OriginRules


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
    keys, is_operators = loaded.keys, endpoint.action in OPERATOR_ACTIONS
    key = None if endpoint.action in _KEYLESS else keys.find(request.headers, request.query)
    if key is not None and not ((key.expires is not None or key.is_disabled) and key.refusal()):
        return error_response(endpoint.format, _NOT_ADMIN) if is_operators and not key.admin else key
    if keys.allows_anonymous:
        problem = _local_problem(loaded, request, is_probe=endpoint.action in _PROBES)
        if problem:
            return error_response(endpoint.format, ProviderError(problem, "permission"))
        return LOCAL_OPERATOR if is_operators else ANONYMOUS
    if endpoint.action in _KEYLESS:
        return ANONYMOUS
    if TICKET in request.query and request.path.startswith("/upload/"):
        client = ticket_client(loaded, request.query)
        if client is not None:
            return client
    return error_response(endpoint.format, _key_error(keys, request, key))


def find_operator(loaded: AccessRules, request: ClientRequest) -> ClientKey | None:
    """The operator who sent a request, whose name goes to the audit log; None if it is not from one."""
    if loaded.keys.allows_anonymous:
        return None if _local_problem(loaded, request) else LOCAL_OPERATOR
    key = loaded.keys.authenticate(request.headers, request.query)
    return key if key is not None and key.admin else None


def _local_problem(loaded: AccessRules, request: ClientRequest, *, is_probe: bool = False) -> str:
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
