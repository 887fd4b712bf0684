"""Requests to token endpoints and metadata services, by the provider's own HTTP client.

An answer is JSON, bounded in size and time. A refusal is a `TokenError` with the service's own error code and description; it
never repeats what was sent.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlencode, urlsplit

import msgspec
from msgspec import Struct

from antiphon.errors import TransportError
from antiphon.providers.cloud.token_cache import TokenError
from antiphon.providers.transport.request import HttpRequest, Timeouts, Transport, read_body

ENDPOINT_TIMEOUTS = Timeouts(connect=10.0, read=20.0, total=30.0)
METADATA_TIMEOUTS = Timeouts(connect=2.0, read=5.0, total=8.0)
"""A metadata service is one hop away; elsewhere its address does not answer."""
_MAX_BYTES = 1024 * 1024
_MAX_DESCRIPTION = 300


class Answer(Struct, frozen=True):
    """A response of a token service. `ahead` is by how many seconds its clock is ahead of ours."""

    status: int
    body: bytes
    ahead: float = 0.0

    def json(self, what: str) -> dict[str, Any]:
        """The body as an object. Raises `TokenError`."""
        try:
            return msgspec.json.decode(self.body, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise TokenError(f"{what} did not answer with a JSON object; check its address", "server") from None

    def __repr__(self) -> str:
        return f"<Answer {self.status}>"  # the body may be a token


async def request_token(
    transport: Transport,
    url: str,
    *,
    what: str,
    form: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    method: str = "",
    timeouts: Timeouts = ENDPOINT_TIMEOUTS,
) -> Answer:
    """The answer of a token service, whatever its status; `form` makes it a POST. Raises `TokenError`."""
    given = {"accept": "application/json", **(headers or {})}
    body: tuple[bytes, ...] = ()
    if form is not None:
        given["content-type"] = "application/x-www-form-urlencoded"
        body = (urlencode(form).encode(),)
    method = method or ("GET" if form is None else "POST")
    try:
        response = await transport.send(
            HttpRequest(url=url, method=method, headers=given, body=body, timeouts=timeouts)
        )
        try:
            data = await read_body(response, _MAX_BYTES)
        finally:
            await response.aclose()
    except TransportError as error:
        raise TokenError(f"{what} is not available: {error}", "server") from None
    return Answer(response.status, data, clock_difference(response.headers.get("date", "")))


def refusal(answer: Answer, what: str, advice: str) -> TokenError:
    """The error of an answer that is not a token."""
    if answer.status in (408, 429) or answer.status >= 500:
        return TokenError(f"{what} answered with status {answer.status}; retrying may help", "server")
    return TokenError(f"{what} refused to issue a token ({answer.status}{_description(answer.body)}); {advice}")


def lifetime_of(fields: Mapping[str, Any], default: float) -> float:
    """`expires_in` in seconds, however it is written."""
    try:
        return float(fields["expires_in"])
    except (KeyError, TypeError, ValueError):
        return default


def access_token(answer: Answer, what: str, advice: str) -> tuple[str, float]:
    """The `access_token` of an OAuth answer and its lifetime. Raises `TokenError`."""
    if answer.status != 200:
        raise refusal(answer, what, advice)
    fields = answer.json(what)
    token = fields.get("access_token")
    if not isinstance(token, str) or not token or not (token.isascii() and token.isprintable()):
        raise TokenError(f"{what} answered without an access_token; {advice}")
    return token, lifetime_of(fields, 300.0)


def clock_difference(date: str) -> float:
    """By how many seconds the clock that wrote a `Date` header is ahead of ours; 0 if the header cannot be read."""
    try:
        return parsedate_to_datetime(date).timestamp() - time.time()
    except (TypeError, ValueError):
        return 0.0


def host_of(url: str) -> str:
    """The host of a URL, for messages."""
    return urlsplit(url).netloc.rpartition("@")[2]


def _description(body: bytes) -> str:
    try:
        fields = msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
    error = fields.get("error")
    if isinstance(error, dict):  # Google's APIs
        fields, error = error, error.get("status")
    text = fields.get("error_description") or fields.get("message")
    parts = [part for part in (error, text) if isinstance(part, str) and part]
    return f": {': '.join(parts).splitlines()[0][:_MAX_DESCRIPTION]}" if parts else ""
