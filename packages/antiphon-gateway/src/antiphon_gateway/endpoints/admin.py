"""`/admin/keys`, `/admin/audit`, `/admin/spend`, `/admin/credentials` and `/v1/usage`: JSON in, JSON out.

Everything under `/admin/` is for operators (`access.client_keys`). Every change is written with its audit row in one transaction.
A new or rotated key is in that one response and nowhere else. `/v1/usage` shows a client its own usage, by the name of its key.

A provider key that is switched off is not used until it is switched on; that survives a reload, and the other workers of the host
follow within a second or two, and other hosts through the shared store, if there is one.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial, reduce
from itertools import groupby
from operator import add, attrgetter
from typing import Annotated, Any

from msgspec import Meta, Struct, structs

from antiphon.errors import CredentialError, StoreError, WireError
from antiphon.http.messages import Response
from antiphon.wire.output import ProviderError
from antiphon_gateway.access.client_keys import BUDGET_LIMITS, ClientKey, new_key, rules_of
from antiphon_gateway.config.checks import format_path
from antiphon_gateway.config.schema import check_types, did_you_mean
from antiphon_gateway.config.settings import KeyRules
from antiphon_gateway.errors import RequestRefused
from antiphon_gateway.ledger.audit import Change, read_audit, record_change
from antiphon_gateway.ledger.spend import DIMENSIONS, NO_CALLS, SpendRow, spend
from antiphon_gateway.ledger.stored_keys import (
    NameTaken,
    StoredKey,
    StoredKeys,
    UnknownKey,
    deleted,
    rotated,
)
from antiphon_gateway.observe.status import credential_rows
from antiphon_gateway.runtime.body_fields import query_number, read_body_as
from antiphon_gateway.runtime.metered import MeteredRequest
from antiphon_gateway.share.counts import periods_of
from antiphon_gateway.utc_time import as_utc, day_of, start_of, time_at, utc_text

logger = logging.getLogger("antiphon.gateway")

_DEFAULT_PAGE, _LARGEST_PAGE = 100, 1000
_LONGEST_NAME = 200
_LONGEST_GRACE = 30 * 86_400
_UNLIMITED_DAYS = 31
_EARLIEST = datetime.min.replace(tzinfo=UTC)
_NO_RULES = KeyRules()


class _Rotation(Struct, frozen=True, forbid_unknown_fields=True):
    grace_seconds: Annotated[float, Meta(ge=0, le=_LONGEST_GRACE)] = 0.0


class _Switch(Struct, frozen=True, forbid_unknown_fields=True):
    provider: str
    credential: str
    enabled: bool


async def handle_create_key(context: MeteredRequest) -> Response:
    """Create a client key; the only response that contains it. Raises `WireError`."""
    given = _read_fields(context.request.body or b"{}")
    name = _read_name(given.pop("name", None))
    if context.loaded.keys.allows_anonymous and not context.key.name:
        message = (
            "configure an admin key first ([[keys]] with admin = true, or ANTIPHON_ADMIN_KEY): with a stored key, "
            "and without an admin key, the gateway could not be administered any more"
        )
        raise _conflict(message, "admin_key_required")
    if context.loaded.keys.configured_client(name) is not None:
        raise _conflict(f"a key named {name!r} is in the configuration; choose another name", "name_taken")
    rules = KeyRules(**_read_rules(given))

    def change(key: StoredKey) -> Change:
        return Change.of(context.request, context.key, "create key", name, id=key.id, rules=rules_of(rules))

    try:
        key, secret = await context.services.stored_keys.create(name, rules, change)
    except NameTaken as error:
        raise _conflict(str(error), "name_taken") from None
    return Response.json({**_key_json(key), "key": secret}, 201)


async def handle_list_keys(context: MeteredRequest) -> Response:
    """A page of all keys by name, those of the configuration too. Raises `WireError`."""
    query = context.request.query
    limit = query_number(query, "limit", _DEFAULT_PAGE, most=_LARGEST_PAGE)
    stored = await _refreshed_keys(context)
    rows = {client.name: _configured_json(client) for client in context.loaded.keys.clients}
    rows |= {key.name: _key_json(key) for key in stored.records}
    wanted = query.get("search", "").casefold()
    names = sorted(name for name in rows if wanted in name.casefold())
    start = bisect_right(names, query["after"]) if "after" in query else 0
    page = names[start : start + limit]
    has_more = start + limit < len(names)
    return Response.json(
        {"keys": [rows[name] for name in page], "total": len(names), "after": page[-1] if has_more else None}
    )


async def handle_get_key(context: MeteredRequest) -> Response:
    """One key, with what it used today and this month."""
    stored = await _refreshed_keys(context)
    try:
        row, client = _key_json(key := stored.record(context.endpoint.resource)), stored.named(key.name)
    except UnknownKey:
        client = context.loaded.keys.configured_client(context.endpoint.resource)
        if client is None:
            raise _key_not_found(context.endpoint.resource) from None
        row = _configured_json(client)
    assert client is not None, "a record has a client"
    return Response.json({**row, "usage": await usage_of(context, client)})


async def handle_change_key(context: MeteredRequest) -> Response:
    """Change models, limits, expiry or state of a key; null removes a limit. Raises `WireError`."""
    wanted = _read_fields(context.request.body)
    is_disabled = wanted.pop("disabled", None)
    if is_disabled is not None and not isinstance(is_disabled, bool):
        raise WireError("disabled: expected true or false")
    changed = _read_rules(wanted)

    def edit(key: StoredKey) -> StoredKey:
        rules = structs.replace(key.rules, **changed)
        return structs.replace(key, rules=rules, is_disabled=key.is_disabled if is_disabled is None else is_disabled)

    details = changed if is_disabled is None else {**changed, "disabled": is_disabled}
    return Response.json(_key_json(await _edit_key(context, "change key", edit, **details)))


async def handle_disable_key(context: MeteredRequest) -> Response:
    """Stop accepting a key."""
    key = await _edit_key(context, "disable key", lambda key: structs.replace(key, is_disabled=True))
    return Response.json(_key_json(key))


async def handle_enable_key(context: MeteredRequest) -> Response:
    """Accept a key again."""
    key = await _edit_key(context, "enable key", lambda key: structs.replace(key, is_disabled=False))
    return Response.json(_key_json(key))


async def handle_rotate_key(context: MeteredRequest) -> Response:
    """Replace a key by a new one; the old one is accepted for `grace_seconds` more. Raises `WireError`."""
    advice = f"grace_seconds is a number from 0 to {_LONGEST_GRACE}"
    grace = read_body_as(context.request.body or b"{}", _Rotation, advice=advice).grace_seconds
    secret = new_key()
    key = await _edit_key(context, "rotate key", lambda key: rotated(key, secret, grace), grace_seconds=grace)
    return Response.json({**_key_json(key), "key": secret})


async def handle_delete_key(context: MeteredRequest) -> Response:
    """Delete a key. Its usage stays in the ledger."""
    key = await _edit_key(context, "delete key", deleted)
    return Response.json({"id": key.id, "name": key.name, "deleted": True})


async def handle_list_credentials(context: MeteredRequest) -> Response:
    """Every key with its state, also for the models it is not healthy for, and its last error."""
    return Response.json({"credentials": _credentials(context)})


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
    await _audit_switch(context, wanted)
    state, operator = "enabled" if wanted.enabled else "disabled", context.key.name or "a client"
    logger.warning("key %s of %s %s by %s", wanted.credential, wanted.provider, state, operator)
    return Response.json({"credentials": _credentials(context)})


async def handle_audit(context: MeteredRequest) -> Response:
    """The newest changes. Raises `WireError`."""
    query = context.request.query
    limit = query_number(query, "limit", _DEFAULT_PAGE, most=_LARGEST_PAGE)
    before = query_number(query, "before", 0) or None
    database = context.services.database
    rows = await database.read_rows(lambda opened: read_audit(opened, before=before, limit=limit))
    return Response.json({"changes": rows, "before": rows[-1].id if len(rows) == limit else None})


async def handle_spend(context: MeteredRequest) -> Response:
    """What was spent, by any of key, model, provider and day. Raises `WireError`."""
    query = context.request.query
    asked = tuple(filter(None, query.get("by", "").split(",")))
    if unknown := [name for name in asked if name not in DIMENSIONS]:
        raise WireError(f"by={unknown[0][:100]} is unknown; use {', '.join(DIMENSIONS)}, separated by commas")
    by = tuple(name for name in DIMENSIONS if name in asked)
    until = _time(query, "until")
    latest = until or datetime.now(UTC)
    since = _time(query, "since") or latest - min(timedelta(days=_UNLIMITED_DAYS), latest - _EARLIEST)
    keys = (query["key"],) if "key" in query else None
    database = context.services.database
    rows = await database.read_rows(partial(spend, by=by, since=since, until=until, keys=keys))
    limit = query_number(query, "limit", _LARGEST_PAGE, most=100 * _LARGEST_PAGE)
    shown = [{**{name: getattr(row, name) for name in by}, **row.numbers} for row in rows[:limit]]
    return Response.json({"since": since, "until": until, "rows": shown, "total": len(rows)})


async def handle_usage(context: MeteredRequest) -> Response:
    """What the client of the presented key used itself."""
    return Response.json({"name": context.key.name, **await usage_of(context, context.key)})


async def usage_of(context: MeteredRequest, client: ClientKey) -> dict[str, Any]:
    """What a client used today and this month, and of its limits."""
    day, month = periods_of(client.name, day_of(datetime.now(UTC).date()))
    reading = partial(spend, by=("model", "day"), since=start_of(month.start), keys=(client.name,))
    found = await context.services.database.read_rows(reading)  # once: both periods are of the same moment
    usage: dict[str, Any] = {}
    for name, period in (("day", day), ("month", month)):
        rows = [row for row in found if period.has(row.day)]
        models = [(model, list(held)) for model, held in groupby(rows, key=attrgetter("model"))]
        usage[name] = {
            "since": utc_text(start_of(period.start)),
            "resets_at": utc_text(start_of(period.end)),
            **_sums(rows),
            "models": [{"model": model, **_sums(held)} for model, held in models],
        }
        for limit in BUDGET_LIMITS:
            if limit.endswith(name) and getattr(client, limit) is not None:
                usage[name][limit] = getattr(client, limit)
    return usage


def _sums(rows: list[SpendRow]) -> dict[str, Any]:
    return (reduce(add, rows) if rows else NO_CALLS).numbers


async def _edit_key(
    context: MeteredRequest, action: str, edit: Callable[[StoredKey], StoredKey], /, **details: Any
) -> StoredKey:
    """The stored key of the path after a change. Raises `RequestRefused`."""
    stored = await _refreshed_keys(context)
    try:
        known = stored.record(context.endpoint.resource)
        change = Change.of(context.request, context.key, action, known.name, id=known.id, **details)
        return await stored.change(known.id, edit, change)
    except UnknownKey:
        name = context.endpoint.resource
        if context.loaded.keys.configured_client(name) is not None:
            raise _conflict(f"key {name!r} is in the configuration; change it there", "configured_key") from None
        raise _key_not_found(name) from None


async def _refreshed_keys(context: MeteredRequest) -> StoredKeys:
    """The stored keys as they are in the database now."""
    stored = context.services.stored_keys
    await stored.refresh()
    return stored


async def _audit_switch(context: MeteredRequest, done: _Switch) -> None:
    """Write the change to the audit log. Switching a leaked key off must work without the database, so that is only logged."""
    action = "enable credential" if done.enabled else "disable credential"
    change = Change.of(context.request, context.key, action, f"{done.provider} {done.credential}")
    try:
        await context.services.database.run(lambda opened: record_change(opened, change))
    except StoreError as error:
        logger.warning("not in the audit log: %s of %s: %s", action, change.target, error)


def _credentials(context: MeteredRequest) -> list[dict[str, object]]:
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


def _read_fields(body: bytes) -> dict[str, Any]:
    return read_body_as(
        body, dict[str, Any], advice='send an object such as {"name": "team-blue", "budget_per_day": 5}'
    )


def _read_name(given: object) -> str:
    """The name of a new key. It is part of a path, so it has no slash. Raises `WireError`."""
    name = given.strip() if isinstance(given, str) else ""
    if not name or not name.isprintable() or len(name) > _LONGEST_NAME or "/" in name or name in (".", ".."):
        raise WireError(f"name: expected a line of text with at most {_LONGEST_NAME} characters and no slash")
    return name


def _read_rules(given: Mapping[str, Any]) -> dict[str, Any]:
    """The rules that a body states, checked as those in the configuration; null removes a limit. Raises `WireError`."""
    known = KeyRules.__struct_fields__
    if unknown := [name for name in given if name not in known]:
        near = did_you_mean(unknown[0], known) or f"; a key has {', '.join(known)}"
        raise WireError(f"unknown field {unknown[0][:100]!r}{near}")
    removed = {name: None for name, value in given.items() if value is None and getattr(_NO_RULES, name) is None}
    stated = {name: value for name, value in given.items() if name not in removed}
    if "expires" in stated:
        stated["expires"] = _read_time(stated["expires"], "expires")
    rules, problems = check_types(KeyRules, stated)
    if problems:
        raise WireError("; ".join(f"{format_path(problem.path)}: {problem.reason}" for problem in problems))
    return {**removed, **{name: getattr(rules, name) for name in stated}}


def _key_json(key: StoredKey) -> dict[str, Any]:
    return {
        "id": key.id,
        "name": key.name,
        "source": "database",
        "fingerprint": key.hash[:15],
        "disabled": key.is_disabled,
        **rules_of(key.rules),
        "created_at": _stored_time(key.created_at),
        "changed_at": _stored_time(key.changed_at),
        "rotated_at": _stored_time(key.rotated_at),
        "old_key_until": _stored_time(key.old_until),
    }


def _stored_time(microseconds: int) -> str | None:
    return utc_text(time_at(microseconds)) if microseconds else None


def _configured_json(client: ClientKey) -> dict[str, Any]:
    return {"id": None, "name": client.name, "source": "configuration", "disabled": False, **rules_of(client)}


def _time(query: Mapping[str, str], name: str) -> datetime | None:
    written = query.get(name, "")
    return _read_time(written, name) if written else None


def _read_time(written: object, name: str) -> datetime:
    """A time of a request; without a zone it is UTC. Raises `WireError`."""
    try:
        return as_utc(datetime.fromisoformat(written if isinstance(written, str) else ""))
    except ValueError:
        raise WireError(f"{name}: expected a date or time such as 2026-11-01 or 2026-11-01T12:00:00Z") from None


def _conflict(message: str, code: str) -> RequestRefused:
    return RequestRefused(ProviderError(message, "conflict", code=code))


def _key_not_found(name: str) -> RequestRefused:
    return RequestRefused(
        ProviderError(f"no key {name[:200]!r}; see GET /admin/keys", "not_found", code="key_not_found")
    )
