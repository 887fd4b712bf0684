"""Requests to token endpoints and metadata services, by the provider's own HTTP client; and what proves there who asks.

An answer is JSON, bounded in size and time. A refusal is a `TokenError` with the service's own error code and description; it
never repeats what was sent.
"""

from __future__ import annotations

import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import msgspec
from msgspec import Struct

from antiphon.errors import TransportError
from antiphon.http.client.request import HttpRequest, Timeouts, Transport, read_body
from antiphon.providers.cloud.token_cache import TokenError
from antiphon.providers.credentials.command import as_number

ENDPOINT_TIMEOUTS = Timeouts(connect=10.0, read=20.0, total=30.0)
METADATA_TIMEOUTS = Timeouts(connect=2.0, read=5.0, total=8.0)
"""A metadata service is one hop away; elsewhere its address does not answer."""
_MAX_BYTES = 1024 * 1024
_MAX_DESCRIPTION = 300
_DEFAULT_LIFETIME = 300.0


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


def access_token(answer: Answer, what: str, advice: str) -> tuple[str, float]:
    """The `access_token` of an OAuth answer and its lifetime. Raises `TokenError`."""
    if answer.status != 200:
        raise refusal(answer, what, advice)
    fields = answer.json(what)
    token = fields.get("access_token")
    if not isinstance(token, str) or not token or not (token.isascii() and token.isprintable()):
        raise TokenError(f"{what} answered without an access_token; {advice}")
    lifetime = as_number(fields.get("expires_in"))
    return token, _DEFAULT_LIFETIME if lifetime is None else lifetime


def clock_difference(date: str) -> float:
    """By how many seconds the clock that wrote a `Date` header is ahead of ours; 0 if the header cannot be read."""
    try:
        return parsedate_to_datetime(date).timestamp() - time.time()
    except (TypeError, ValueError):
        return 0.0


def signed_token(header: Mapping[str, Any], claims: Mapping[str, Any], sign: Callable[[bytes], bytes]) -> str:
    """A JSON Web Token with these parts, which proves to a token endpoint who asks. `sign` makes the signature of its text."""
    text = b".".join(base64url(msgspec.json.encode(part)) for part in (header, claims))
    return b".".join([text, base64url(sign(text))]).decode()


def base64url(data: bytes) -> bytes:
    """Base64 as tokens use it: for URLs, without padding."""
    return urlsafe_b64encode(data).rstrip(b"=")


def read_token_file(path: str, what: str) -> str:
    """The token in a file that another program renews. Raises `TokenError`; `what` begins its message: `aws: cannot read`."""
    try:
        return Path(path).expanduser().read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text"
        raise TokenError(f"{what} {path}: {reason}") from None


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
