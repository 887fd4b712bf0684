"""Sessions of the status page: an operator enters the admin key once, and the browser gets a cookie.

The cookie has the name of the key, the end of the session and a signature, and never the key. It is valid for eight hours and
only under `/status`, while that very key is accepted and an admin key: a rotation ends it. Scripts cannot read it (`HttpOnly`),
other sites cannot cause it to be sent (`SameSite=Strict`), and under https it stays there (`Secure`). A form of the page also has
a token that another page cannot know. Wrong keys are limited by the address they come from.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from secrets import token_hex

from antiphon.http.messages import ClientRequest
from antiphon_gateway.access.client_keys import ClientKey
from antiphon_gateway.access.rules import AccessRules
from antiphon_gateway.access.signed_tokens import is_signature, is_token, new_token, signature, token_name

COOKIE = "antiphon_session"
LANGUAGE_COOKIE = "antiphon_language"
PAGE = "/status"
SESSION_SECONDS = 8 * 3600
_SESSION, _FORM = "status session", "status form"
_YEAR = 365 * 86_400
_LONGEST_COOKIE = 1000
_MOST_ADDRESSES = 10_000


def new_session(loaded: AccessRules, key: ClientKey, *, now: float | None = None) -> str:
    """The value of the cookie of an operator who has presented `key`."""
    expires = (time.time() if now is None else now) + SESSION_SECONDS
    return new_token(loaded, _SESSION, key.name, expires, nonce=token_hex(8), bound_to=key.key_hash)


def session_key(loaded: AccessRules, request: ClientRequest) -> ClientKey | None:
    """The admin key of the request's session; None without a valid one."""
    if not request.path.startswith(PAGE):
        return None
    token = cookie(request, COOKIE)
    for key in loaded.keys.accepted(token_name(token)):
        if key.admin and is_token(loaded, _SESSION, token, bound_to=key.key_hash):
            return key
    return None


def form_token(loaded: AccessRules, request: ClientRequest) -> str:
    """What a form of the page must send along."""
    return signature(loaded, _FORM, cookie(request, COOKIE))


def has_form_token(loaded: AccessRules, request: ClientRequest, given: str) -> bool:
    """Whether a form was sent by our own page, in this session."""
    return is_signature(given, loaded, _FORM, cookie(request, COOKIE))


def cookie(request: ClientRequest, name: str) -> str:
    """The value of a cookie; empty without it."""
    for part in request.headers.get("cookie", "").split(";"):
        found, _, value = part.strip().partition("=")
        if found == name:
            return value[:_LONGEST_COOKIE]
    return ""


def session_cookie(loaded: AccessRules, request: ClientRequest, value: str) -> str:
    """The header that sets the session, or ends it if `value` is empty."""
    seconds = SESSION_SECONDS if value else 0
    return f"{COOKIE}={value}; Path={PAGE}; Max-Age={seconds}; HttpOnly; SameSite=Strict{_secure(loaded, request)}"


def language_cookie(loaded: AccessRules, request: ClientRequest, language: str) -> str:
    """The header that keeps the chosen language."""
    return f"{LANGUAGE_COOKIE}={language}; Path={PAGE}; Max-Age={_YEAR}; HttpOnly; SameSite=Strict{_secure(loaded, request)}"


def _secure(loaded: AccessRules, request: ClientRequest) -> str:
    scheme = request.headers.get("x-forwarded-proto", "").partition(",")[0].strip().lower()
    return "; Secure" if scheme == "https" or loaded.config.gateway.tls_cert else ""


class LoginAttempts:
    """Wrong keys by address: at most `most` in `seconds`."""

    def __init__(self, *, most: int = 10, seconds: float = 60.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._seconds = seconds
        self._clock = clock
        self._failures: dict[str, list[float]] = {}

    def wait(self, address: str) -> float:
        """Seconds until another key may be tried; 0 if one may be now."""
        failures = self._recent(address)
        return 0.0 if len(failures) < self._most else failures[0] + self._seconds - self._clock()

    def failed(self, address: str) -> None:
        """A wrong key was tried."""
        if len(self._failures) >= _MOST_ADDRESSES:
            self._failures = {known: recent for known in self._failures if (recent := self._recent(known))}
            if len(self._failures) >= _MOST_ADDRESSES:
                del self._failures[next(iter(self._failures))]
        self._failures[address] = [*self._recent(address), self._clock()]

    def _recent(self, address: str) -> list[float]:
        since = self._clock() - self._seconds
        return [at for at in self._failures.get(address, ()) if at > since]
