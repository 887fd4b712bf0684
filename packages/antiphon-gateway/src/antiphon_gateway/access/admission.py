"""Admission: what is decided on the head of a request, before its body is read.

In order: the route exists; the origin is allowed (without client keys only loopback clients, under a name of this machine, no
foreign web page and no proxy); the key is valid (an invalid one gets no details). The listener then checks content type and
declared length. A refusal is in the format of the endpoint. A body of a request that is not admitted is never read.
"""

from __future__ import annotations

from antiphon.http.messages import ClientRequest, Response
from antiphon.http.origin import is_loopback, local_problem, site_problem
from antiphon.wire.output import ProviderError
from antiphon_gateway.access.client_keys import ANONYMOUS, ClientKey
from antiphon_gateway.access.operators import (
    NOT_ADMIN,
    OPERATOR_ACTIONS,
    AccessRules,
    find_operator,
    has_key,
)
from antiphon_gateway.access.signed_tokens import TICKET, ticket_client
from antiphon_gateway.errors import error_response
from antiphon_gateway.routes import Endpoint, NoRoute, error_format_for_path

_PROBES = frozenset({"health", "ready"})
_KEYLESS = frozenset({"status_page", "status_login", "status_login_needed"})
"""The status page has no data; its login is limited by itself."""
MAX_KEYLESS_BYTES, MAX_SETTINGS_BYTES = 8 * 1024, 64 * 1024
"""The most bytes of a body without a key, and of what is sent to endpoints that take settings."""
_LOOPBACK_ONLY = "no client keys are configured, so only loopback clients are allowed; add gateway.client_keys"
_UNREAD_KEYS = ProviderError(
    "the gateway has just started, and its database has not answered which client keys there are; try again",
    "overloaded",
    retry_after=1.0,
)
_INVALID_KEY = ProviderError("missing or invalid API key", "authentication", code="invalid_api_key")


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
    """The client of a request, by its origin and its key; or the response that refuses it."""
    keys, headers = loaded.keys, request.headers
    if endpoint.action in OPERATOR_ACTIONS and (operator := find_operator(loaded, request)) is not None:
        return operator
    needs_no_key = endpoint.action in _PROBES
    if keys.allows_anonymous:
        problem = site_problem(headers, loaded.origin_rules)
        if not problem and not needs_no_key:  # probes come from other machines, under any host name
            problem = _LOOPBACK_ONLY if not is_loopback(request.peer) else local_problem(headers, loaded.origin_rules)
        return error_response(endpoint.format, ProviderError(problem, "permission")) if problem else ANONYMOUS
    if needs_no_key or endpoint.action in _KEYLESS:
        return ANONYMOUS
    key = keys.authenticate(headers, request.query)
    if key is None and TICKET in request.query and request.path.startswith("/upload/"):
        key = ticket_client(loaded, request)
    if key is None:
        return error_response(endpoint.format, _key_error(loaded, request))
    return error_response(endpoint.format, NOT_ADMIN) if endpoint.action in OPERATOR_ACTIONS else key


def _key_error(loaded: AccessRules, request: ClientRequest) -> ProviderError:
    """Why no key was accepted. Only a client that has the whole key learns that it expired or is disabled."""
    known = loaded.keys.find(request.headers, request.query)
    if known is None and loaded.keys.is_unread and has_key(request):
        return _UNREAD_KEYS
    reason = known.refusal() if known is not None else ""
    return ProviderError(reason, "authentication", code="invalid_api_key") if reason else _INVALID_KEY
