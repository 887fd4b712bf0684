"""JSON Web Tokens that a private key signs: assertions for token services."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from typing import Any

import msgspec


def signed_token(header: Mapping[str, Any], claims: Mapping[str, Any], sign: Callable[[bytes], bytes]) -> str:
    """The token with these parts. `sign` makes the signature of its text."""
    text = b".".join(base64url(msgspec.json.encode(part)) for part in (header, claims))
    return b".".join([text, base64url(sign(text))]).decode()


def base64url(data: bytes) -> bytes:
    """Base64 as tokens use it: for URLs, without padding."""
    return urlsafe_b64encode(data).rstrip(b"=")
