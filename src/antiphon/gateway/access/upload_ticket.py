"""Tickets in upload URLs: Gemini's clients send a file to the URL they were given, without a key.

A ticket names the client that began the upload, and is valid for that upload only, for a day. It is signed, and contains no
secret itself (law L10).
"""

from __future__ import annotations

import time
from base64 import urlsafe_b64decode, urlsafe_b64encode

from antiphon.gateway.access.client_keys import ClientKey
from antiphon.gateway.access.signature import is_signature, signature
from antiphon.gateway.config.loaded import LoadedConfig
from antiphon.gateway.http.messages import ClientRequest

PARAMETER = "ticket"
UPLOAD_ID = "upload_id"
_SECONDS = 86_400


def new_ticket(loaded: LoadedConfig, client: str, upload_id: str) -> str:
    """A ticket for one upload of a client."""
    name, expires = urlsafe_b64encode(client.encode()).decode().rstrip("="), int(time.time()) + _SECONDS
    return f"{name}.{expires}.{signature(loaded, 'upload', name, str(expires), upload_id)}"


def ticket_client(loaded: LoadedConfig, request: ClientRequest) -> ClientKey | None:
    """The client of a valid ticket; None without one."""
    name, _, rest = request.query.get(PARAMETER, "").partition(".")
    expires, _, given = rest.partition(".")
    if not (expires.isascii() and expires.isdigit()) or len(expires) > 12 or int(expires) < time.time():
        return None
    if not is_signature(given, loaded, "upload", name, expires, request.query.get(UPLOAD_ID, "")):
        return None
    client = urlsafe_b64decode(name + "=" * (-len(name) % 4)).decode()
    key = loaded.keys.named(client)
    return None if key is None or key.refusal() else key
