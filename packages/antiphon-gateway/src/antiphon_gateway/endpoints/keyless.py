"""What needs no key: the probes of load balancers, the status page, which has no data, and its login.

`/healthz` says that the process answers, `/readyz` whether any provider is usable; the details are for operators.

The page keeps the key in its tab and sends it with each request; at its login it learns at once whether it is an admin key, and
how many tries are left, by the address they come from (`LoginAttempts`). Nothing is stored, and no cookie is set.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from math import ceil, inf

from antiphon import __version__
from antiphon.http.messages import Response
from antiphon.http.origin import site_problem
from antiphon.providers.keys.ring import KeyRing
from antiphon.wire.output import ProviderError
from antiphon_gateway.access.client_keys import find_operator
from antiphon_gateway.errors import error_response
from antiphon_gateway.observe.page import STATUS_PAGE
from antiphon_gateway.runtime.metered import MeteredRequest


async def handle_health(_: MeteredRequest) -> Response:
    """The process answers."""
    return Response.json({"status": "ok", "version": __version__})


async def handle_ready(context: MeteredRequest) -> Response:
    """Ready while at least one provider is usable. The details list those that are, and why the others are not."""
    pools = {name: upstream.keys for name, upstream in context.loaded.providers.items()}
    usable = [name for name, pool in pools.items() if pool is None or has_usable_key(pool)]
    body: dict[str, object] = {"status": "ok" if usable else "no usable provider"}
    if find_operator(context.loaded, context.request) is not None:
        body["providers"] = usable
        body["unusable"] = {
            name: _reason(pool) for name, pool in pools.items() if pool is not None and name not in usable
        }
    return Response.json(body, 200 if usable else 503)


def has_usable_key(pool: KeyRing) -> bool:
    return any(status.state in ("healthy", "half_open") for status in pool.status())


def _reason(pool: KeyRing) -> str:
    states = ", ".join(f"{status.name} is {status.state}" for status in pool.status())
    wait = pool.retry_after()
    return f"no usable key: {states}" + (f"; retry in {wait:.0f} s" if wait < inf else "")


logger = logging.getLogger("antiphon.gateway")
_WRONG_KEY = ProviderError("wrong key for the status page", "authentication")
_FOREIGN = ProviderError("this login was not sent by the status page; open /status", "permission")
_MOST_ADDRESSES = 10_000


class LoginAttempts:
    """Wrong keys by address: at most `most` in `seconds`."""

    def __init__(self, *, most: int = 10, seconds: float = 60.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._seconds = seconds
        self._clock = clock
        self._failures: dict[str, list[float]] = {}

    def left(self, address: str) -> int:
        """How many wrong keys may still be tried now."""
        return max(0, self._most - len(self._recent(address)))

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


attempts = LoginAttempts()
"""The wrong keys of this process."""


async def handle_status_page(context: MeteredRequest) -> Response:
    """A file of the status page."""
    found = STATUS_PAGE.answer(context.request, context.endpoint.resource)
    return found or error_response("", ProviderError("the status page has no such file", "not_found"))


async def handle_status_login_needed(context: MeteredRequest) -> Response:
    """Whether the page has to ask for a key."""
    is_open = context.loaded.keys.allows_anonymous
    return Response.json({"needs_key": not is_open}, 200, {"cache-control": "no-store"})


async def handle_status_login(context: MeteredRequest) -> Response:
    """Check the key in the `Authorization` header."""
    request, loaded = context.request, context.loaded
    if site_problem(request.headers, loaded.origin_rules):
        return error_response("", _FOREIGN)
    if wait := attempts.wait(request.peer):
        seconds = ceil(wait)
        return Response.json({"seconds": seconds}, 429, {"retry-after": str(seconds), "cache-control": "no-store"})
    key = loaded.keys.authenticate(request.headers, request.query)
    if key is None or not key.admin:
        attempts.failed(request.peer)
        logger.warning("status page: login from %s refused", request.peer)
        answer = {"is_known": key is not None, "tries_left": attempts.left(request.peer)}
        refusal = Response.json(answer, 401, {"cache-control": "no-store"})
        refusal.error = _WRONG_KEY
        return refusal
    logger.info("status page: %s logged in", key.name)
    return Response.json({"name": key.name}, 200, {"cache-control": "no-store"})
