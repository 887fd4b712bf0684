"""`/admin/credentials`, and `/credentials` as before: provider keys by their source, switched off and on while the gateway runs.

For operators only, as `/status`. A key that is switched off is not used until it is switched on; that survives a reload, and
the other workers of the host follow within a second or two, and other hosts through the shared store, if there is one.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime

from msgspec import Struct

from antiphon.errors import CredentialError, StoreError, WireError
from antiphon.http.messages import Response
from antiphon_gateway.ledger.audit import Change, record_change
from antiphon_gateway.observe.status import credential_rows
from antiphon_gateway.runtime.body_fields import read_body_as
from antiphon_gateway.runtime.metered import MeteredRequest

logger = logging.getLogger("antiphon.gateway")


class _Switch(Struct, frozen=True, forbid_unknown_fields=True):
    provider: str
    credential: str
    enabled: bool


async def handle_list_credentials(context: MeteredRequest) -> Response:
    """Every key with its state, also for the models it is not healthy for, and its last error."""
    return Response.json({"credentials": _rows(context)})


async def handle_switch_credential(context: MeteredRequest) -> Response:
    """Switch one key off or on, with a row in the audit log. Raises `WireError`."""
    advice = 'send {"provider": "…", "credential": "env:NAME", "enabled": false}'
    wanted = read_body_as(context.request.body, _Switch, advice=advice)
    provider = context.loaded.providers.get(wanted.provider)
    if provider is None or provider.keys is None:
        known = ", ".join(context.loaded.credentials) or "none"
        raise WireError(f"unknown provider {wanted.provider[:200]!r}; providers with keys: {known}")
    try:
        if wanted.enabled:
            provider.keys.enable(wanted.credential)
        else:
            provider.keys.disable(wanted.credential)
    except CredentialError as error:
        raise WireError(str(error)) from error
    await _audit(context, wanted)
    state, operator = "enabled" if wanted.enabled else "disabled", context.key.name or "a client"
    logger.warning("key %s of %s %s by %s", wanted.credential, wanted.provider, state, operator)
    return Response.json({"credentials": _rows(context)})


async def _audit(context: MeteredRequest, done: _Switch) -> None:
    """Write the change to the audit log. Switching a leaked key off must work without the database, so that is only logged."""
    action = "enable credential" if done.enabled else "disable credential"
    change = Change.of(context.request, context.key, action, f"{done.provider} {done.credential}")
    try:
        await context.services.database.run(lambda opened: record_change(opened, change))
    except StoreError as error:
        logger.warning("not in the audit log: %s of %s: %s", action, change.target, error)


def _rows(context: MeteredRequest) -> list[dict[str, object]]:
    return [
        {
            "provider": row.provider,
            "credential": row.name,
            "state": row.state,
            "until": row.until,
            "models": row.resting,
            "calls": row.calls,
            "failures": row.failures,
            "last_error": row.last_error,
        }
        for row in credential_rows(context.services.credentials_of(context.loaded), datetime.now(UTC))
    ]
