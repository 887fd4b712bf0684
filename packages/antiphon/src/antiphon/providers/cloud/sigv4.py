"""AWS Signature Version 4: the headers that sign a request.

The signature covers what is sent: the path and query as the request line carries them, the signed headers, and the SHA-256 of the
body. Signed are `host`, `content-type` and every `x-amz-*` header; others may be changed by a proxy on the way.
Rules: docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from urllib.parse import quote, unquote

from msgspec import Struct

_ALGORITHM = "AWS4-HMAC-SHA256"
_UNRESERVED = "-_.~"


class AwsKeys(Struct, frozen=True):
    """Keys of an AWS account or role; `session_token` if they are temporary."""

    access_key: str
    secret_key: str
    session_token: str = ""

    def __repr__(self) -> str:
        return f"<AwsKeys …{self.access_key[-4:]}>"


def sign(
    keys: AwsKeys,
    *,
    method: str,
    host: str,
    target: str,
    headers: Mapping[str, str],
    body: Iterable[bytes],
    region: str,
    service: str,
    timestamp: float,
) -> dict[str, str]:
    """The headers to add to a request. `target` is path and query; names of `headers` are in lower case."""
    moment = datetime.fromtimestamp(timestamp, UTC).strftime("%Y%m%dT%H%M%SZ")
    added = {"x-amz-date": moment}
    if keys.session_token:
        added["x-amz-security-token"] = keys.session_token
    signed = {name: value for name, value in headers.items() if name == "content-type" or name.startswith("x-amz-")}
    signed |= {**added, "host": host}
    names = ";".join(sorted(signed))
    scope = f"{moment[:8]}/{region}/{service}/aws4_request"
    request = canonical_request(method, target, signed, payload_hash(body))
    text = string_to_sign(request, moment, scope)
    signature = hmac.new(
        _signing_key(keys.secret_key, moment[:8], region, service), text.encode(), "sha256"
    ).hexdigest()
    added["authorization"] = (
        f"{_ALGORITHM} Credential={keys.access_key}/{scope}, SignedHeaders={names}, Signature={signature}"
    )
    return added


def canonical_request(method: str, target: str, headers: Mapping[str, str], body_hash: str) -> str:
    """The request in the form that is signed; `headers` are the signed ones, names in lower case."""
    path, _, query = target.partition("?")
    lines = [f"{name}:{' '.join(headers[name].split())}\n" for name in sorted(headers)]
    # A path is quoted once more, as for every service but S3: %2F becomes %252F.
    return "\n".join(
        [
            method,
            quote(path, safe="/" + _UNRESERVED),
            _query(query),
            "".join(lines),
            ";".join(sorted(headers)),
            body_hash,
        ]
    )


def string_to_sign(request: str, moment: str, scope: str) -> str:
    """What the key signs."""
    return "\n".join([_ALGORITHM, moment, scope, hashlib.sha256(request.encode()).hexdigest()])


def payload_hash(body: Iterable[bytes]) -> str:
    """The SHA-256 of a body, in hexadecimal."""
    digest = hashlib.sha256()
    for piece in body:
        digest.update(piece)
    return digest.hexdigest()


def _query(query: str) -> str:
    pairs: Sequence[tuple[str, str, str]] = [part.partition("=") for part in query.split("&") if part]
    return "&".join(sorted(f"{_quoted(name)}={_quoted(value)}" for name, _, value in pairs))


def _quoted(text: str) -> str:
    return quote(unquote(text), safe=_UNRESERVED)


@lru_cache(maxsize=64)
def _signing_key(secret: str, date: str, region: str, service: str) -> bytes:
    """The key of a day. It is kept because it is made of four hashes."""
    key = f"AWS4{secret}".encode()
    for part in (date, region, service, "aws4_request"):
        key = hmac.new(key, part.encode(), "sha256").digest()
    return key
