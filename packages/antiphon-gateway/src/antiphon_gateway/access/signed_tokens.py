"""Tokens that the gateway signs for a client and accepts when they come back: upload tickets.

A token names a client key and when it expires, and contains no secret (law L10). The signing key is made of the providers' keys,
so that every worker and host with the same configuration accepts it. Tokens that a process fetches from a cloud are not part of
it. A gateway without any provider's key uses a random one, which its workers inherit.

Upload tickets are for Gemini's clients: they send a file to the URL they were given, without a key.
"""

from __future__ import annotations

import hmac
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import sha256
from secrets import token_bytes

from antiphon.http.messages import ClientRequest
from antiphon_gateway.access.client_keys import ClientKey
from antiphon_gateway.access.operators import AccessRules

TICKET = "ticket"
UPLOAD_ID = "upload_id"
"""Parameters of the URL of an upload: the ticket, and the id that the provider gave the upload."""
_TICKET_SECONDS = 86_400
_PROCESS_KEY = token_bytes(32)


def new_ticket(loaded: AccessRules, client: str, upload_id: str) -> str:
    """A ticket for one upload of a client, valid for a day."""
    return new_token(loaded, "upload", client, time.time() + _TICKET_SECONDS, bound_to=upload_id)


def ticket_client(loaded: AccessRules, request: ClientRequest) -> ClientKey | None:
    """The client of a valid ticket; None without one."""
    query = request.query
    return token_client(loaded, "upload", query.get(TICKET, ""), bound_to=query.get(UPLOAD_ID, ""))


def new_token(
    loaded: AccessRules, purpose: str, client: str, expires: float, *, nonce: str = "", bound_to: str | None = None
) -> str:
    """A token of a client. It is accepted for the same purpose, together with the same `bound_to`, until it expires.

    With a `nonce`, tokens of the same client and time differ.
    """
    name = urlsafe_b64encode(client.encode("utf-8", "surrogateescape")).decode().rstrip("=")
    parts = (name, str(int(expires)), *filter(None, [nonce]))
    return ".".join((*parts, signature(loaded, purpose, *parts, *_given(bound_to))))


def token_client(loaded: AccessRules, purpose: str, token: str, *, bound_to: str | None = None) -> ClientKey | None:
    """The client of a valid token, if its key is still accepted."""
    if not is_token(loaded, purpose, token, bound_to=bound_to):
        return None
    key = loaded.keys.named(token_name(token))
    return None if key is None or key.refusal() else key


def is_token(loaded: AccessRules, purpose: str, token: str, *, bound_to: str | None = None) -> bool:
    """Whether a token is ours, for this purpose and together with `bound_to`, and has not expired."""
    *parts, given = token.split(".")
    if len(parts) < 2 or not is_signature(given, loaded, purpose, *parts, *_given(bound_to)):
        return False
    return int(parts[1]) >= time.time()


def token_name(token: str) -> str:
    """The name of the client in a token, which may be forged; empty if there is none."""
    name = token.partition(".")[0]
    try:
        return urlsafe_b64decode(name + "=" * (-len(name) % 4)).decode("utf-8", "surrogateescape")
    except ValueError:
        return ""


def signature(loaded: AccessRules, purpose: str, *parts: str) -> str:
    """The signature of `parts`; one for another purpose is never equal."""
    secrets = "\0".join(loaded.signing_secrets).encode("utf-8", "surrogateescape")
    key = sha256(secrets).digest() if secrets else _PROCESS_KEY
    message = "\0".join((purpose, str(len(parts)), *parts)).encode("utf-8", "surrogateescape")
    return hmac.new(key, message, sha256).hexdigest()


def is_signature(given: str, loaded: AccessRules, purpose: str, *parts: str) -> bool:
    """Whether `given` is the signature of `parts`, compared in constant time."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), signature(loaded, purpose, *parts).encode())


def _given(bound_to: str | None) -> tuple[str, ...]:
    return () if bound_to is None else (bound_to,)
