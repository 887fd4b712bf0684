"""`signature`: what the gateway signs for a client and checks when it comes back (upload tickets, sessions of the status page).

The key is made of the providers' secrets, so that every worker and host with the same configuration accepts it. A gateway
without any uses a random key, which its workers inherit.
"""

from __future__ import annotations

import hmac
from hashlib import sha256
from secrets import token_bytes
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from antiphon.gateway.config.loaded import LoadedConfig

_PROCESS_KEY = token_bytes(32)


def signature(loaded: LoadedConfig, purpose: str, *parts: str) -> str:
    """The signature of `parts`; one for another purpose is never equal."""
    secrets = "\0".join(loaded.secrets).encode("utf-8", "surrogateescape")
    key = sha256(secrets).digest() if secrets else _PROCESS_KEY
    message = "\0".join((purpose, str(len(parts)), *parts)).encode("utf-8", "surrogateescape")
    return hmac.new(key, message, sha256).hexdigest()


def is_signature(given: str, loaded: LoadedConfig, purpose: str, *parts: str) -> bool:
    """Whether `given` is the signature of `parts`, compared in constant time."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), signature(loaded, purpose, *parts).encode())
