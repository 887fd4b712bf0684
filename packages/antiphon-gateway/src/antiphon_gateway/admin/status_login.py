"""The status page, which has no data and is public, and its login: whether a key is needed, and whether this one opens it.

The page keeps the key in its tab and sends it with each request; here it learns at once whether it is an admin key, and how many
tries are left. Nothing is stored, and no cookie is set.
"""

from __future__ import annotations

import logging
from math import ceil

from antiphon.http.messages import Response
from antiphon.http.origin import site_problem
from antiphon.wire.output import ProviderError
from antiphon_gateway.access.login_attempts import LoginAttempts
from antiphon_gateway.access.operators import presented_key
from antiphon_gateway.errors import error_response
from antiphon_gateway.observe.page import STATUS_PAGE
from antiphon_gateway.runtime.metered import MeteredRequest

logger = logging.getLogger("antiphon.gateway")

_WRONG_KEY = ProviderError("wrong key for the status page", "authentication")
_FOREIGN = ProviderError("this login was not sent by the status page; open /status", "permission")

attempts = LoginAttempts()
"""The wrong keys of this process."""


async def handle_status_page(context: MeteredRequest) -> Response:
    """A file of the status page."""
    found = STATUS_PAGE.answer(context.request, context.endpoint.resource)
    return found or error_response("", ProviderError("the status page has no such file", "not_found"))


async def handle_login_needed(context: MeteredRequest) -> Response:
    """Whether the page has to ask for a key."""
    is_open = context.loaded.keys.allows_anonymous
    return Response.json({"needs_key": not is_open}, 200, {"cache-control": "no-store"})


async def handle_login(context: MeteredRequest) -> Response:
    """Check the key in the `Authorization` header."""
    request, loaded = context.request, context.loaded
    if site_problem(request.headers, loaded.origin_rules):
        return error_response("", _FOREIGN)
    if wait := attempts.wait(request.peer):
        seconds = ceil(wait)
        return Response.json({"seconds": seconds}, 429, {"retry-after": str(seconds), "cache-control": "no-store"})
    key = presented_key(loaded, request)
    if key is None or not key.admin:
        attempts.failed(request.peer)
        logger.warning("status page: login from %s refused", request.peer)
        answer = {"is_known": key is not None, "tries_left": attempts.left(request.peer)}
        refusal = Response.json(answer, 401, {"cache-control": "no-store"})
        refusal.error = _WRONG_KEY
        return refusal
    logger.info("status page: %s logged in", key.name)
    return Response.json({"name": key.name}, 200, {"cache-control": "no-store"})
