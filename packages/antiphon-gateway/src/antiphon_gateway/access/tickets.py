"""Upload tickets: Gemini's clients send a file to the URL they were given, without a key.

A ticket names a client key, its upload and when it expires, and contains no secret (law L10). The gateway signs it with a key
made of the providers' keys, so that every worker and host with the same configuration accepts it. Tokens that a process fetches
from a cloud are not part of it. A gateway without any provider's key uses a random one, which its workers inherit.
"""

from __future__ import annotations

import hmac
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from hashlib import sha256
from secrets import token_bytes
from typing import Protocol

from antiphon_gateway.access.client_keys import ClientKey, ClientKeys

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
