"""Who operates the gateway: the only place that decides whether a request comes from an operator.

With client keys, an operator presents one with `admin = true`. Without any, programs on this machine are operators: the peer is a
loopback address, `Host` is a name of this machine, no foreign web page asks, and no proxy forwards the request. `find_operator`
returns the operator's key, whose name goes to the audit log.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Protocol

from antiphon.http.messages import ClientRequest
from antiphon.http.origin import OriginRules, is_loopback, local_problem, site_problem
from antiphon.wire.output import ProviderError
from antiphon_gateway.access.client_keys import ClientKey, ClientKeys
from antiphon_gateway.config.settings import Config

LOCAL_OPERATOR = ClientKey(name="", admin=True)
"""The operator of a gateway without client keys."""
NOT_ADMIN = ProviderError(
    "this endpoint is for operators; use a key with admin = true", "permission", code="admin_required"
)
OPERATOR_ACTIONS = frozenset(
    {"metrics", "status", "list_credentials", "switch_credential", "list_keys", "create_key", "get_key", "change_key"}
    | {"delete_key", "disable_key", "enable_key", "rotate_key", "audit", "spend"}
)
"""What only operators may do."""

_ADDRESS_HEADERS = ("x-forwarded-for", "x-real-ip", "x-client-ip", "true-client-ip", "cf-connecting-ip")
_forwarded_for = re.compile(r'for\s*=\s*"?(\[[^\]]*\]|[^;,"\s]*)', re.IGNORECASE).findall


class AccessRules(Protocol):
    """The part of a configuration in use that access reads."""

    config: Config
    keys: ClientKeys
    origin_rules: OriginRules

    @property
    def signing_secrets(self) -> tuple[str, ...]:
        """The secrets that every process with this configuration has; tokens are signed with them."""


def find_operator(loaded: AccessRules, request: ClientRequest) -> ClientKey | None:
    """The operator who sent a request; None if it is not from one."""
    if loaded.keys.allows_anonymous:
        return LOCAL_OPERATOR if is_from_this_machine(loaded, request) else None
    key = presented_key(loaded, request)
    return key if key is not None and key.admin else None


def presented_key(loaded: AccessRules, request: ClientRequest) -> ClientKey | None:
    """The client of the presented key, in any header or parameter that clients use; None if it is not accepted."""
    return loaded.keys.authenticate(request.headers, request.query)


def has_key(request: ClientRequest) -> bool:
    """Whether a request presents any key."""
    named = ("authorization", "x-api-key", "x-goog-api-key", "api-key")
    return any(request.headers.get(name) for name in named) or bool(request.query.get("key"))


def is_from_this_machine(loaded: AccessRules, request: ClientRequest) -> bool:
    """Whether a program on this machine sent it, not a web page and not a proxy."""
    headers, rules = request.headers, loaded.origin_rules
    return is_loopback(request.peer) and not local_problem(headers, rules) and not site_problem(headers, rules)


def forwarded_addresses(headers: Mapping[str, str]) -> list[str]:
    """The addresses that proxies say they forward a request for. They can be forged."""
    lists = [
        address.strip() for name in _ADDRESS_HEADERS for address in headers.get(name, "").split(",") if name in headers
    ]
    return lists + (_forwarded_for(headers["forwarded"]) or [""] if "forwarded" in headers else [])
