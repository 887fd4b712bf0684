"""Errors as responses in the client's format, with a status the client knows how to handle.

A provider that rejected the gateway's own credential is not the client's mistake: the client gets 502, not 401, so that it does
not ask its user for another key.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping

from msgspec import structs

from antiphon.errors import StoreError
from antiphon.http.messages import ClientRequest, Response
from antiphon.http.server.application import Refusal
from antiphon.wire.inbound import client_formats
from antiphon.wire.output import ErrorKind, ProviderError
from antiphon_gateway.routes import error_format_for_path

logger = logging.getLogger("antiphon.gateway")

STATUS_BY_KIND: Mapping[ErrorKind, int] = {
    "invalid_request": 400,
    "context_length": 400,
    "authentication": 401,
    "billing": 402,
    "permission": 403,
    "not_found": 404,
    "timeout": 504,
    "conflict": 409,
    "too_large": 413,
    "rate_limit": 429,
    "overloaded": 503,
    "server": 502,
    "stream_cut": 502,
    "unknown": 502,
}
_CREDENTIAL_ERRORS = frozenset({"authentication", "billing", "permission"})
"""Errors of a provider that concern the gateway's own credential."""
_RETRY_SECONDS = 1.0
_OVERLOADED_STATUS = {"anthropic": 529}
_STORE_RETRY_SECONDS = 5.0
INTERNAL_ERROR = ProviderError("internal error; see the log", "server")
"""A defect of ours, where no request can be named."""


def error_response(
    format_name: str, error: ProviderError, *, status: int | None = None, headers: Mapping[str, str] | None = None
) -> Response:
    """An error of the gateway's own, for a client of that format (none: plain JSON)."""
    status = status or STATUS_BY_KIND[error.kind]
    body = client_formats[format_name or "openai-chat"].write_error(structs.replace(error, status=status))
    all_headers = dict(headers or {})
    if error.retry_after is not None:
        all_headers["retry-after"] = str(max(1, math.ceil(error.retry_after)))
    response = Response.json(body, status, all_headers)
    response.error = error
    return response


_KINDS: Mapping[int, ErrorKind] = {408: "timeout", 413: "too_large", 500: "server", 503: "overloaded", 504: "timeout"}
"""What the statuses mean with which the server refuses a request by itself; others are mistakes of the client."""


def refusal_response(request: ClientRequest, refusal: Refusal) -> Response:
    """The response to a request that the server refuses, in the shape that its client reads."""
    message = f"{refusal.message} (gateway.{refusal.setting})" if refusal.setting else refusal.message
    kind = _KINDS.get(refusal.status, "invalid_request")
    error = overloaded(message) if kind == "overloaded" else ProviderError(message, kind)
    format_name = error_format_for_path(request.path, request.headers)
    return error_response(format_name, error, status=refusal.status, headers=refusal.headers)


class RequestRefused(Exception):
    """The gateway refuses a request while it works on it: with the status of that kind of error, unless another is given."""

    def __init__(self, error: ProviderError, status: int | None = None) -> None:
        super().__init__(error.message)
        self.error = error
        self.status = status


def overloaded(refusal: str) -> ProviderError:
    """The error of a request that finds too many bytes waiting (`Governor`)."""
    return ProviderError(refusal, "overloaded", retry_after=_RETRY_SECONDS)


def store_failure(error: StoreError) -> ProviderError:
    """The error for a client whose request needs a file or database of the gateway that fails; it is logged."""
    logger.error("a database of the gateway is not available: %s", error)
    return ProviderError(
        f"a database of the gateway is not available: {error}", "overloaded", retry_after=_STORE_RETRY_SECONDS
    )


def provider_error_response(format_name: str, error: ProviderError, provider: str) -> Response:
    """An error of a provider, for the client whose request it was."""
    status = provider_error_status(error, format_name)
    if error.kind in _CREDENTIAL_ERRORS:
        message = f"provider {provider} rejected the gateway's credentials: {error.message}"
        error = ProviderError(message, "server", code=error.code)
    return error_response(format_name, error, status=status)


def provider_error_status(error: ProviderError, format_name: str = "") -> int:
    """The status of the response to a client whose request ended with an error of a provider."""
    # the second: a wrong base URL in the gateway's configuration
    if error.kind in _CREDENTIAL_ERRORS or (error.kind != "overloaded" and error.code == "redirected"):
        return 502
    if error.kind == "overloaded":
        return _OVERLOADED_STATUS.get(format_name, STATUS_BY_KIND[error.kind])
    if error.kind in ("unknown", "invalid_request") and error.status is not None and 400 <= error.status < 500:
        return error.status
    return STATUS_BY_KIND[error.kind]
