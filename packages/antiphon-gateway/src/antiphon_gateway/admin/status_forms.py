"""What the forms of the status page do: log in, log out, switch a provider's key off and on.

Plain forms without scripts; every answer is a redirect to the page, or the login form again. Those that change something need
the page's token (`access.page_session`), and none is accepted from a page of another site.
"""

from __future__ import annotations

import logging
from math import ceil
from urllib.parse import parse_qsl

from antiphon.errors import WireError
from antiphon.http.messages import Response
from antiphon.http.origin import site_problem
from antiphon.wire.output import ProviderError
from antiphon_gateway.access.page_session import (
    PAGE,
    LoginAttempts,
    has_form_token,
    new_session,
    session_cookie,
)
from antiphon_gateway.admin.credentials import switch_credential
from antiphon_gateway.errors import error_response
from antiphon_gateway.observe.page.login_page import login_page
from antiphon_gateway.runtime.context import RequestContext

logger = logging.getLogger("antiphon.gateway")

_FORGED = ProviderError("this form was not sent by the status page, or its session ended; reload /status", "permission")

attempts = LoginAttempts()
"""The wrong keys of this process."""


async def handle_login(context: RequestContext) -> Response:
    """Check the key in a form and begin a session."""
    request, loaded = context.request, context.loaded
    if site_problem(request.headers, loaded.origin_rules):
        return error_response("", _FORGED)
    if wait := attempts.wait(request.peer):
        return login_page(request, "too_many", status=429, seconds=ceil(wait))
    given = _fields(context).get("key", "").strip()
    key = loaded.keys.authenticate(x_api_key=given) if given else None
    if key is None or not key.admin:
        attempts.failed(request.peer)
        logger.warning("status page: login from %s refused", request.peer)
        return login_page(request, "wrong_key" if key is None else "not_admin", status=401)
    logger.info("status page: %s logged in", key.name)
    return _to_page(session_cookie(loaded, request, new_session(loaded, key)))


async def handle_logout(context: RequestContext) -> Response:
    """End the session."""
    if not _is_own_form(context, _fields(context)):
        return error_response("", _FORGED)
    return _to_page(session_cookie(context.loaded, context.request, ""))


async def handle_switch(context: RequestContext) -> Response:
    """Switch a key off or on, as `POST /credentials` does. Raises `WireError`."""
    fields = _fields(context)
    if not _is_own_form(context, fields):
        return error_response("", _FORGED)
    await switch_credential(
        context, fields.get("provider", ""), fields.get("credential", ""), enabled=fields.get("enabled") == "true"
    )
    return _to_page()


def _is_own_form(context: RequestContext, fields: dict[str, str]) -> bool:
    loaded, request = context.loaded, context.request
    return not site_problem(request.headers, loaded.origin_rules) and has_form_token(
        loaded, request, fields.get("token", "")
    )


def _fields(context: RequestContext) -> dict[str, str]:
    try:
        return dict(parse_qsl(context.request.body.decode("utf-8"), max_num_fields=20))
    except (UnicodeDecodeError, ValueError) as error:
        raise WireError(f"not a form: {error}") from error


def _to_page(set_cookie: str = "") -> Response:
    headers = {"location": PAGE, "cache-control": "no-store"} | ({"set-cookie": set_cookie} if set_cookie else {})
    return Response(status=303, headers=headers)
