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
from antiphon_gateway.observe.status import credential_row
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
    """Switch one key off or on. Raises `WireError`."""
    advice = 'send {"provider": "…", "credential": "env:NAME", "enabled": false}'
    wanted = read_body_as(context.request.body, _Switch, advice=advice)
    await switch_credential(context, wanted.provider, wanted.credential, enabled=wanted.enabled)
    return Response.json({"credentials": _rows(context)})


async def switch_credential(context: MeteredRequest, provider_name: str, credential: str, *, enabled: bool) -> None:
    """Switch one key off or on, with a row in the audit log. Raises `WireError`."""
    provider = context.loaded.providers.get(provider_name)
    if provider is None or provider.keys is None:
        known = ", ".join(context.loaded.credentials) or "none"
        raise WireError(f"unknown provider {provider_name[:200]!r}; providers with keys: {known}")
    try:
        if enabled:
            provider.keys.enable(credential)
        else:
            provider.keys.disable(credential)
    except CredentialError as error:
        raise WireError(str(error)) from error
    state = "enabled" if enabled else "disabled"
    await _audit(context, f"{provider_name} {credential}", enabled=enabled)
    logger.warning("key %s of %s %s by %s", credential, provider_name, state, context.key.name or "a client")


async def _audit(context: MeteredRequest, target: str, *, enabled: bool) -> None:
    """Write the change to the audit log. Switching a leaked key off must work without the database, so that is only logged."""
    action = "enable credential" if enabled else "disable credential"
    change = Change.of(context.request, context.key, action, target)
    try:
        await context.services.database.run(lambda opened: record_change(opened, change))
    except StoreError as error:
        logger.warning("not in the audit log: %s of %s: %s", action, target, error)


def _rows(context: MeteredRequest) -> list[dict[str, object]]:
    now = datetime.now(UTC)
    rows = [
        credential_row(provider, status, now)
        for provider, statuses in context.services.credentials_of(context.loaded).items()
        for status in statuses
    ]
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
        for row in rows
    ]
