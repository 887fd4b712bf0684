"""An error as a client gets it: in the shape of its own format, under the status it knows how to react to.

What a provider refused because of *our* credential is not the client's mistake: it hears of a bad gateway, not of a wrong key, so
that it does not ask its user for another one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from msgspec import structs

from antiphon.gateway.http.messages import Answer
from antiphon.wire import formats
from antiphon.wire.output import ErrorKind, ProviderError

STATUSES: Mapping[ErrorKind, int] = {
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
_OURS = frozenset({"authentication", "billing", "permission"})
"""Errors of a provider that concern the gateway's own credential."""
_OVERLOADED = {"anthropic": 529}


def refused(
    format_name: str, error: ProviderError, *, status: int | None = None, headers: Mapping[str, str] | None = None
) -> Answer:
    """An error of the gateway's own, for a client of that format (none: plain JSON)."""
    status = status or STATUSES[error.kind]
    body = formats[format_name or "openai-chat"].write_error(structs.replace(error, status=status))
    told = dict(headers or {})
    if error.retry_after is not None:
        told["retry-after"] = str(max(1, math.ceil(error.retry_after)))
    return Answer.json(body, status, told)


def passed_on(format_name: str, error: ProviderError, provider: str) -> Answer:
    """An error of a provider, for the client whose request it was."""
    if error.kind in _OURS:
        message = f"the provider {provider} refused the gateway's credential or account: {error.message}"
        return refused(format_name, ProviderError(message, "server", code=error.code), status=502)
    status = STATUSES[error.kind]
    if error.kind == "overloaded":
        status = _OVERLOADED.get(format_name, status)
    elif error.code == "redirected":  # a wrong base URL in the gateway's configuration
        status = 502
    elif error.kind in ("unknown", "invalid_request") and error.status is not None and 400 <= error.status < 500:
        status = error.status
    return refused(format_name, error, status=status)
